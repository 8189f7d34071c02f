// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Start, end, and the two hooks in the driver: decodes the parameters that the RM has answered and tells the registry.
 */
#include <linux/module.h>
#include <linux/uaccess.h>

#define GPSCHED_INTERNAL
#include "gpsched.h"
#include "internal.h"

static bool running;

static bool gpsched = true; /* read it to see whether gpsched runs; nvidia.gpsched=0 loads the driver without it */
module_param(gpsched, bool, 0444);
MODULE_PARM_DESC(gpsched, "Run gpsched's control plane (default: yes)");

/* The parameters behind a pointer. The process may lie in them, but only about itself. */
static bool read_user(void *to, u64 from, size_t size)
{
#ifdef GPSCHED_COMPANION /* a probe may not sleep */
	return !copy_from_user_nofault(to, u64_to_user_ptr(from), size);
#else
	return !copy_from_user(to, u64_to_user_ptr(from), size);
#endif
}

static void allocated(const void *file, const void *arg, size_t size)
{
	const struct gs_nvos21 *small = arg;
	const struct gs_nvos64 *large = arg;
	u32 status, value = 0;
	bool believed;

	if (size != sizeof(*small) && size != sizeof(*large))
		return;
	status = size == sizeof(*small) ? small->status : large->status;
	believed = status && gs_test_believes(small->class_, status);
	if (status && !believed)
		return;
	/* NV0080_ALLOC_PARAMETERS begins with the device instance; without parameters it is 0. */
	if (small->class_ == GS_CLASS_DEVICE && small->params && !read_user(&value, small->params, sizeof(value)))
		value = 0;
	gs_object_added(file, small->client, small->parent, small->object, small->class_, value, believed);
}

static void controlled(const struct gs_nvos54 *control)
{
	u64 us;

	if (control->cmd != GS_RM_SET_TIMESLICE || control->params_size != sizeof(us))
		return;
	if (control->status && !gs_test_believes(GS_CLASS_GROUP, control->status))
		return;
	if (read_user(&us, control->params, sizeof(us)))
		gs_owner_set_timeslice(control->client, control->object, clamp_t(u64, us, 1, GS_MAX_TIMESLICE_US));
}

void gpsched_ioctl_begins(const void *file, unsigned int cmd, const void *arg, size_t size)
{
	const struct gs_nvos00 *freed = arg;

	if (!READ_ONCE(running) || cmd != GS_ESC_RM_FREE || size != sizeof(*freed) || freed->object != freed->client)
		return;
	if (gs_client_ends(file, freed->client))
		gs_gate_wait();
}

void gpsched_ioctl(const void *file, unsigned int cmd, const void *arg, size_t size)
{
	const struct gs_nvos00 *freed = arg;
	const struct gs_nvos55 *dup = arg;

	if (!READ_ONCE(running))
		return;
	switch (cmd) {
	case GS_ESC_RM_ALLOC:
		allocated(file, arg, size);
		break;
	case GS_ESC_RM_FREE:
		if (size == sizeof(*freed) && (!freed->status || gs_test_believes(GS_CLASS_GROUP, freed->status)))
			gs_object_freed(freed->client, freed->object);
		break;
	case GS_ESC_RM_DUP:
		if (size == sizeof(*dup) && (!dup->status || gs_test_believes(GS_CLASS_GROUP, dup->status)))
			gs_object_duplicated(dup);
		break;
	case GS_ESC_RM_CONTROL:
		if (size == sizeof(struct gs_nvos54))
			controlled(arg);
		break;
	}
}

void gpsched_close(const void *file)
{
	if (READ_ONCE(running) && gs_file_closed(file))
		gs_gate_wait();
}

bool gpsched_init(void)
{
	int error;

	if (!gpsched) {
		pr_info("switched off by the module parameter\n");
		return false;
	}
	error = gs_control_init();
	if (!error) {
		gs_test_init();
		if (gs_kfunc_init())
			pr_info("no BPF calls on this kernel\n");
		error = gs_netlink_init();
		if (error) {
			gs_test_exit();
			gs_control_exit();
		}
	}
	if (error) {
		pr_err("not started (%d); the driver works without it\n", error);
		gpsched = false;
		return false;
	}
	WRITE_ONCE(running, true);
	pr_info("ready%s\n", gs_kfuncs_registered ? ", with BPF calls" : "");
	return true;
}

void gpsched_exit(void)
{
	if (!running)
		return;
	WRITE_ONCE(running, false);
	gs_netlink_exit();
	gs_plan_exit();
	gs_control_exit();
	gs_registry_exit();
	gs_test_exit();
	if (atomic64_read(&gs_counters[GS_COUNT_ALLOCATED]))
		pr_warn("%lld records leaked\n", atomic64_read(&gs_counters[GS_COUNT_ALLOCATED]));
}
