/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
 *
 * The maps that every program shares, and the one way an event leaves the kernel.
 * The programs are compiled as one module (this file and waits.h, then wake, waking, pause, cuda, rm and process),
 * because they filter by the same map of processes and write to the same ring buffer: one module is one compilation and
 * the order of a process's events is the order in which they happened.
 *
 * Compile-time settings: GS_RING_PAGES, GS_FAST_PAGES, GS_MAX_PROCESSES, and the offsets of fields of kernel structs
 * (adaptive/probes/kernel.py), taken from the running kernel's BTF because the headers may be of another version.
 */
#include <uapi/linux/ptrace.h>
#include <uapi/linux/sched.h>
#include <uapi/asm-generic/ioctl.h>
#include <asm/unistd.h>

#define PACE_NS 100000000ull

BPF_RINGBUF_OUTPUT(events, GS_RING_PAGES);
/* A ring buffer has one reader, and the actuator must not wait for the daemon: it has a small one of its own. */
BPF_RINGBUF_OUTPUT(fast, GS_FAST_PAGES);
BPF_HASH(managed, u32, struct gs_managed, GS_MAX_PROCESSES);
BPF_HASH(counters, u32, struct gs_counters, GS_MAX_PROCESSES);
BPF_PERCPU_ARRAY(lost, u64, GS_LOST_COUNT);

/* When the daemon was last woken for what can wait. */
BPF_ARRAY(woken, u64, 1);

/* Processes the daemon does not want: their next RM client does not make them pending again. */
BPF_TABLE("lru_hash", u32, u32, ignored, GS_MAX_PROCESSES);

/* Helpers of Linux 5.15 that bcc of Ubuntu 22.04 (0.18) does not declare; their numbers: include/uapi/linux/bpf.h. */
static u64 (*func_ip)(void *ctx) = (void *)173;
static u64 (*attach_cookie)(void *ctx) = (void *)174;
static long (*task_registers)(struct task_struct *task) = (void *)175;

/*
 * Newer compilers test one copy of a value and use another, computed anew, of which the verifier then knows no bound.
 * Whoever bounds an index ties it to one register first.
 */
#define tie(value) asm volatile("" : "+r"(value))

static __always_inline u32 current_pid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

/* What the hold agent does is our own doing. */
static __always_inline bool is_agent(const struct gs_managed *process)
{
	return process->agent && process->agent == (u32)bpf_get_current_pid_tgid();
}

static __always_inline struct gs_managed *latency_critical(u32 pid)
{
	struct gs_managed *process = managed.lookup(&pid);

	return process && process->class_ == GS_CLASS_LC && !is_agent(process) ? process : 0;
}

static __always_inline void count_lost(u32 what)
{
	u64 *count = lost.lookup(&what);

	if (count)
		*count += 1;
}

static __always_inline struct gs_event *reserve_event(u16 kind)
{
	struct gs_event *event = events.ringbuf_reserve(sizeof(struct gs_event));
	u64 id = bpf_get_current_pid_tgid();

	if (!event) {
		count_lost(GS_LOST_EVENTS);
		return 0;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->time_ns = bpf_ktime_get_ns();
	event->pid = id >> 32;
	event->tid = id;
	event->kind = kind;
	return event;
}

/* The next launch is news again: something else happened. */
static __always_inline void interrupt_launches(struct gs_counters *own)
{
	own->told_ns = 0;
}

static __always_inline bool follow(u32 pid, u32 class_)
{
	struct gs_managed value = {.class_ = class_};
	struct gs_counters zero = {};

	if (counters.update(&pid, &zero) || managed.update(&pid, &value)) {
		counters.delete(&pid);
		count_lost(GS_LOST_PROCESSES);
		return false;
	}
	return true;
}

/*
 * The daemon learns as well from a batch, and waking it for every call of a service would cost more than all else that
 * it does: so it is woken at a pace, except where it asked for events with one of the flags `at_once`. The kernel's own
 * rule (wake a reader that has read all) would let one that nobody waits for keep back those behind it.
 */
static __always_inline u64 wake_up(u64 now, const struct gs_managed *process, u32 at_once)
{
	u32 zero = 0;
	u64 *last = woken.lookup(&zero);

	if (process->flags & at_once)
		return BPF_RB_FORCE_WAKEUP;
	if (!last || now - *last < PACE_NS)
		return BPF_RB_NO_WAKEUP;
	*last = now;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline bool is_for_actuator(const struct gs_event *event, const struct gs_managed *process)
{
	u32 kind = event->call & 31;

	return process->flags & GS_MANAGED_FAST && (event->kind != GS_WAKE || process->wakes >> kind & 1);
}

/* The actuator's copy goes first: it is the one in a hurry. */
static __always_inline void submit_event(struct gs_event *event, const struct gs_managed *process, u32 at_once)
{
	if (is_for_actuator(event, process) && fast.ringbuf_output(event, sizeof(*event), 0))
		count_lost(GS_LOST_FAST);
	if (process->flags & GS_MANAGED_RESTING && event->kind == GS_WAKE)
		events.ringbuf_discard(event, BPF_RB_NO_WAKEUP);
	else
		events.ringbuf_submit(event, wake_up(event->time_ns, process, at_once));
}
