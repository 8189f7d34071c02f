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
	u64 args[6] = {PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx),
		       PT_REGS_PARM4(ctx), PT_REGS_PARM5(ctx), PT_REGS_PARM6(ctx)};

	if (number == 0)
		return 0;
	if (number == GS_ARG_LAUNCH_CONFIG)
		return launch_config_stream(ctx);
	if (number > 6)
		return stack_argument(ctx, number);
	return args[(number - 1) & 7];
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

static __always_inline void count_call(u32 pid, u32 call)
{
	struct gs_counters *own = counters.lookup(&pid);

	if (own && call < GS_CALL_COUNT)
		__sync_fetch_and_add(&own->calls[call], 1);
}

/* The entry of a query is not sent, so that its return must say what was asked for. */
static __always_inline void remember_query(u64 handle)
{
	struct thread *thread = current_thread();

	if (thread)
		thread->queried = handle;
}

static __always_inline u64 remembered_query(void)
{
	struct thread *thread = current_thread();

	return thread ? thread->queried : 0;
}

/* A query tells something only by its result, so its entry is counted and not sent. */
static __always_inline int on_enter(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);
	u32 call = GS_COOKIE_CALL(cookie);
	u32 pid = current_pid();
	struct gs_managed *process = latency_critical(pid);
	struct gs_event *event;

	count_call(pid, call);
	if (!process)
		return 0;
	if (is_query(call)) {
		remember_query(argument(ctx, GS_COOKIE_HANDLE(cookie)));
		return 0;
	}
	enter_cuda(!is_entry_only(call));
	event = reserve_event(GS_CUDA_ENTER);
	if (!event)
		return 0;
	event->call = call;
	event->flags = GS_COOKIE_FLAGS(cookie);
	event->cuda.handle = argument(ctx, GS_COOKIE_HANDLE(cookie));
	event->cuda.bytes = argument(ctx, GS_COOKIE_BYTES(cookie));
	submit_event(event, process);
	return 0;
}

/* A polling loop must not flood the ring: a query is sent once it finds the work done, or fails. */
static __always_inline int on_return(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);
	u32 call = GS_COOKIE_CALL(cookie);
	s32 result = PT_REGS_RC(ctx);
	struct gs_managed *process = latency_critical(current_pid());
	struct gs_event *event;

	if (!process || is_entry_only(call))
		return 0;
	leave_cuda();
	if (is_query(call) && result == CUDA_ERROR_NOT_READY)
		return 0;
	event = reserve_event(GS_CUDA_RETURN);
	if (!event)
		return 0;
	event->call = call;
	event->flags = GS_COOKIE_FLAGS(cookie);
	event->result = result;
	if (is_query(call))
		event->cuda.handle = remembered_query();
	submit_event(event, process);
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
 * Both in one where the kernel has uprobe sessions: 1 on the entry cancels the second trap, which
 * only latency-critical processes need. At the entry the instruction pointer is the function's.
 */
int cuda_session(struct pt_regs *ctx)
{
	if (bpf_get_func_ip(ctx) != PT_REGS_IP(ctx))
		return on_return(ctx);
	on_enter(ctx);
	if (is_entry_only(GS_COOKIE_CALL(bpf_get_attach_cookie(ctx))))
		return 1;
	return latency_critical(current_pid()) ? 0 : 1;
}
