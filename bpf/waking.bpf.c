/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
 *
 * That threads of latency-critical processes are being woken out of what they wait in. They come back 30 to 200 us
 * later, when their CPUs are awake; the actuator wakes meanwhile, not after it.
 *
 * A raw tracepoint, since it runs for every wake-up of the machine. Attached only while a latency-critical process is
 * managed.
 */

static __always_inline u32 number_at(u64 address)
{
	u32 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), (void *)address);
	return number;
}

/* Whoever wakes it is current, often an interrupt: the process is the task's. */
int wake_waking(struct bpf_raw_tracepoint_args *ctx)
{
	u64 task = ctx->args[0];
	u32 pid = number_at(task + GS_TASK_TGID);
	struct gs_managed *process = managed.lookup(&pid);
	struct gs_event *event;
	struct waiting in;
	u32 tid;

	if (!process || process->class_ != GS_CLASS_LC)
		return 0;
	tid = number_at(task + GS_TASK_PID);
	in = waiting_in(task);
	if (tid == process->agent || !in.kind || !may_send(pid, tid, in.kind | GS_WAKING, false))
		return 0;
	event = reserve_event(GS_WAKE);
	if (!event)
		return 0;
	event->pid = pid;
	event->tid = tid;
	event->call = in.kind | GS_WAKING;
	event->wake.handle = in.handle;
	submit_event(event, process, GS_MANAGED_ALL);
	return 0;
}
