/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
 *
 * Calls of the CUDA driver API: uprobes on the entry points that libcuda.so exports.
 *
 * Why not the obvious hooks: a launch never enters the kernel (the library writes to mapped
 * queues and doorbells), so no tracepoint or ioctl sees it; the CUDA runtime (libcudart) is
 * linked statically into many programs; a preloaded library would change the program. All
 * roads lead through libcuda's exports, which are a stable ABI.
 *
 * The probes sit in the library file and so fire in every process that maps it: the program
 * filters by `managed`. Only latency-critical processes produce events. Best-effort ones may
 * launch hundreds of thousands of times a second and are only counted.
 */

#define CUDA_ERROR_NOT_READY 600
#define REPEAT_NS 250000ull	 /* half of the least quiet time of adaptive/hints/bursts.py */
#define REPEAT_FAST_NS 100000ull /* half of the usual release_us of a plan */

enum reader {
	TO_DAEMON = 1,
	TO_ACTUATOR = 2,
	TO_ALL = TO_DAEMON | TO_ACTUATOR,
	IS_FIRST = 4, /* a launch that follows none */
};

/* Stack arguments start above the return address on x86-64 (six in registers), at sp on arm64 (eight). */
static __always_inline u64 stack_argument(struct pt_regs *ctx, u32 number)
{
#if defined(__TARGET_ARCH_arm64)
	u64 address = PT_REGS_SP(ctx) + 8 * (number - 9);
#else
	u64 address = PT_REGS_SP(ctx) + 8 * (number - 6);
#endif
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

static __always_inline u64 launch_config_stream(struct pt_regs *ctx)
{
	u64 stream = 0; /* CUlaunchConfig: seven u32 of dimensions and shared memory, padding, hStream */

	bpf_probe_read_user(&stream, sizeof(stream), (void *)PT_REGS_PARM1(ctx) + 32);
	return stream;
}

/* Unrolled by hand: the verifier wants constant offsets into ctx, the compiler likes to compute them. */
static __always_inline u64 argument(struct pt_regs *ctx, u32 number)
{
	u64 args[8] = {PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx),
		       PT_REGS_PARM4(ctx), PT_REGS_PARM5(ctx), PT_REGS_PARM6(ctx)};

	if (number == 0)
		return 0;
	if (number == GS_ARG_LAUNCH_CONFIG)
		return launch_config_stream(ctx);
	if (number > 6)
		return stack_argument(ctx, number);
	number -= 1;
	tie(number);
	return args[number & 7]; /* eight, for Linux 5.15 knows no other bound here */
}

static __always_inline bool is_query(u32 call)
{
	return call == GS_CALL_STREAM_QUERY || call == GS_CALL_EVENT_QUERY;
}

/* Nothing waits for a record's return: frameworks record often, and each trap costs them. */
static __always_inline bool is_entry_only(u32 call)
{
	return call == GS_CALL_EVENT_RECORD;
}

static __always_inline bool is_launch(u32 call)
{
	return call == GS_CALL_LAUNCH || call == GS_CALL_GRAPH_LAUNCH;
}

static __always_inline struct gs_counters *count_call(u32 pid, u32 call)
{
	struct gs_counters *own = counters.lookup(&pid);

	tie(call);
	if (own && call < GS_CALL_COUNT)
		__sync_fetch_and_add(&own->calls[call], 1);
	return own;
}

/*
 * A program that launches one kernel after the other tells nothing by each of them. Of launches by one thread into one
 * stream, with no other event of the process in between, the first is sent, and from then on one now and then: to the
 * daemon more often than any quiet time is short that a burst is given, to the actuator more often than a hold ends by
 * itself after a launch.
 */
static __always_inline u32 readers_of_launch(struct gs_counters *own, u64 now, u64 stream)
{
	u32 tid = bpf_get_current_pid_tgid(), readers = 0;

	if (!own->told_ns || own->launcher != tid || own->stream != stream) {
		own->launcher = tid;
		own->stream = stream;
		own->told_ns = own->told_fast_ns = now;
		return TO_ALL | IS_FIRST;
	}
	if (now - own->told_ns >= REPEAT_NS) {
		own->told_ns = now;
		readers |= TO_DAEMON;
	}
	if (now - own->told_fast_ns >= REPEAT_FAST_NS) {
		own->told_fast_ns = now;
		readers |= TO_ACTUATOR;
	}
	return readers;
}

/* The entry of a query is not sent, so that its return must say what was asked for. */
static __always_inline void remember_query(u64 handle)
{
	struct thread *thread = thread_of(bpf_get_current_pid_tgid());

	if (thread)
		thread->queried = handle;
}

static __always_inline u64 remembered_query(void)
{
	struct thread *thread = thread_of(bpf_get_current_pid_tgid());

	return thread ? thread->queried : 0;
}

static __always_inline void describe(struct gs_event *event, u16 kind, u64 cookie)
{
	u64 id = bpf_get_current_pid_tgid();

	__builtin_memset(event, 0, sizeof(*event));
	event->time_ns = bpf_ktime_get_ns();
	event->pid = id >> 32;
	event->tid = id;
	event->kind = kind;
	event->call = GS_COOKIE_CALL(cookie);
	event->flags = GS_COOKIE_FLAGS(cookie);
}

static __always_inline void send_call(struct gs_event *event, const struct gs_managed *process, u32 readers,
				      u32 at_once)
{
	if (readers & TO_ACTUATOR && process->flags & GS_MANAGED_FAST && fast.ringbuf_output(event, sizeof(*event), 0))
		count_lost(GS_LOST_FAST);
	if (readers & TO_DAEMON && !(process->flags & GS_MANAGED_RESTING) &&
	    events.ringbuf_output(event, sizeof(*event), wake_up(event->time_ns, process, at_once)))
		count_lost(GS_LOST_EVENTS);
}

/* Sends what must be known of the entry; false when nothing of the return is, so that no second trap is needed. */
static __always_inline bool on_entry_of(struct pt_regs *ctx, u64 cookie, struct gs_managed *process,
					struct gs_counters *own)
{
	u32 call = GS_COOKIE_CALL(cookie), readers = TO_ALL, at_once = GS_MANAGED_ALL;
	struct gs_event event;

	describe(&event, GS_CUDA_ENTER, cookie);
	event.cuda.handle = argument(ctx, GS_COOKIE_HANDLE(cookie));
	event.cuda.bytes = argument(ctx, GS_COOKIE_BYTES(cookie));
	if (is_launch(call)) {
		readers = readers_of_launch(own, event.time_ns, event.cuda.handle);
		at_once = readers & IS_FIRST ? GS_MANAGED_BURSTS | GS_MANAGED_ALL : 0;
	} else {
		interrupt_launches(own);
	}
	if (is_entry_only(call))
		readers = TO_DAEMON;
	else if (readers)
		enter_cuda(readers & TO_ACTUATOR);
	send_call(&event, process, readers, at_once);
	return readers && !is_entry_only(call);
}

/* Returns whether the return must be seen. A record gives the GPU nothing to do. */
static __always_inline bool on_entry_of_job(u32 pid, struct gs_managed *process, u64 cookie)
{
	u32 call = GS_COOKIE_CALL(cookie);
	struct pause *pause = pause_of(pid, process);

	if (!pause || is_entry_only(call))
		return false;
	return is_query(call) || pause_enter(pause, call, GS_COOKIE_FLAGS(cookie));
}

static __always_inline void on_return_of_job(u32 pid, struct gs_managed *process, u64 cookie, s32 result)
{
	u32 call = GS_COOKIE_CALL(cookie);
	struct pause *pause = pause_of(pid, process);

	if (!pause)
		return;
	if (!is_query(call))
		pause_return(pause, call, GS_COOKIE_FLAGS(cookie));
	else if (!result)
		pause_found_done(pause);
}

/* A query tells something only by its result, so its entry is counted and not sent. */
static __always_inline bool on_enter(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	u32 call = GS_COOKIE_CALL(cookie);
	u32 pid = current_pid();
	struct gs_managed *process = managed.lookup(&pid);
	struct gs_counters *own = process && !is_agent(process) ? count_call(pid, call) : 0;

	if (!own)
		return false;
	if (process->class_ != GS_CLASS_LC)
		return on_entry_of_job(pid, process, cookie);
	if (is_query(call)) {
		remember_query(argument(ctx, GS_COOKIE_HANDLE(cookie)));
		return true;
	}
	return on_entry_of(ctx, cookie, process, own);
}

/*
 * Who learns from a return. Of asynchronous calls only the actuator, and only from launches: how long ago the last one
 * was tells when a hold may end. A polling loop must not flood the ring: a query is sent once it finds the work done,
 * or fails.
 */
static __always_inline u32 readers_of_return(u32 call, u32 flags, s32 result, bool told)
{
	if (is_query(call))
		return result == CUDA_ERROR_NOT_READY ? 0 : TO_ALL;
	if (is_launch(call))
		return told ? TO_ACTUATOR : 0;
	return flags & GS_FLAG_ASYNC ? 0 : TO_ALL;
}

static __always_inline int on_return(struct pt_regs *ctx)
{
	u64 cookie = attach_cookie(ctx);
	u32 call = GS_COOKIE_CALL(cookie), pid = current_pid(), readers;
	struct gs_managed *process = managed.lookup(&pid);
	struct gs_counters *own;
	struct gs_event event;

	if (!process || is_agent(process) || is_entry_only(call))
		return 0;
	if (process->class_ != GS_CLASS_LC) {
		on_return_of_job(pid, process, cookie, PT_REGS_RC(ctx));
		return 0;
	}
	readers = readers_of_return(call, GS_COOKIE_FLAGS(cookie), PT_REGS_RC(ctx), leave_cuda());
	if (!readers)
		return 0;
	describe(&event, GS_CUDA_RETURN, cookie);
	event.result = PT_REGS_RC(ctx);
	if (is_query(call))
		event.cuda.handle = remembered_query();
	own = is_launch(call) ? 0 : counters.lookup(&pid);
	if (own)
		interrupt_launches(own);
	send_call(&event, process, readers, GS_MANAGED_BURSTS | GS_MANAGED_ALL);
	return 0;
}

int cuda_enter(struct pt_regs *ctx)
{
	return on_enter(ctx);
}

int cuda_return(struct pt_regs *ctx)
{
	return on_return(ctx);
}

/*
 * Both in one where the kernel has uprobe sessions: 1 on the entry cancels the second trap, which only
 * latency-critical processes need, and jobs that take turns at what they wait in. At the entry the instruction
 * pointer is the function's.
 */
int cuda_session(struct pt_regs *ctx)
{
	if (func_ip(ctx) != PT_REGS_IP(ctx))
		return on_return(ctx);
	return on_enter(ctx) ? 0 : 1;
}
