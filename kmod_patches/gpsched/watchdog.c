// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Controllers and the watchdog: a controller is a netlink socket, and lives as long as that. What it changed is undone
 * when it closes (also by SIGKILL) or when a lease runs out, and a group that changed by itself is looked at.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>

#include "internal.h"

#define BUCKET 1024 /* actions that a controller may issue at once */
#define REFILL_PER_MS 4

struct workqueue_struct *gs_workqueue;

static LIST_HEAD(controllers); /* changed under the mutex and gs_registry_lock */
static void watchdog(struct work_struct *work);
static DECLARE_DELAYED_WORK(watchdog_work, watchdog);
static unsigned long next_check; /* jiffies, 0: none; under the mutex */

/* Let the watchdog run at `when` (jiffies) at the latest. */
void gs_check_by(unsigned long when)
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
			gs_hold_drop(hold, dirty);
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
			gs_mark(dirty, group, field);
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
			gs_hold_drop(hold, dirty);
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
	next_check = 0; /* whoever needs the next run says so from here on */
	while ((group = gs_next_attention())) {
		look_at(group, &dirty);
		gs_group_put(group);
	}
	list_for_each_entry(controller, &controllers, all)
		expire(controller, &dirty, &next);
	gs_settle(&dirty);
	list_for_each_entry_safe(controller, following, &controllers, all)
		if (READ_ONCE(controller->closed) && list_empty(&controller->holds))
			controller_end(controller);
	if (next)
		gs_check_by(next);
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
