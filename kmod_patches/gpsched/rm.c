// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * RM controls from inside nvidia.ko, with kernel privilege. Files of the driver that this relies on: nv-linux.h
 * (stacks, nv_system_pm_lock), nv.h (rm_kernel_rmapi_op).
 *
 * The power-management lock is only tried: while the driver is suspended or being suspended its writer may own it for
 * long, and waiting for it here would keep the system from freezing its tasks. The caller gets GS_RM_SUSPENDED.
 */
#include "os-interface.h"
#include "nv-linux.h"

#include "internal.h"

u32 gs_rm_control(u32 client, u32 object, u32 cmd, void *params, u32 size)
{
	struct gs_kernel_op op = gs_kernel_control(client, object, cmd, params, size);
	nvidia_stack_t *stack = NULL;

	might_sleep();
	if (nv_kmem_cache_alloc_stack(&stack))
		return GS_RM_SUSPENDED; /* no memory: as good a reason to try later */
	if (!down_read_trylock(&nv_system_pm_lock)) {
		nv_kmem_cache_free_stack(stack);
		return GS_RM_SUSPENDED;
	}
	rm_kernel_rmapi_op(stack, &op);
	up_read(&nv_system_pm_lock);
	nv_kmem_cache_free_stack(stack);
	return op.control.status;
}

const char *gs_driver_version(void)
{
	return NV_VERSION_STRING;
}

u32 gs_rm_features(void)
{
	return 0;
}
