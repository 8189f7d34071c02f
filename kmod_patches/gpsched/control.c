// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Controls, and what makes them safe: every lasting change is a *hold* with an owner (a netlink socket) and a lease.
 *
 * A group's setting is the newest hold's value, or, with no hold left, what it was before the first one. Whatever ends
 * a hold (the owner's wish, its lease, the death of its socket, the end of a plan) only removes it from the list;
 * gs_settle() then makes the driver agree. An undo that fails is tried again every second for as long as the group
 * lives: a process left disabled is the worst that could happen here.
 */
#include <linux/jiffies.h>

#include "internal.h"

#define MAX_HOLDS 4096 /* of one controller */

DEFINE_MUTEX(gs_control_mutex);

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
	gs_check_by(expires);
	return 0;
}

void gs_hold_drop(struct gs_hold *hold, struct list_head *dirty)
{
	gs_mark(dirty, hold->group, hold->field);
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
			gs_hold_drop(hold, &dirty);
	gs_settle(&dirty);
}

void gs_renew(struct gs_controller *owner, u32 lease_ms)
{
	unsigned long expires = jiffies + msecs_to_jiffies(lease_ms);
	struct gs_hold *hold;

	lockdep_assert_held(&gs_control_mutex);
	list_for_each_entry(hold, &owner->holds, in_owner)
		if (!hold->plan)
			hold->expires = expires;
	gs_check_by(expires);
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
		context->results[index].status = gs_preempt(group, action->value);
		return gs_errno(context->results[index].status);
	case GS_OP_RESTART:
		context->results[index].status = gs_restart(group, action->value);
		return gs_errno(context->results[index].status);
	case GS_OP_TIMESLICE_UNDO:
	case GS_OP_INTERLEAVE_UNDO:
	case GS_OP_ENABLE:
		gs_mark(dirty, group, field); /* also without a hold: an undo that failed is tried again */
		hold = hold_find(context->owner, context->plan, group, field);
		if (hold)
			gs_hold_drop(hold, dirty);
		return 0;
	}
	gs_mark(dirty, group, field);
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
		result->error = gs_errno(result->status);
	}
	hold = field >= 0 && result->error ? hold_find(context->owner, context->plan, group, field) : NULL;
	if (hold) {
		gs_hold_drop(hold, &dirty);
		gs_settle(&dirty);
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
		gs_settle(&dirty);
		for (index = first; index < end; index++)
			end_action(context, index);
	}
	for (index = 0; index < n && !error; index++)
		error = results[index].error;
	gs_free(context);
	return error;
}
