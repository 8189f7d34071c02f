/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
 *
 * What may announce a burst: returns of system calls with which threads of latency-critical
 * processes read or wait. And the hint that a program gives itself: a uprobe on the empty function
 * of adaptive/hints/include/gpsched_hint.h.
 *
 * Why a tracepoint for each system call and not raw_syscalls: the latter runs for every system
 * call of the machine, and measured dearer even for those that are wanted. Attached only while
 * a latency-critical process is managed. The arguments come from the saved registers, so that
 * no entry is hooked and nothing is kept between entry and return.
 */

#define WINDOW_NS 100000000ull
#define WAKES_OF_SOURCE 200  /* in a window: a thread and kind; 2,000/s */
#define WAKES_OF_PROCESS 500 /* 5,000/s, so that a storm leaves the ring and the daemon to others */
#define UNRELATED_WAKES 16   /* futex wakes of a thread without a CUDA call in between */

#define FUTEX_COMMAND 0x7f
#define FUTEX_WAIT_COMMAND 0
#define FUTEX_WAIT_BITSET_COMMAND 9
#define URING_GETEVENTS 1
#define ETIMEDOUT_ERROR -110

/* All tracepoints syscalls/sys_exit_* have this layout. */
struct syscall_exit {
	u64 common;
	s64 number;
	s64 result;
};

/* One thread and kind of wake. */
struct source {
	u64 window;
	u32 used;
	u32 pad;
};

/* Keyed by tid << 32 | enum gs_wake, or GS_HINT. LRU, here and below, because the end of a thread is not followed. */
BPF_TABLE("lru_hash", u64, struct source, sources, 8192);

#define INSIDE 1
#define TOLD 2

struct thread {
	u32 unrelated; /* futex wakes since its last CUDA call */
	u32 inside;    /* of a CUDA call: INSIDE, TOLD */
	u64 queried;   /* stream or event of its last query */
};

BPF_TABLE("lru_hash", u32, struct thread, threads, 8192);

/* ---- budgets */

static __always_inline struct source *source_of(u32 tid, u32 kind)
{
	u64 key = (u64)tid << 32 | kind;
	struct source zero = {};

	return sources.lookup_or_try_init(&key, &zero);
}

static __always_inline struct thread *thread_of(u32 tid)
{
	struct thread zero = {};

	return threads.lookup_or_try_init(&tid, &zero);
}

/* A call whose return will be seen. `told`: the actuator is told of its entry. */
static __always_inline void enter_cuda(bool told)
{
	struct thread *thread = thread_of(bpf_get_current_pid_tgid());

	if (!thread)
		return;
	thread->unrelated = 0;
	thread->inside = told ? INSIDE | TOLD : INSIDE;
}

/* Returns what `enter_cuda` was given. */
static __always_inline bool leave_cuda(void)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct thread *thread = threads.lookup(&tid);
	bool told = thread && thread->inside & TOLD;

	if (thread)
		thread->inside = 0;
	return told;
}

/* What the driver's library waits for is no request, and most threads that wait for each other never use the GPU. */
static __always_inline bool is_unrelated(u32 tid, bool by_futex)
{
	struct thread *thread = thread_of(tid);

	return !thread || thread->inside || (by_futex && ++thread->unrelated > UNRELATED_WAKES);
}

/* Races of threads let a few more through at the change of a window. */
static __always_inline bool is_within_budget(struct source *source, struct gs_counters *process)
{
	u64 window = bpf_ktime_get_ns() / WINDOW_NS;

	if (source->window != window) {
		source->window = window;
		source->used = 0;
	}
	if (process->window != window) {
		process->window = window;
		process->used = 0;
	}
	if (source->used >= WAKES_OF_SOURCE || process->used >= WAKES_OF_PROCESS)
		return false;
	source->used++;
	__sync_fetch_and_add(&process->used, 1);
	return true;
}

/* Nobody waits for the wakes of a server's other processes; what its own says of its first burst is no loss. */
static __always_inline bool has_launched(const struct gs_counters *process)
{
	return process->calls[GS_CALL_LAUNCH] || process->calls[GS_CALL_GRAPH_LAUNCH];
}

static __always_inline bool may_send(u32 pid, u32 tid, u32 kind, bool by_futex)
{
	struct gs_counters *process = counters.lookup(&pid);
	struct source *source;

	if (!process)
		return false;
	if (kind != GS_HINT && !has_launched(process)) {
		__sync_fetch_and_add(&process->unrelated, 1);
		return false;
	}
	source = source_of(tid, by_futex ? GS_WAKE_FUTEX : kind);
	if (!source)
		return false;
	if (is_unrelated(tid, by_futex)) {
		__sync_fetch_and_add(&process->unrelated, 1);
		return false;
	}
	if (!is_within_budget(source, process)) {
		__sync_fetch_and_add(&process->throttled, 1);
		return false;
	}
	__sync_fetch_and_add(&process->wakes, 1);
	interrupt_launches(process);
	return true;
}

static __always_inline void send_wake(struct gs_managed *process, u32 kind, u64 handle, u64 bytes, s32 result)
{
	struct gs_event *event = reserve_event(GS_WAKE);

	learn_place_of_registers();
	if (!event)
		return;
	event->call = kind;
	event->result = result;
	event->wake.handle = handle;
	event->wake.bytes = bytes;
	submit_event(event, process, GS_MANAGED_ALL);
}

static __always_inline bool current_may_send(u32 kind, bool by_futex)
{
	u64 id = bpf_get_current_pid_tgid();

	return may_send(id >> 32, id, kind, by_futex);
}

static __always_inline void wake(struct gs_managed *process, u32 kind, u64 handle, u64 bytes, s32 result)
{
	if (current_may_send(kind, false))
		send_wake(process, kind, handle, bytes, result);
}

/* ---- system calls; descriptors are ints, whatever the upper half of the register holds */

int wake_read(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());
	u32 descriptor, kind;

	if (!process || ctx->result <= 0)
		return 0;
	descriptor = syscall_argument(0);
	kind = kind_of(bpf_get_current_task(), descriptor);
	if (kind)
		wake(process, kind, descriptor, ctx->result, ctx->result);
	return 0;
}

int wake_receive(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());

	if (process && ctx->result > 0)
		wake(process, GS_WAKE_SOCKET_READ, (u32)syscall_argument(0), ctx->result, ctx->result);
	return 0;
}

/* Several messages at once (recvmmsg): how many bytes is in the program's memory, the count is no size. */
int wake_receive_many(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());

	if (process && ctx->result > 0)
		wake(process, GS_WAKE_SOCKET_READ, (u32)syscall_argument(0), 0, ctx->result);
	return 0;
}

int wake_accept(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());

	if (process && ctx->result >= 0)
		wake(process, GS_WAKE_ACCEPT, (u32)syscall_argument(0), 0, ctx->result);
	return 0;
}

/* The time limit is an int of milliseconds; 0 only looks. */
int wake_epoll(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());

	if (!process || ctx->result < 0)
		return 0;
	if (ctx->result > 0)
		wake(process, GS_WAKE_EPOLL, (u32)syscall_argument(0), 0, ctx->result);
	else if ((s32)syscall_argument(3) > 0)
		wake(process, GS_WAKE_SLEEP, (u32)syscall_argument(0), 0, 0);
	return 0;
}

/* Its time limit is a struct in the program's memory: an elapsed one is not told from a look. */
int wake_epoll_pwait2(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());

	if (process && ctx->result > 0)
		wake(process, GS_WAKE_EPOLL, (u32)syscall_argument(0), 0, ctx->result);
	return 0;
}

int wake_poll(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());

	if (!process || ctx->result < 0)
		return 0;
	if (ctx->result > 0)
		wake(process, GS_WAKE_EPOLL, GS_UNKNOWN, 0, ctx->result);
	else if ((s32)syscall_argument(2) > 0)
		wake(process, GS_WAKE_SLEEP, GS_UNKNOWN, 0, 0);
	return 0;
}

/* ppoll, select, pselect6: what was left of their time limit is written over it, so an elapsed one tells nothing. */
int wake_select(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());

	if (process && ctx->result > 0)
		wake(process, GS_WAKE_EPOLL, GS_UNKNOWN, 0, ctx->result);
	return 0;
}

int wake_uring(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());

	if (!process || ctx->result < 0 || !(u32)syscall_argument(2) || !(syscall_argument(3) & URING_GETEVENTS))
		return 0;
	wake(process, GS_WAKE_EPOLL, (u32)syscall_argument(0), 0, ctx->result);
	return 0;
}

int wake_sleep(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());

	if (process && ctx->result == 0)
		wake(process, GS_WAKE_SLEEP, GS_UNKNOWN, 0, 0);
	return 0;
}

/* A condition that reaches its time limit is how batching queues close a batch: as good as a sleep. */
int wake_futex(struct syscall_exit *ctx)
{
	struct gs_managed *process = latency_critical(current_pid());
	u32 kind = ctx->result == 0 ? GS_WAKE_FUTEX : GS_WAKE_SLEEP;
	u32 command;

	if (!process || (ctx->result != 0 && ctx->result != ETIMEDOUT_ERROR))
		return 0;
	command = syscall_argument(1) & FUTEX_COMMAND;
	if (command != FUTEX_WAIT_COMMAND && command != FUTEX_WAIT_BITSET_COMMAND)
		return 0;
	if (current_may_send(kind, true))
		send_wake(process, kind, GS_UNKNOWN, 0, ctx->result);
	return 0;
}

/* gpsched_hint(what, us), within the same budget. */
int hint_enter(struct pt_regs *ctx)
{
	u32 hint = PT_REGS_PARM1(ctx);
	u64 in_us = PT_REGS_PARM2(ctx);
	struct gs_managed *process;
	struct gs_event *event;

	if (hint != GS_HINT_RESERVE && hint != GS_HINT_CANCEL)
		return 0;
	process = latency_critical(current_pid());
	if (!process || !current_may_send(GS_HINT, false))
		return 0;
	event = reserve_event(GS_HINT);
	if (!event)
		return 0;
	event->call = hint;
	event->hint.in_us = in_us;
	submit_event(event, process, GS_MANAGED_ALL);
	return 0;
}
