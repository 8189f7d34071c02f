/* SPDX-License-Identifier: Apache-2.0 */
/* The few RM controls that a plan needs, issued on a copied descriptor; adaptive/driver has the same ABI in Python. */
#ifndef GPSCHED_RM_H
#define GPSCHED_RM_H

#include <stdbool.h>

#include "plan.h"

/* What the driver lets a best-effort group do. */
enum mode {
	MODE_ENABLED,
	MODE_UNSCHEDULED,
	MODE_DISABLED,
	MODE_UNKNOWN, /* a disable failed half-way, perhaps */
};

/* All return 0, an NV_STATUS (positive) or -errno. They ask again, a few times, while the driver says that it is busy.
 */
int rm_switch(int fd, const struct ga_group *group, enum mode mode);
int rm_preempt(int fd, const struct ga_group *group);
int rm_restart_runlist(int fd, const struct ga_group *group);
int rm_set_timeslice(int fd, const struct ga_group *group, __u64 us);

/* The group's handles, or their client, are no longer there. */
bool rm_is_gone(int status);

#endif
