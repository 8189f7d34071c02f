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

/* One batch for FIFO_DISABLE_CHANNELS; too large for the stack. Under the mutex. */
static struct {
	struct gs_rm_disable params;
	struct gs_group *from[64];
	struct gs_names names;
	u32 client, subdevice, device;
} batch;

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

#define NV_ERR_OBJECT_NOT_FOUND 0x57u
#define NV_ERR_INVALID_DEVICE 0x26u

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
	case NV_ERR_INVALID_DEVICE:
		return -ENODEV;
	}
	return -EIO;
}

static u32 issue(u32 client, u32 object, u32 cmd, void *params, u32 size)
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

	if (!gs_group_names(group, 0, &batch.names))
		return NV_ERR_OBJECT_NOT_FOUND;
	if (field == GS_FIELD_TIMESLICE) {
		status = issue(batch.names.client, batch.names.handle, GS_RM_GET_TIMESLICE, &slice, sizeof(slice));
		*value = min_t(u64, slice.us, U32_MAX);
		return status;
	}
	status = issue(batch.names.client, batch.names.handle, GS_RM_GET_INTERLEAVE, &level, sizeof(level));
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

static u32 write_names(const struct gs_names *names, enum gs_field field, u32 value)
{
	struct gs_rm_timeslice slice = {.us = value};

	if (field == GS_FIELD_TIMESLICE)
		return issue(names->client, names->handle, GS_RM_SET_TIMESLICE, &slice, sizeof(slice));
	return issue(names->client, names->handle, GS_RM_SET_INTERLEAVE, &value, sizeof(value));
}

static u32 write_word(struct gs_group *group, enum gs_field field, u32 value)
{
	u32 status;

	if (!gs_group_names(group, 0, &batch.names))
		return NV_ERR_OBJECT_NOT_FOUND;
	status = write_names(&batch.names, field, value);
	/* It died meanwhile, and the handle may already name another group: that one gets back what was there. */
	if (!status && READ_ONCE(group->dead))
		write_names(&batch.names, field, group->setting[field].original);
	return status;
}

static u32 wanted(struct gs_setting *setting)
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
	if (setting->applied == wanted(setting) && !setting->stale)
		return GS_NV_OK;
	status = write_word(group, field, wanted(setting));
	if (status)
		return status;
	setting->applied = wanted(setting);
	setting->stale = false;
	return GS_NV_OK;
}

/* ---- disabling, in batches ---- */

static void prepare_params(u32 value)
{
	memset(&batch.params, 0, sizeof(batch.params));
	batch.params.disable = value != 0;
	batch.params.scheduling_only = value == GS_DISABLED_SCHEDULING;
}

/* Channel by channel, by the group's own client: for a batch that the RM refused as a whole. */
static u32 switch_alone(struct gs_group *group, u32 value)
{
	struct gs_rm_disable *params = &batch.params;
	u32 first = 0, index, status, worst = GS_NV_OK;

	do {
		if (!gs_group_names(group, first, &batch.names))
			return NV_ERR_OBJECT_NOT_FOUND;
		for (index = 0; index < batch.names.channels; index++) {
			prepare_params(value);
			params->count = 1;
			params->client[0] = batch.names.channel_client[index];
			params->channel[0] = batch.names.channel[index];
			status = issue(batch.names.subdevice_client, batch.names.subdevice, GS_RM_DISABLE_CHANNELS,
				       params, sizeof(*params));
			if (status && !gs_status_gone(status))
				worst = status;
		}
		first += batch.names.channels;
	} while (batch.names.channels == ARRAY_SIZE(batch.names.channel));
	return worst;
}

/* A group died while it was being disabled; its handles may already name other channels: enable those. */
static void enable_reused(void)
{
	struct gs_rm_disable *params = &batch.params;
	u32 index, count = 0;

	for (index = 0; index < params->count; index++) {
		if (!READ_ONCE(batch.from[index]->dead))
			continue;
		params->client[count] = params->client[index];
		params->channel[count++] = params->channel[index];
	}
	if (!count)
		return;
	params->count = count;
	params->disable = 0;
	params->scheduling_only = 0;
	issue(batch.client, batch.subdevice, GS_RM_DISABLE_CHANNELS, params, sizeof(*params));
}

static void flush(struct list_head *dirty, u32 value)
{
	struct gs_group *group;
	u32 status;

	if (!batch.params.count)
		return;
	status = issue(batch.client, batch.subdevice, GS_RM_DISABLE_CHANNELS, &batch.params, sizeof(batch.params));
	if (!status && value)
		enable_reused();
	list_for_each_entry(group, dirty, dirty) {
		if (!group->in_batch)
			continue;
		group->in_batch = false;
		if (status)
			group->setting[GS_FIELD_DISABLED].status =
			    status == GS_RM_SUSPENDED ? status : switch_alone(group, value);
	}
	prepare_params(value);
}

static u32 add_to_batch(struct list_head *dirty, struct gs_group *group, u32 value)
{
	struct gs_names *names = &batch.names;
	u32 first = 0, index;

	do {
		if (!gs_group_names(group, first, names))
			return NV_ERR_OBJECT_NOT_FOUND;
		if (!names->subdevice && names->channels)
			return NV_ERR_INVALID_DEVICE;
		if (batch.params.count + names->channels > 64 || batch.device != group->device) {
			flush(dirty, value);
			/* flush() may have used names */
			if (!gs_group_names(group, first, names))
				return NV_ERR_OBJECT_NOT_FOUND;
		}
		for (index = 0; index < names->channels; index++) {
			batch.from[batch.params.count] = group;
			batch.params.client[batch.params.count] = names->channel_client[index];
			batch.params.channel[batch.params.count++] = names->channel[index];
		}
		if (names->channels) {
			batch.client = names->subdevice_client;
			batch.subdevice = names->subdevice;
			batch.device = group->device;
			group->in_batch = true;
		}
		first += names->channels;
	} while (names->channels == ARRAY_SIZE(names->channel));
	return GS_NV_OK;
}

static bool to_switch(struct gs_group *group, u32 value)
{
	struct gs_setting *setting = &group->setting[GS_FIELD_DISABLED];

	return group->dirty_fields & BIT(GS_FIELD_DISABLED) && wanted(setting) == value &&
	       (setting->applied != value || setting->stale);
}

static void settle_disabled(struct list_head *dirty, u32 value)
{
	struct gs_group *group;

	prepare_params(value);
	list_for_each_entry(group, dirty, dirty)
		if (to_switch(group, value)) {
			u32 status = add_to_batch(dirty, group, value);

			if (status)
				group->setting[GS_FIELD_DISABLED].status = status;
		}
	flush(dirty, value);
	list_for_each_entry(group, dirty, dirty) {
		struct gs_setting *setting = &group->setting[GS_FIELD_DISABLED];

		if (!to_switch(group, value) || setting->status)
			continue;
		setting->known = true;
		setting->applied = value;
		setting->stale = false;
	}
}

/* ---- what has no lasting effect ---- */

static u32 preempt(struct gs_group *group, u32 timeout_us)
{
	struct gs_rm_preempt params = {
	    .wait = timeout_us != 0,
	    .manual_timeout = timeout_us != 0,
	    .timeout_us = timeout_us,
	};

	if (!gs_group_names(group, 0, &batch.names))
		return NV_ERR_OBJECT_NOT_FOUND;
	return issue(batch.names.client, batch.names.handle, GS_RM_PREEMPT, &params, sizeof(params));
}

static u32 restart(struct gs_group *group, u32 value)
{
	struct gs_rm_restart params = {
	    .force = (value & GS_RESTART_FORCE) != 0,
	    .bypass_wait = (value & GS_RESTART_WAIT) == 0,
	};

	if (!gs_group_names(group, 0, &batch.names) || !batch.names.channels)
		return NV_ERR_OBJECT_NOT_FOUND;
	return issue(batch.names.channel_client[0], batch.names.channel[0], GS_RM_RESTART_RUNLIST, &params,
		     sizeof(params));
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
	if (setting->applied == wanted(setting) && !setting->stale)
		return;
	if (list_empty(&setting->holds)) /* not a change that was refused, but one that is to be given back */
		pr_warn_ratelimited(
		    "process %u, group %llu: setting %d is %u and should be %u (NV_STATUS %#x); trying again\n",
		    group->pid, group->id, field, setting->applied, wanted(setting), setting->status);
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
		settle_disabled(dirty, value);
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
