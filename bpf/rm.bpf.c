/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
 *
 * What a process asks of the NVIDIA resource manager: ioctls of magic 'F'.
 *
 * Why the syscall tracepoints and not nvidia.ko's functions: those are not exported, change
 * with every release and need kprobes, which some kernels lack; the ioctl numbers and structs
 * are the driver's ABI (kernel-open/common/inc/nv-ioctl-numbers.h, nvos.h), the same from 535
 * to 595. Why not raw sys_enter: it runs for every system call of the machine. The structs are
 * read at exit, when the driver has written the handle and the status back.
 *
 * A process that nobody manages and that allocates an RM client becomes pending here, in the
 * kernel: the channel groups follow within milliseconds, before the daemon could react.
 */

#define NV_MAGIC 'F'
#define NV_ESC_RM_FREE 0x29
#define NV_ESC_RM_CONTROL 0x2a
#define NV_ESC_RM_ALLOC 0x2b
#define NV_ESC_RM_DUP_OBJECT 0x34
#define NV_ESC_XFER_CMD 211
#define NV01_ROOT 0x0
#define NV01_ROOT_CLIENT 0x41
#define CTRL_SET_TIMESLICE 0xa06c0103

struct nv_xfer { /* nv_ioctl_xfer_t */
	u32 nr;
	u32 size;
	u64 pointer;
};

struct nvos00 { /* RM_FREE */
	u32 root, parent, object, status;
};

struct nvos21 { /* RM_ALLOC, short form */
	u32 root, parent, object, class_;
	u64 parameters;
	u32 size, status;
};

struct nvos64 { /* RM_ALLOC, long form: nvos21's first 24 bytes, then other fields */
	u32 root, parent, object, class_;
	u64 parameters, rights;
	u32 size, flags, status, pad;
};

struct nvos54 { /* RM_CONTROL */
	u32 client, object, command, flags;
	u64 parameters;
	u32 size, status;
};

struct nvos55 { /* RM_DUP_OBJECT */
	u32 client, parent, object, source_client, source_object, flags, status;
};

struct rm_call {
	u64 pointer;
	u32 nr;
	u32 size;
	u32 fd;
	u32 pad;
};

/* Keyed by thread; LRU so that a thread killed inside its ioctl leaves nothing for ever. */
BPF_TABLE("lru_hash", u64, struct rm_call, rm_calls, 4096);

static __always_inline bool may_be_watched(u32 pid)
{
	return managed.lookup(&pid) || !ignored.lookup(&pid);
}

static __always_inline bool is_wanted(u32 nr)
{
	return nr == NV_ESC_RM_ALLOC || nr == NV_ESC_RM_FREE || nr == NV_ESC_RM_CONTROL || nr == NV_ESC_RM_DUP_OBJECT;
}

TRACEPOINT_PROBE(syscalls, sys_enter_ioctl)
{
	u32 command = args->cmd;
	u64 thread = bpf_get_current_pid_tgid();
	struct rm_call call = {.pointer = args->arg, .fd = args->fd};
	struct nv_xfer xfer = {};

	if (_IOC_TYPE(command) != NV_MAGIC || !may_be_watched(thread >> 32))
		return 0;
	call.nr = _IOC_NR(command);
	call.size = _IOC_SIZE(command);
	if (call.nr == NV_ESC_XFER_CMD) {
		if (bpf_probe_read_user(&xfer, sizeof(xfer), (void *)call.pointer))
			return 0;
		call.nr = xfer.nr;
		call.size = xfer.size;
		call.pointer = xfer.pointer;
	}
	if (is_wanted(call.nr))
		rm_calls.update(&thread, &call);
	return 0;
}

static __always_inline void submit_rm(struct gs_rm *rm, u16 kind, s32 result)
{
	struct gs_event *event = reserve_event(kind);

	if (!event)
		return;
	event->result = result;
	event->rm = *rm;
	events.ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

static __always_inline bool watch_new_client(u32 pid, u32 class_, s32 result)
{
	if (managed.lookup(&pid))
		return true;
	if (result || (class_ != NV01_ROOT && class_ != NV01_ROOT_CLIENT) || ignored.lookup(&pid))
		return false;
	return follow(pid, GS_CLASS_PENDING);
}

/* Constant sizes: newer compilers test for both at once, (size | 16) == 48, from which the verifier learns no bound. */
static __always_inline bool read_alloc(struct nvos64 *alloc, const struct rm_call *call)
{
	if (call->size == sizeof(struct nvos64))
		return !bpf_probe_read_user(alloc, sizeof(struct nvos64), (void *)call->pointer);
	return call->size == sizeof(struct nvos21) &&
	       !bpf_probe_read_user(alloc, sizeof(struct nvos21), (void *)call->pointer);
}

static __always_inline void on_alloc(struct rm_call *call, u32 pid, s32 error)
{
	struct nvos64 alloc = {};
	struct gs_rm rm = {.fd = call->fd};
	u32 first = 0;
	s32 result;

	if (!read_alloc(&alloc, call))
		return;
	result = error ?: call->size == sizeof(struct nvos64) ? alloc.status : ((struct nvos21 *)&alloc)->status;
	if (!watch_new_client(pid, alloc.class_, result))
		return;
	if (alloc.parameters)
		bpf_probe_read_user(&first, sizeof(first), (void *)alloc.parameters);
	rm.client = alloc.root;
	rm.parent = alloc.parent;
	rm.object = alloc.object;
	rm.code = alloc.class_;
	rm.value = first;
	submit_rm(&rm, GS_RM_ALLOC, result);
}

static __always_inline void on_free(struct rm_call *call, s32 error)
{
	struct nvos00 free = {};
	struct gs_rm rm = {.fd = call->fd};

	if (call->size != sizeof(free) || bpf_probe_read_user(&free, sizeof(free), (void *)call->pointer))
		return;
	rm.client = free.root;
	rm.parent = free.parent;
	rm.object = free.object;
	submit_rm(&rm, GS_RM_FREE, error ?: free.status);
}

static __always_inline void on_control(struct rm_call *call, s32 error)
{
	struct nvos54 control = {};
	struct gs_rm rm = {.fd = call->fd};

	if (call->size != sizeof(control) || bpf_probe_read_user(&control, sizeof(control), (void *)call->pointer))
		return;
	if (control.command != CTRL_SET_TIMESLICE)
		return;
	bpf_probe_read_user(&rm.value, sizeof(rm.value), (void *)control.parameters);
	rm.client = control.client;
	rm.object = control.object;
	rm.code = control.command;
	submit_rm(&rm, GS_RM_CONTROL, error ?: control.status);
}

static __always_inline void on_dup(struct rm_call *call, s32 error)
{
	struct nvos55 dup = {};
	struct gs_rm rm = {.fd = call->fd};

	if (call->size != sizeof(dup) || bpf_probe_read_user(&dup, sizeof(dup), (void *)call->pointer))
		return;
	rm.client = dup.client;
	rm.parent = dup.source_client;
	rm.object = dup.object;
	rm.code = dup.source_object;
	rm.value = dup.parent;
	submit_rm(&rm, GS_RM_DUP, error ?: dup.status);
}

/* A call that the kernel refused has no status: its errno stands in for it, negative as NV_STATUS never is. */
TRACEPOINT_PROBE(syscalls, sys_exit_ioctl)
{
	u64 thread = bpf_get_current_pid_tgid();
	u32 pid = thread >> 32;
	struct rm_call *found = rm_calls.lookup(&thread);
	struct rm_call call;
	s32 error = args->ret < 0 ? args->ret : 0;

	if (!found)
		return 0;
	call = *found;
	rm_calls.delete(&thread);
	if (call.nr == NV_ESC_RM_ALLOC) {
		on_alloc(&call, pid, error);
		return 0;
	}
	if (!managed.lookup(&pid))
		return 0;
	if (call.nr == NV_ESC_RM_FREE)
		on_free(&call, error);
	else if (call.nr == NV_ESC_RM_CONTROL)
		on_control(&call, error);
	else if (call.nr == NV_ESC_RM_DUP_OBJECT)
		on_dup(&call, error);
	return 0;
}
