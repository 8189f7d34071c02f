// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Plans: actions that a controller prepares once and that anyone it trusts, also a BPF program in an interrupt, can
 * begin and end with one word. A begin or an end is a wish (the latest wins), so that a BPF program needs neither
 * memory nor a lock; the worker makes it true. What a plan holds belongs to the plan's owner and ends with it.
 */
#include <linux/irq_work.h>

#include "internal.h"

#define SLOT_BITS 6
static_assert(GS_MAX_PLANS == 1 << SLOT_BITS);

static struct gs_plan __rcu *plans[GS_MAX_PLANS];
static u32 generation;

static void run_requests(struct work_struct *work);
static DECLARE_WORK(request_work, run_requests);

static void kick(struct irq_work *work)
{
	if (gs_workqueue)
		queue_work(gs_workqueue, &request_work);
}
static DEFINE_IRQ_WORK(request_irq, kick);

static struct gs_plan *plan_at(u32 id)
{
	struct gs_plan *plan = rcu_dereference_protected(plans[id % GS_MAX_PLANS], lockdep_is_held(&gs_control_mutex));

	return plan && plan->id == id ? plan : NULL;
}

static void plan_free(struct rcu_head *rcu)
{
	gs_free(container_of(rcu, struct gs_plan, rcu));
}

static int begin(struct gs_plan *plan)
{
	struct gs_result *results = gs_alloc(plan->n * sizeof(*results), GFP_KERNEL);
	int error;
	u32 index;

	if (!results)
		return -ENOMEM;
	plan->active = true;
	error = gs_apply(plan->owner, plan, plan->actions, plan->n, results, plan->lease_ms);
	/* A process that is gone needs no control; any other failure ends the whole plan. */
	for (index = 0; index < plan->n && error == -ESRCH; index++)
		if (results[index].error && results[index].error != -ESRCH)
			error = results[index].error;
	if (error == -ESRCH)
		error = 0;
	gs_free(results);
	if (error) {
		gs_release(plan->owner, plan);
		plan->active = false;
	}
	return error;
}

static int end(struct gs_plan *plan)
{
	gs_release(plan->owner, plan);
	plan->active = false;
	return 0;
}

/* With the mutex; owner NULL: on behalf of a BPF program. */
int gs_plan_run(u32 id, struct gs_controller *owner, enum gs_cmd what)
{
	struct gs_plan *plan = plan_at(id);

	lockdep_assert_held(&gs_control_mutex);
	if (!plan)
		return -ENOENT;
	if (owner && plan->owner != owner)
		return -EPERM;
	return what == GS_CMD_PLAN_BEGIN ? begin(plan) : end(plan);
}

/* Any context, also NMI. */
int gs_plan_request(u32 id, enum gs_cmd what)
{
	struct gs_plan *plan;
	int error = -ENOENT;

	rcu_read_lock();
	plan = rcu_dereference(plans[id % GS_MAX_PLANS]);
	if (plan && plan->id == id) {
		atomic_set(&plan->request, what);
		irq_work_queue(&request_irq);
		error = 0;
	}
	rcu_read_unlock();
	return error;
}

static void run_requests(struct work_struct *work)
{
	struct gs_plan *plan;
	int slot, what, error;

	mutex_lock(&gs_control_mutex);
	for (slot = 0; slot < GS_MAX_PLANS; slot++) {
		plan = rcu_dereference_protected(plans[slot], lockdep_is_held(&gs_control_mutex));
		what = plan ? atomic_xchg(&plan->request, 0) : 0;
		if (!what)
			continue;
		if (!gs_controller_spend(plan->owner, plan->n))
			error = -EBUSY;
		else
			error = what == GS_CMD_PLAN_BEGIN ? begin(plan) : end(plan);
		if (error == -EBUSY && what == GS_CMD_PLAN_END)
			error = end(plan); /* giving back is never refused */
		gpsched_on_done(plan->owner->portid, plan->id, error);
	}
	mutex_unlock(&gs_control_mutex);
}

int gs_plan_set(struct gs_controller *owner, const struct gs_action *actions, u32 n, u32 lease_ms, u32 *id)
{
	struct gs_plan *plan;
	int slot;

	lockdep_assert_held(&gs_control_mutex);
	for (slot = 0; slot < GS_MAX_PLANS; slot++)
		if (!rcu_access_pointer(plans[slot]))
			break;
	if (slot == GS_MAX_PLANS)
		return -ENOSPC;
	plan = gs_alloc(struct_size(plan, actions, n), GFP_KERNEL);
	if (!plan)
		return -ENOMEM;
	plan->owner = owner;
	plan->lease_ms = lease_ms;
	plan->n = n;
	memcpy(plan->actions, actions, n * sizeof(*actions));
	plan->id = ++generation << SLOT_BITS | slot;
	*id = plan->id;
	rcu_assign_pointer(plans[slot], plan);
	gs_count(GS_COUNT_PLANS, 1);
	return 0;
}

static void drop(struct gs_plan *plan)
{
	end(plan);
	RCU_INIT_POINTER(plans[plan->id % GS_MAX_PLANS], NULL);
	gs_count(GS_COUNT_PLANS, -1);
	call_rcu(&plan->rcu, plan_free);
}

int gs_plan_drop(u32 id, struct gs_controller *owner)
{
	struct gs_plan *plan = plan_at(id);

	lockdep_assert_held(&gs_control_mutex);
	if (!plan)
		return -ENOENT;
	if (plan->owner != owner)
		return -EPERM;
	drop(plan);
	return 0;
}

void gs_plans_drop_all(struct gs_controller *owner)
{
	struct gs_plan *plan;
	int slot;

	lockdep_assert_held(&gs_control_mutex);
	for (slot = 0; slot < GS_MAX_PLANS; slot++) {
		plan = rcu_dereference_protected(plans[slot], lockdep_is_held(&gs_control_mutex));
		if (plan && plan->owner == owner)
			drop(plan);
	}
}

/* Nothing can ask any more: the family and the BPF programs are gone. */
void gs_plan_exit(void)
{
	irq_work_sync(&request_irq);
	cancel_work_sync(&request_work);
}
