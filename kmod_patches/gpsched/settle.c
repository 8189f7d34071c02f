// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Making the driver agree with the holds: which RM controls it takes, in as few calls as possible.
 *
 * Whoever changes holds marks the groups and calls gs_settle(). A control that fails is tried again by the watchdog.
 * All of it with gs_control_mutex.
 */
#include <linux/jiffies.h>

#include "internal.h"

#define RETRY_MS 1000

static struct gs_names names; /* too large for the stack; under the mutex */

DECLARE_RWSEM(gs_gate);

bool gs_status_gone(u32 status)
{
	switch (status) {
	case 0x21: /* INVALID_CHANNEL */
	case 0x23: /* INVALID_CLIENT */
	case 0x31: /* INVALID_OBJECT */
	case 0x33: /* INVALID_OBJECT_HANDLE */
	case 0x36: /* INVALID_OBJECT_PARENT */
	case 0x57: /* OBJECT_NOT_FOUND */
	case 0x6e: /* RESOURCE_LOST */
		return true;
	}
	return false;
}

int gs_errno(u32 status)
{
	if (status == GS_NV_OK)
		return 0;
	if (status == GS_RM_SUSPENDED)
		return -EAGAIN;
	if (gs_status_gone(status))
		return -ESRCH;
	switch (status) {
	case 0x1b: /* INSUFFICIENT_PERMISSIONS */
		return -EACCES;
	case 0x56: /* NOT_SUPPORTED */
		return -EOPNOTSUPP;
	case 0x65: /* TIMEOUT */
		return -ETIMEDOUT;
	case GS_NV_ERR_INVALID_DEVICE:
		return -ENODEV;
	}
	return -EIO;
}

u32 gs_issue(u32 client, u32 object, u32 cmd, void *params, u32 size)
{
	u32 status;

	lockdep_assert_held(&gs_control_mutex);
	status = gs_rm_control(client, object, cmd, params, size);
	if (status != GS_RM_SUSPENDED)
		status = gs_test_control(client, object, cmd, params, size, status);
	gs_count(GS_COUNT_CONTROLS, 1);
	if (status)
		gs_count(GS_COUNT_FAILED, 1);
	return status;
}

/* ---- one group's timeslice and interleave level ---- */

static u32 read_word(struct gs_group *group, enum gs_field field, u32 *value)
{
	struct gs_rm_timeslice slice = {0};
	u32 level = 0, status;

	if (!gs_group_names(group, 0, &names))
		return GS_NV_ERR_OBJECT_NOT_FOUND;
	if (field == GS_FIELD_TIMESLICE) {
		status = gs_issue(names.client, names.handle, GS_RM_GET_TIMESLICE, &slice, sizeof(slice));
		*value = min_t(u64, slice.us, U32_MAX);
		return status;
	}
	status = gs_issue(names.client, names.handle, GS_RM_GET_INTERLEAVE, &level, sizeof(level));
	*value = level;
	return status;
}

u32 gs_read_timeslice(struct gs_group *group, u64 *us)
{
	u32 value = 0, status;

	down_read(&gs_gate);
	status = read_word(group, GS_FIELD_TIMESLICE, &value);
	up_read(&gs_gate);
	*us = value;
	return status;
}

static u32 write_names(enum gs_field field, u32 value)
{
	struct gs_rm_timeslice slice = {.us = value};

	if (field == GS_FIELD_TIMESLICE)
		return gs_issue(names.client, names.handle, GS_RM_SET_TIMESLICE, &slice, sizeof(slice));
	return gs_issue(names.client, names.handle, GS_RM_SET_INTERLEAVE, &value, sizeof(value));
}

static u32 write_word(struct gs_group *group, enum gs_field field, u32 value)
{
	u32 status;

	if (!gs_group_names(group, 0, &names))
		return GS_NV_ERR_OBJECT_NOT_FOUND;
	status = write_names(field, value);
	/* It died meanwhile, and the handle may already name another group: that one gets back what was there. */
	if (!status && READ_ONCE(group->dead))
		write_names(field, group->setting[field].original);
	return status;
}

u32 gs_wanted(struct gs_setting *setting)
{
	struct gs_hold *newest = list_first_entry_or_null(&setting->holds, struct gs_hold, in_setting);

	return newest ? newest->value : setting->original;
}

static u32 settle_word(struct gs_group *group, enum gs_field field)
{
	struct gs_setting *setting = &group->setting[field];
	u32 status;

	if (!setting->known) {
		if (list_empty(&setting->holds))
			return GS_NV_OK;
		status = read_word(group, field, &setting->original);
		if (status)
			return status;
		setting->applied = setting->original;
		setting->known = true;
	}
	if (setting->applied == gs_wanted(setting) && !setting->stale)
		return GS_NV_OK;
	status = write_word(group, field, gs_wanted(setting));
	if (status)
		return status;
	setting->applied = gs_wanted(setting);
	setting->stale = false;
	return GS_NV_OK;
}

/* ---- what has no lasting effect ---- */

static u32 preempt(struct gs_group *group, u32 timeout_us)
{
	struct gs_rm_preempt params = {
	    .wait = timeout_us != 0,
	    .manual_timeout = timeout_us != 0,
	    .timeout_us = timeout_us,
	};

	if (!gs_group_names(group, 0, &names))
		return GS_NV_ERR_OBJECT_NOT_FOUND;
	return gs_issue(names.client, names.handle, GS_RM_PREEMPT, &params, sizeof(params));
}

static u32 restart(struct gs_group *group, u32 value)
{
	struct gs_rm_restart params = {
	    .force = (value & GS_RESTART_FORCE) != 0,
	    .bypass_wait = (value & GS_RESTART_WAIT) == 0,
	};

	if (!gs_group_names(group, 0, &names) || !names.channels)
		return GS_NV_ERR_OBJECT_NOT_FOUND;
	return gs_issue(names.channel_client[0], names.channel[0], GS_RM_RESTART_RUNLIST, &params, sizeof(params));
}

u32 gs_preempt(struct gs_group *group, u32 timeout_us)
{
	u32 status;

	down_read(&gs_gate);
	status = preempt(group, timeout_us);
	up_read(&gs_gate);
	return status;
}

u32 gs_restart(struct gs_group *group, u32 value)
{
	u32 status;

	down_read(&gs_gate);
	status = restart(group, value);
	up_read(&gs_gate);
	return status;
}

/* ---- making the driver agree with the holds ---- */

void gs_mark(struct list_head *dirty, struct gs_group *group, enum gs_field field)
{
	if (!group->dirty_fields) {
		refcount_inc(&group->refs);
		list_add_tail(&group->dirty, dirty);
	}
	group->dirty_fields |= BIT(field);
}

static void conclude(struct gs_group *group, enum gs_field field)
{
	struct gs_setting *setting = &group->setting[field];

	if (!setting->status && list_empty(&setting->holds))
		setting->known = false;
	if (!setting->status || READ_ONCE(group->dead))
		return;
	if (gs_status_gone(setting->status)) {
		if (field != GS_FIELD_DISABLED) /* there the answer may be about another object */
			gs_group_forget(group);
		return;
	}
	if (setting->applied == gs_wanted(setting) && !setting->stale)
		return;
	if (list_empty(&setting->holds)) /* not a change that was refused, but one that is to be given back */
		pr_warn_ratelimited(
		    "process %u, group %llu: setting %d is %u and should be %u (NV_STATUS %#x); trying again\n",
		    group->pid, group->id, field, setting->applied, gs_wanted(setting), setting->status);
	gs_want_attention(group);
	gs_check_by(jiffies + msecs_to_jiffies(RETRY_MS));
}

void gs_settle(struct list_head *dirty)
{
	struct gs_group *group, *next;
	u32 value;
	int field;

	down_read(&gs_gate);
	list_for_each_entry(group, dirty, dirty)
		group->setting[GS_FIELD_DISABLED].status = GS_NV_OK;
	for (value = 0; value <= GS_DISABLED_SCHEDULING; value++)
		gs_settle_disabled(dirty, value);
	list_for_each_entry(group, dirty, dirty)
		for (field = GS_FIELD_TIMESLICE; field <= GS_FIELD_INTERLEAVE; field++)
			if (group->dirty_fields & BIT(field))
				group->setting[field].status = settle_word(group, field);
	up_read(&gs_gate);
	list_for_each_entry_safe(group, next, dirty, dirty) {
		for (field = 0; field < GS_FIELDS; field++)
			if (group->dirty_fields & BIT(field))
				conclude(group, field);
		group->dirty_fields = 0;
		list_del_init(&group->dirty);
		gs_group_put(group);
	}
}
