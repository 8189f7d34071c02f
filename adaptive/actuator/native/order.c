/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of several latency-critical processes, who waits for whom. Only one with a reservation of its own is ever kept off,
 * and no longer than that lasts: so the limit of a reservation bounds the waiting as well.
 */
#include "actuator.h"

__u64 due_at(const struct plan *p, __u64 announced_ns)
{
	return p->plan.due_us ? announced_ns + p->plan.due_us * US : NEVER;
}

static bool goes_first(const struct plan *p, const struct plan *other)
{
	if (p->plan.rank != other->plan.rank)
		return p->plan.rank > other->plan.rank;
	return p->due_at < other->due_at;
}

static const struct plan *plan_of(const struct actuator *a, const struct group *g)
{
	for_each_plan(a, p) if (p->used && p->plan.pid == g->plan.pid && p->plan.gpu == g->plan.gpu) return p;
	return NULL;
}

bool must_wait(const struct actuator *a, const struct group *g)
{
	const struct plan *own = plan_of(a, g);

	if (!own || own->phase != RESERVED)
		return false;
	for_each_plan(a, p)
	{
		if (p->used && p->phase == RESERVED && p->plan.gpu == g->plan.gpu && p->plan.mechanism & GA_ORDER &&
		    goes_first(p, own))
			return true;
	}
	return false;
}
