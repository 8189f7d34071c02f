/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
 *
 * The life of managed processes: fork, exec, exit.
 *
 * Why task_newtask and not sched_process_fork: only the former tells a thread from a process
 * (clone_flags); both run before the child does, so that its first allocation is already seen.
 * Why sched_process_exit with signal->live and not the main thread's exit: a main thread may
 * leave its process running, and the last thread out ends it. Newer kernels say so themselves
 * (group_dead) but not with which code. Why not the proc connector: it is a second stream whose
 * order against our events is unknown, and it forgets the class.
 */

static __always_inline void submit_process(u16 kind, u32 pid, u32 parent, s32 result)
{
	struct gs_event *event = reserve_event(kind);

	if (!event)
		return;
	if (kind == GS_PROC_FORK)
		event->tid = pid;
	event->pid = pid;
	event->result = result;
	event->proc.parent = parent;
	bpf_get_current_comm(event->proc.comm, sizeof(event->proc.comm));
	events.ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

/* A child of a managed process has its parent's class from its first instruction on. */
TRACEPOINT_PROBE(task, task_newtask)
{
	u32 parent = current_pid();
	u32 child = args->pid;
	struct gs_managed *process;

	if (args->clone_flags & CLONE_THREAD)
		return 0;
	process = managed.lookup(&parent);
	if (process && follow(child, process->class_))
		submit_process(GS_PROC_FORK, child, parent, 0);
	return 0;
}

/* Another program under the same pid deserves another look: it is no longer ignored. */
TRACEPOINT_PROBE(sched, sched_process_exec)
{
	u32 pid = current_pid();

	ignored.delete(&pid);
	if (managed.lookup(&pid))
		submit_process(GS_PROC_EXEC, pid, 0, 0);
	return 0;
}

static __always_inline bool is_last_thread(u64 task)
{
	u64 signal = 0;
	s32 live = -1;

	bpf_probe_read_kernel(&signal, sizeof(signal), (void *)(task + GS_TASK_SIGNAL));
	bpf_probe_read_kernel(&live, sizeof(live), (void *)(signal + GS_SIGNAL_LIVE));
	return live == 0;
}

/* Two threads may both find that they are the last: the one that removes the entry sends the event. */
TRACEPOINT_PROBE(sched, sched_process_exit)
{
	u64 task = bpf_get_current_task();
	u32 pid = current_pid();
	s32 status = 0;

	if (!is_last_thread(task))
		return 0;
	ignored.delete(&pid);
	if (managed.delete(&pid))
		return 0;
	counters.delete(&pid);
	bpf_probe_read_kernel(&status, sizeof(status), (void *)(task + GS_TASK_EXIT_CODE));
	submit_process(GS_PROC_EXIT, pid, 0, status);
	return 0;
}
