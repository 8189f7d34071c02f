// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The companion: the same netlink family beside a driver that is not patched. A kretprobe on rm_ioctl() and a kprobe
 * on rm_cleanup_file_private() stand for the hooks, nvidia_get_rm_ops() (nv-modeset-interface.h) for the way to the RM.
 * It sees only clients that were opened after it was loaded, and depends on two symbols that NVIDIA promises to nobody:
 * the patch is better wherever the driver can be rebuilt.
 *
 * set_callbacks is never called: nvidia-modeset owns the one slot.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/suspend.h>

#include "gpsched.h"
#include "internal.h"

struct modeset_ops { /* nvidia_modeset_rm_ops_t, the same from 535 to 595 */
	const char *version_string;
	struct {
		u8 allow_write_combining;
	} system_info;
	int (*alloc_stack)(void **stack);
	void (*free_stack)(void *stack);
	u32 (*enumerate_gpus)(void *info);
	int (*open_gpu)(u32 gpu, void *stack);
	void (*close_gpu)(u32 gpu, void *stack);
	void (*op)(void *stack, void *op);
	int (*set_callbacks)(const void *callbacks);
};

extern u32 nvidia_get_rm_ops(struct modeset_ops *ops);

struct call {
	const void *file, *arg;
	unsigned int cmd;
	size_t size;
};

static struct modeset_ops ops;
static bool suspended; /* under gs_control_mutex, which is owned around every control */

u32 gs_rm_control(u32 client, u32 object, u32 cmd, void *params, u32 size)
{
	struct gs_kernel_op op = gs_kernel_control(client, object, cmd, params, size);
	void *stack = NULL;

	might_sleep();
	lockdep_assert_held(&gs_control_mutex);
	if (suspended || ops.alloc_stack(&stack))
		return GS_RM_SUSPENDED;
	ops.op(stack, &op);
	ops.free_stack(stack);
	return op.control.status;
}

const char *gs_driver_version(void)
{
	return ops.version_string;
}

u32 gs_rm_features(void)
{
	return GS_FEATURE_COMPANION;
}

/* nv_system_pm_lock is not exported: stop before the tasks are frozen, go on after they are thawed. */
static int power_changes(struct notifier_block *block, unsigned long event, void *data)
{
	bool stop = event == PM_SUSPEND_PREPARE || event == PM_HIBERNATION_PREPARE;

	if (stop || event == PM_POST_SUSPEND || event == PM_POST_HIBERNATION) {
		mutex_lock(&gs_control_mutex);
		suspended = stop;
		mutex_unlock(&gs_control_mutex);
	}
	return NOTIFY_DONE;
}

static struct notifier_block power = {.notifier_call = power_changes};

/* rm_ioctl(sp, nv, nvfp, cmd, arg, size) */
static int ioctl_begins(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct call *call = (struct call *)instance->data;

	call->cmd = regs_get_kernel_argument(regs, 3);
	switch (call->cmd) {
	case GS_ESC_RM_ALLOC:
	case GS_ESC_RM_FREE:
	case GS_ESC_RM_DUP:
	case GS_ESC_RM_CONTROL:
		call->file = (const void *)regs_get_kernel_argument(regs, 2);
		call->arg = (const void *)regs_get_kernel_argument(regs, 4);
		call->size = (u32)regs_get_kernel_argument(regs, 5);
		return 0;
	}
	return 1; /* no need to see the return */
}

static int ioctl_ends(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	const struct call *call = (const struct call *)instance->data;

	gpsched_ioctl(call->file, call->cmd, call->arg, call->size);
	return 0;
}

/* rm_cleanup_file_private(sp, nv, nvfp) */
static int file_closes(struct kprobe *probe, struct pt_regs *regs)
{
	gpsched_close((const void *)regs_get_kernel_argument(regs, 2));
	return 0;
}

static struct kretprobe ioctl_probe = {
    .kp.symbol_name = "rm_ioctl",
    .entry_handler = ioctl_begins,
    .handler = ioctl_ends,
    .data_size = sizeof(struct call),
    .maxactive = 512, /* calls that sleep in the RM at once; one too many is an object lost */
};

static struct kprobe close_probe = {
    .symbol_name = "rm_cleanup_file_private",
    .pre_handler = file_closes,
};

/* It compares the version and, when that differs, only tells its own: so ask twice. */
static int connect(void)
{
	ops.version_string = "";
	if (nvidia_get_rm_ops(&ops) && nvidia_get_rm_ops(&ops))
		return -ENODEV;
	return ops.alloc_stack && ops.free_stack && ops.op ? 0 : -ENODEV;
}

static int attach(void)
{
	int error = register_kprobe(&close_probe);

	if (error)
		return error;
	error = register_kretprobe(&ioctl_probe);
	if (error)
		unregister_kprobe(&close_probe);
	return error;
}

static int __init companion_init(void)
{
	int error = connect();

	if (error) {
		pr_err("the driver does not give its RM interface; is it 535 or newer, with open kernel modules?\n");
		return error;
	}
	if (!gpsched_init())
		return -ENODEV;
	error = attach();
	if (error) {
		pr_err("cannot probe the driver (%d); this kernel or driver needs the patch instead\n", error);
		gpsched_exit();
		return error;
	}
	register_pm_notifier(&power);
	pr_info("companion of driver %s\n", ops.version_string);
	return 0;
}

static void __exit companion_exit(void)
{
	unregister_pm_notifier(&power);
	unregister_kretprobe(&ioctl_probe);
	unregister_kprobe(&close_probe);
	if (ioctl_probe.nmissed)
		pr_warn("%d calls were missed\n", ioctl_probe.nmissed);
	gpsched_exit();
}

module_init(companion_init);
module_exit(companion_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("gpsched's control plane beside an unpatched NVIDIA driver");
MODULE_VERSION("1");
