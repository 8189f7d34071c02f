/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the driver calls: seven lines in nv.c, put there by gpsched-hooks.patch.
 *
 * None of these can fail the driver: if gpsched cannot start or cannot remember an object, the driver works on
 * without it and says so once in the kernel log or in the counters.
 */
#ifndef GPSCHED_H
#define GPSCHED_H

#include <linux/types.h>

bool gpsched_init(void);
void gpsched_exit(void);

/*
 * Before rm_ioctl(): a client that its owner is about to free leaves the registry first, and a control on it that is
 * under way is waited for. The RM itself looks clients up without a lock at the start of a control (_rmapiRmControl),
 * so a control on a client that is freed at that moment reads freed memory.
 */
void gpsched_ioctl_begins(const void *file, unsigned int cmd, const void *arg, size_t size);

/*
 * After rm_ioctl() returned: `file` names the open file (the address of its nvidia_file_private_t, never
 * dereferenced), `arg` is the kernel's copy of the parameters with the RM's answer in it. Holds no RM lock;
 * may be called with nv_system_pm_lock held for reading, so it never waits for a control.
 */
void gpsched_ioctl(const void *file, unsigned int cmd, const void *arg, size_t size);

/* Before rm_cleanup_file_private() frees every client of the file; waits for controls on them as above. */
void gpsched_close(const void *file);

#if !defined(GPSCHED_INTERNAL) && !defined(GPSCHED_COMPANION)
/* In nv.c. Not one more hunk: what stands before the call differs between releases. */
#include "nv.h"
#define rm_ioctl(stack, nv, file, cmd, arg, size)                                                                      \
	(gpsched_ioctl_begins(file, cmd, arg, size), rm_ioctl(stack, nv, file, cmd, arg, size))
#endif

#endif
