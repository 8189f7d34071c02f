// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Disabling and enabling groups, many in one control of the RM. Part of settling, and as that with gs_control_mutex and
 * gs_gate.
 */
#include "internal.h"

/* One batch for FIFO_DISABLE_CHANNELS; too large for the stack. Under the mutex. */
static struct {
	struct gs_rm_disable params;
	struct gs_group *from[64];
	struct gs_names names;
	u32 client, subdevice, device;
} batch;

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
			return GS_NV_ERR_OBJECT_NOT_FOUND;
		for (index = 0; index < batch.names.channels; index++) {
			prepare_params(value);
			params->count = 1;
			params->client[0] = batch.names.channel_client[index];
			params->channel[0] = batch.names.channel[index];
			status = gs_issue(batch.names.subdevice_client, batch.names.subdevice, GS_RM_DISABLE_CHANNELS,
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
	gs_issue(batch.client, batch.subdevice, GS_RM_DISABLE_CHANNELS, params, sizeof(*params));
}

static void flush(struct list_head *dirty, u32 value)
{
	struct gs_group *group;
	u32 status;

	if (!batch.params.count)
		return;
	status = gs_issue(batch.client, batch.subdevice, GS_RM_DISABLE_CHANNELS, &batch.params, sizeof(batch.params));
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
			return GS_NV_ERR_OBJECT_NOT_FOUND;
		if (!names->subdevice && names->channels)
			return GS_NV_ERR_INVALID_DEVICE;
		if (batch.params.count + names->channels > 64 || batch.device != group->device) {
			flush(dirty, value);
			/* flush() may have used names */
			if (!gs_group_names(group, first, names))
				return GS_NV_ERR_OBJECT_NOT_FOUND;
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

	return group->dirty_fields & BIT(GS_FIELD_DISABLED) && gs_wanted(setting) == value &&
	       (setting->applied != value || setting->stale);
}

void gs_settle_disabled(struct list_head *dirty, u32 value)
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
