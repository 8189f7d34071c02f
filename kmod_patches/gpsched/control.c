// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Controls, and what makes them safe: every lasting change is a *hold* with an owner (a netlink socket) and a lease.
 *
 * A group's setting is the newest hold's value, or, with no hold left, what it was before the first one. Whatever ends
 * a hold (the owner's wish, its lease, the death of its socket, the end of a plan) only removes it from the list;
 * settle() then makes the driver agree. An undo that fails is tried again every second for as long as the group lives:
 * a process left disabled is the worst that could happen here.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>

#include "internal.h"

#define MAX_HOLDS 4096 /* of one controller */
#define RETRY_MS 1000
#define BUCKET 1024 /* actions that a controller may issue at once */
#define REFILL_PER_MS 4

struct gs_hold {
	struct list_head in_setting, in_owner;
	struct gs_group *group;
	struct gs_controller *owner;
	struct gs_plan *plan;
	enum gs_field field;
	u32 value;
	unsigned long expires;
};

DEFINE_MUTEX(gs_control_mutex);
struct workqueue_struct *gs_workqueue;

static LIST_HEAD(controllers); /* changed under the mutex and gs_registry_lock */
static void watchdog(struct work_struct *work);
static void check_by(unsigned long when);
static DECLARE_DELAYED_WORK(watchdog_work, watchdog);
static unsigned long next_check;
static bool retry;

/* One batch for FIFO_DISABLE_CHANNELS; too large for the stack. Under the mutex. */
static struct {
	struct gs_rm_disable params;
	struct gs_group *from[64];
	struct gs_names names;
	u32 client, subdevice, device;
} batch;

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

static int errno_of(u32 status)
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
	u32 value = 0, status = read_word(group, GS_FIELD_TIMESLICE, &value);

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

/* ---- making the driver agree with the holds ---- */

static void mark(struct list_head *dirty, struct gs_group *group, enum gs_field field)
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
	pr_warn_ratelimited("group %llu: setting %d is %u and should be %u (NV_STATUS %#x); trying again\n", group->id,
			    field, setting->applied, wanted(setting), setting->status);
	retry = true;
	gs_want_attention(group);
	check_by(jiffies + msecs_to_jiffies(RETRY_MS));
}

static void settle(struct list_head *dirty)
{
	struct gs_group *group, *next;
	u32 value;
	int field;

	list_for_each_entry(group, dirty, dirty)
		group->setting[GS_FIELD_DISABLED].status = GS_NV_OK;
	for (value = 0; value <= GS_DISABLED_SCHEDULING; value++)
		settle_disabled(dirty, value);
	list_for_each_entry(group, dirty, dirty)
		for (field = GS_FIELD_TIMESLICE; field <= GS_FIELD_INTERLEAVE; field++)
			if (group->dirty_fields & BIT(field))
				group->setting[field].status = settle_word(group, field);
	list_for_each_entry_safe(group, next, dirty, dirty) {
		for (field = 0; field < GS_FIELDS; field++)
			if (group->dirty_fields & BIT(field))
				conclude(group, field);
		group->dirty_fields = 0;
		list_del_init(&group->dirty);
		gs_group_put(group);
	}
}

/* ---- holds ---- */

static void check_by(unsigned long when)
{
	unsigned long now = jiffies;

	if (next_check && !time_before(when, next_check) && delayed_work_pending(&watchdog_work))
		return;
	next_check = when ?: 1;
	mod_delayed_work(gs_workqueue, &watchdog_work, time_after(when, now) ? when - now : 0);
}

void gs_watchdog_kick(unsigned int delay_ms)
{
	if (gs_workqueue)
		mod_delayed_work(gs_workqueue, &watchdog_work, msecs_to_jiffies(delay_ms));
}

static struct gs_hold *hold_find(struct gs_controller *owner, struct gs_plan *plan, struct gs_group *group,
				 enum gs_field field)
{
	struct gs_hold *hold;

	list_for_each_entry(hold, &group->setting[field].holds, in_setting)
		if (hold->owner == owner && hold->plan == plan)
			return hold;
	return NULL;
}

static int hold_set(struct gs_controller *owner, struct gs_plan *plan, struct gs_group *group, enum gs_field field,
		    u32 value, unsigned long expires)
{
	struct gs_hold *hold = hold_find(owner, plan, group, field);

	if (!hold) {
		if (owner->n_holds >= MAX_HOLDS)
			return -ENOSPC;
		hold = gs_alloc(sizeof(*hold), GFP_KERNEL);
		if (!hold)
			return -ENOMEM;
		refcount_inc(&group->refs);
		hold->group = group;
		hold->owner = owner;
		hold->plan = plan;
		hold->field = field;
		list_add(&hold->in_setting, &group->setting[field].holds);
		list_add_tail(&hold->in_owner, &owner->holds);
		owner->n_holds++;
		gs_count(GS_COUNT_HOLDS, 1);
	} else if (hold->value != value) {
		list_move(&hold->in_setting, &group->setting[field].holds);
	}
	hold->value = value;
	hold->expires = expires;
	check_by(expires);
	return 0;
}

static void hold_drop(struct gs_hold *hold, struct list_head *dirty)
{
	mark(dirty, hold->group, hold->field);
	list_del(&hold->in_setting);
	list_del(&hold->in_owner);
	hold->owner->n_holds--;
	gs_count(GS_COUNT_HOLDS, -1);
	gs_group_put(hold->group);
	gs_free(hold);
}

void gs_release(struct gs_controller *owner, struct gs_plan *plan)
{
	struct gs_hold *hold, *next;
	LIST_HEAD(dirty);

	lockdep_assert_held(&gs_control_mutex);
	list_for_each_entry_safe(hold, next, &owner->holds, in_owner)
		if (!plan || hold->plan == plan)
			hold_drop(hold, &dirty);
	settle(&dirty);
}

void gs_renew(struct gs_controller *owner, u32 lease_ms)
{
	unsigned long expires = jiffies + msecs_to_jiffies(lease_ms);
	struct gs_hold *hold;

	lockdep_assert_held(&gs_control_mutex);
	list_for_each_entry(hold, &owner->holds, in_owner)
		if (!hold->plan)
			hold->expires = expires;
	check_by(expires);
}

/* ---- actions ---- */

static int field_of(u32 op)
{
	switch (op) {
	case GS_OP_TIMESLICE:
	case GS_OP_TIMESLICE_UNDO:
		return GS_FIELD_TIMESLICE;
	case GS_OP_INTERLEAVE:
	case GS_OP_INTERLEAVE_UNDO:
		return GS_FIELD_INTERLEAVE;
	case GS_OP_DISABLE:
	case GS_OP_ENABLE:
		return GS_FIELD_DISABLED;
	}
	return -1;
}

static bool value_valid(u32 op, u32 value)
{
	switch (op) {
	case GS_OP_TIMESLICE:
		return value >= 1 && value <= GS_MAX_TIMESLICE_US;
	case GS_OP_INTERLEAVE:
		return value <= 2;
	case GS_OP_DISABLE:
		return value == GS_DISABLED || value == GS_DISABLED_SCHEDULING;
	case GS_OP_PREEMPT:
		return value <= GS_MAX_PREEMPT_US;
	case GS_OP_RESTART:
		return value <= (GS_RESTART_FORCE | GS_RESTART_WAIT);
	case GS_OP_ENABLE:
	case GS_OP_TIMESLICE_UNDO:
	case GS_OP_INTERLEAVE_UNDO:
		return value == 0;
	}
	return false;
}

int gs_actions_check(const struct gs_action *actions, u32 n)
{
	u32 index;

	if (!n || n > GS_MAX_ACTIONS)
		return -E2BIG;
	for (index = 0; index < n; index++) {
		if (!actions[index].op || actions[index].op > GS_OP_MAX)
			return -EOPNOTSUPP;
		if (!actions[index].group || !value_valid(actions[index].op, actions[index].value))
			return -ERANGE;
	}
	return 0;
}

static u32 preempt_group(struct gs_group *group, u32 timeout_us)
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

static u32 restart_runlist(struct gs_group *group, u32 value)
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

struct context {
	struct gs_controller *owner;
	struct gs_plan *plan;
	const struct gs_action *actions;
	struct gs_result *results;
	unsigned long expires;
	struct gs_group *groups[GS_MAX_ACTIONS];
};

static int begin_action(struct context *context, u32 index, struct list_head *dirty)
{
	const struct gs_action *action = &context->actions[index];
	struct gs_group *group = gs_group_get(action->group);
	int field = field_of(action->op);
	struct gs_hold *hold;

	context->groups[index] = group;
	if (!group)
		return -ESRCH;
	switch (action->op) {
	case GS_OP_PREEMPT:
		context->results[index].status = preempt_group(group, action->value);
		return errno_of(context->results[index].status);
	case GS_OP_RESTART:
		context->results[index].status = restart_runlist(group, action->value);
		return errno_of(context->results[index].status);
	case GS_OP_TIMESLICE_UNDO:
	case GS_OP_INTERLEAVE_UNDO:
	case GS_OP_ENABLE:
		mark(dirty, group, field); /* also without a hold: an undo that failed is tried again */
		hold = hold_find(context->owner, context->plan, group, field);
		if (hold)
			hold_drop(hold, dirty);
		return 0;
	}
	mark(dirty, group, field);
	return hold_set(context->owner, context->plan, group, field, action->value, context->expires);
}

static void end_action(struct context *context, u32 index)
{
	struct gs_result *result = &context->results[index];
	int field = field_of(context->actions[index].op);
	struct gs_group *group = context->groups[index];
	struct gs_hold *hold;
	LIST_HEAD(dirty);

	if (!group)
		return;
	if (field >= 0 && !result->error) {
		result->status = group->setting[field].status;
		result->error = errno_of(result->status);
	}
	hold = field >= 0 && result->error ? hold_find(context->owner, context->plan, group, field) : NULL;
	if (hold) {
		hold_drop(hold, &dirty);
		settle(&dirty);
	}
	gs_group_put(group);
}

/* Consecutive disables and enables go to the RM together; everything else in the order given. */
static u32 run_end(const struct gs_action *actions, u32 n, u32 first)
{
	u32 end = first + 1;

	if (field_of(actions[first].op) == GS_FIELD_DISABLED)
		while (end < n && field_of(actions[end].op) == GS_FIELD_DISABLED)
			end++;
	return end;
}

/* Returns the first error; results[] tells each. */
int gs_apply(struct gs_controller *owner, struct gs_plan *plan, const struct gs_action *actions, u32 n,
	     struct gs_result *results, u32 lease_ms)
{
	struct context *context;
	u32 first, end, index;
	LIST_HEAD(dirty);
	int error = 0;

	lockdep_assert_held(&gs_control_mutex);
	memset(results, 0, n * sizeof(*results));
	context = READ_ONCE(owner->closed) ? NULL : gs_alloc(sizeof(*context), GFP_KERNEL);
	if (!context) {
		results[0].error = READ_ONCE(owner->closed) ? -ESHUTDOWN : -ENOMEM;
		return results[0].error;
	}
	context->owner = owner;
	context->plan = plan;
	context->actions = actions;
	context->results = results;
	context->expires = jiffies + msecs_to_jiffies(lease_ms);
	for (first = 0; first < n; first = end) {
		end = run_end(actions, n, first);
		for (index = first; index < end; index++)
			results[index].error = begin_action(context, index, &dirty);
		settle(&dirty);
		for (index = first; index < end; index++)
			end_action(context, index);
	}
	for (index = 0; index < n && !error; index++)
		error = results[index].error;
	gs_free(context);
	return error;
}

/* ---- controllers ---- */

static struct gs_controller *controller_find(u32 portid)
{
	struct gs_controller *controller;

	list_for_each_entry(controller, &controllers, all)
		if (controller->portid == portid && !controller->closed)
			return controller;
	return NULL;
}

static struct gs_controller *controller_new(u32 portid)
{
	struct gs_controller *controller;
	unsigned long flags;

	if (atomic64_read(&gs_counters[GS_COUNT_CONTROLLERS]) >= GS_MAX_CONTROLLERS)
		return ERR_PTR(-ENOSPC);
	controller = gs_alloc(sizeof(*controller), GFP_KERNEL);
	if (!controller)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&controller->holds);
	refcount_set(&controller->refs, 1);
	controller->portid = portid;
	controller->tokens = BUCKET;
	controller->tokens_at = ktime_get_ns();
	spin_lock_irqsave(&gs_registry_lock, flags);
	list_add_tail(&controller->all, &controllers);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	gs_count(GS_COUNT_CONTROLLERS, 1);
	return controller;
}

/* With the mutex. Returns with a reference, NULL when there is none and none is to be made, or an error. */
struct gs_controller *gs_controller_get(u32 portid, bool create)
{
	struct gs_controller *controller;

	lockdep_assert_held(&gs_control_mutex);
	controller = controller_find(portid);
	if (!controller && create)
		controller = controller_new(portid);
	if (!IS_ERR_OR_NULL(controller))
		refcount_inc(&controller->refs);
	return controller;
}

void gs_controller_put(struct gs_controller *controller)
{
	if (controller && refcount_dec_and_test(&controller->refs))
		gs_free(controller);
}

/* From the notifier of closed sockets: may not wait, so the watchdog does the rest. */
void gs_controller_closed(u32 portid)
{
	struct gs_controller *controller;
	unsigned long flags;
	bool found = false;

	spin_lock_irqsave(&gs_registry_lock, flags);
	list_for_each_entry(controller, &controllers, all)
		if (controller->portid == portid && !controller->closed) {
			WRITE_ONCE(controller->closed, true);
			found = true;
		}
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	if (found)
		gs_watchdog_kick(0);
}

bool gs_controller_spend(struct gs_controller *controller, u32 actions)
{
	u64 now = ktime_get_ns(), ms = div_u64(now - controller->tokens_at, NSEC_PER_MSEC);

	lockdep_assert_held(&gs_control_mutex);
	if (ms) {
		controller->tokens = min_t(u64, BUCKET, controller->tokens + ms * REFILL_PER_MS);
		controller->tokens_at = now;
	}
	if (controller->tokens < actions) {
		gs_count(GS_COUNT_LIMITED, 1);
		return false;
	}
	controller->tokens -= actions;
	return true;
}

static void controller_end(struct gs_controller *controller)
{
	unsigned long flags;

	gs_plans_drop_all(controller);
	spin_lock_irqsave(&gs_registry_lock, flags);
	list_del(&controller->all);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	gs_count(GS_COUNT_CONTROLLERS, -1);
	gs_controller_put(controller);
}

/* ---- the watchdog ---- */

static void drop_all_of_group(struct gs_group *group, struct list_head *dirty)
{
	struct gs_hold *hold, *next;
	int field;

	for (field = 0; field < GS_FIELDS; field++)
		list_for_each_entry_safe(hold, next, &group->setting[field].holds, in_setting)
			hold_drop(hold, dirty);
}

static void look_at(struct gs_group *group, struct list_head *dirty)
{
	struct gs_setting *slice = &group->setting[GS_FIELD_TIMESLICE];
	u32 owner_timeslice;
	int field;

	if (READ_ONCE(group->dead)) {
		drop_all_of_group(group, dirty);
		return;
	}
	if (gs_group_changed(group, &owner_timeslice))
		group->setting[GS_FIELD_DISABLED].stale = group->setting[GS_FIELD_DISABLED].applied != 0;
	if (owner_timeslice && slice->known)
		slice->original = slice->applied = owner_timeslice;
	for (field = 0; field < GS_FIELDS; field++)
		if (group->setting[field].known)
			mark(dirty, group, field);
}

static void expire(struct gs_controller *controller, struct list_head *dirty, unsigned long *next)
{
	struct gs_hold *hold, *following;
	unsigned long now = jiffies;

	list_for_each_entry_safe(hold, following, &controller->holds, in_owner) {
		if (controller->closed || time_after_eq(now, hold->expires)) {
			if (hold->plan)
				hold->plan->active = false;
			gs_count(GS_COUNT_UNDONE, 1);
			hold_drop(hold, dirty);
		} else if (!*next || time_before(hold->expires, *next)) {
			*next = hold->expires ?: 1;
		}
	}
}

static void watchdog(struct work_struct *work)
{
	struct gs_controller *controller, *following;
	unsigned long next = 0;
	struct gs_group *group;
	LIST_HEAD(dirty);

	mutex_lock(&gs_control_mutex);
	retry = false;
	while ((group = gs_next_attention())) {
		look_at(group, &dirty);
		gs_group_put(group);
	}
	list_for_each_entry(controller, &controllers, all)
		expire(controller, &dirty, &next);
	settle(&dirty);
	list_for_each_entry_safe(controller, following, &controllers, all)
		if (READ_ONCE(controller->closed) && list_empty(&controller->holds))
			controller_end(controller);
	if (retry && (!next || time_after(next, jiffies + msecs_to_jiffies(RETRY_MS))))
		next = jiffies + msecs_to_jiffies(RETRY_MS);
	next_check = 0;
	if (next)
		check_by(next);
	mutex_unlock(&gs_control_mutex);
}

int gs_control_init(void)
{
	gs_workqueue = alloc_ordered_workqueue("gpsched", WQ_FREEZABLE | WQ_MEM_RECLAIM | WQ_HIGHPRI);
	return gs_workqueue ? 0 : -ENOMEM;
}

/* After the netlink family is gone: every controller ends, everything is undone. */
void gs_control_exit(void)
{
	struct gs_controller *controller;
	unsigned long flags;

	spin_lock_irqsave(&gs_registry_lock, flags);
	list_for_each_entry(controller, &controllers, all)
		WRITE_ONCE(controller->closed, true);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	gs_watchdog_kick(0);
	flush_delayed_work(&watchdog_work);
	cancel_delayed_work_sync(&watchdog_work);
	destroy_workqueue(gs_workqueue);
	gs_workqueue = NULL;
}
