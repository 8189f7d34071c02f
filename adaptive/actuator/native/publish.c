/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over what the daemon wants. Entries keep their place while they live, since workers and reservations refer to
 * them: a group is the same if process, handles and first channel are, a plan if process and GPU are.
 */
#include "actuator.h"

#include <errno.h>
#include <string.h>

static bool in_bounds(const struct ga_plans *plans)
{
	if (plans->gpu_count > GA_MAX_GPUS || plans->group_count > GA_MAX_GROUPS || plans->plan_count > GA_MAX_PLANS)
		return false;
	for (__u32 i = 0; i < plans->gpu_count; i++)
		if (plans->gpus[i].turn_count > GA_MAX_TURNS)
			return false;
	for (__u32 i = 0; i < plans->group_count; i++) {
		const struct ga_group *g = &plans->groups[i];

		if (g->slot >= GA_MAX_SLOTS || g->gpu >= plans->gpu_count || g->channel_count > GA_MAX_CHANNELS)
			return false;
	}
	for (__u32 i = 0; i < plans->plan_count; i++) {
		const struct ga_plan *p = &plans->plans[i];

		if (p->gpu >= plans->gpu_count || p->trigger_count > GA_MAX_TRIGGERS || !p->limit_us)
			return false;
		if (p->group != GA_NO_INDEX && p->group >= plans->group_count)
			return false;
		if (p->agent_slot != GA_NO_INDEX && p->agent_slot >= GA_MAX_SLOTS)
			return false;
	}
	return true;
}

static bool same_group(const struct ga_group *one, const struct ga_group *other)
{
	return one->pid == other->pid && one->client == other->client && one->handle == other->handle &&
	       one->gpu == other->gpu && one->channels[0] == other->channels[0];
}

static struct group *find_group(struct actuator *a, const struct ga_group *wanted)
{
	for_each_group(a, g) if (g->used && !g->dead && same_group(&g->plan, wanted)) return g;
	return NULL;
}

static struct group *new_group(struct actuator *a)
{
	for (unsigned i = 0; i < 2 * GA_MAX_GROUPS; i++) {
		struct group *g = &a->groups[i];

		if (g->used || g->busy)
			continue;
		if (i >= a->group_top)
			a->group_top = i + 1;
		*g = (struct group){.used = true};
		return g;
	}
	return NULL;
}

static bool same_channels(const struct ga_group *one, const struct ga_group *other)
{
	return one->channel_count == other->channel_count &&
	       !memcmp(one->channels, other->channels, one->channel_count * sizeof(one->channels[0]));
}

static struct group *take_group(struct actuator *a, const struct ga_group *wanted)
{
	struct group *g = find_group(a, wanted);

	if (!g)
		g = new_group(a);
	else if (!same_channels(&g->plan, wanted)) {
		g->changed = g->busy;
		if (g->actual != MODE_ENABLED)
			g->actual = MODE_UNKNOWN; /* a new channel is not yet as the others are */
	}
	if (!g)
		return NULL;
	g->plan = *wanted;
	g->leaving = false;
	return g;
}

static struct plan *take_plan(struct actuator *a, const struct ga_plan *wanted)
{
	struct plan *found = NULL;

	for_each_plan(a, p)
	{
		if (p->used && p->plan.pid == wanted->pid && p->plan.gpu == wanted->gpu)
			found = p;
	}
	for (unsigned i = 0; !found && i < 2 * GA_MAX_PLANS; i++) {
		if (a->plans[i].used)
			continue;
		found = &a->plans[i];
		*found = (struct plan){.used = true};
		if (i >= a->plan_top)
			a->plan_top = i + 1;
	}
	if (found) {
		found->plan = *wanted;
		found->leaving = false;
	}
	return found;
}

static void withdraw(struct actuator *a, struct plan *p, __u32 reason, __u64 now)
{
	p->leaving = true;
	hold_leave(p);
	if (p->phase == IDLE)
		p->used = p->leaving = false;
	else
		burst_end(a, p, reason, now);
}

static int take_all(struct actuator *a, const struct ga_plans *plans, __u64 now)
{
	struct group *groups[GA_MAX_GROUPS];

	for_each_group(a, g) g->leaving = true;
	for_each_plan(a, p) p->leaving = p->used;
	for (__u32 i = 0; i < plans->group_count; i++) {
		groups[i] = take_group(a, &plans->groups[i]);
		if (!groups[i])
			return -ENOSPC;
	}
	for (__u32 i = 0; i < plans->plan_count; i++) {
		struct plan *p = take_plan(a, &plans->plans[i]);

		if (!p)
			return -ENOSPC;
		p->own = plans->plans[i].group == GA_NO_INDEX ? NULL : groups[plans->plans[i].group];
	}
	for_each_plan(a, p) if (p->used && p->leaving) withdraw(a, p, GA_END_WITHDRAWN, now);
	return 0;
}

/* A turn that no group of the plan has is nobody's; that of a process which exits later is passed on at once. */
static void take_turns(struct gpu *u, const struct ga_plans *plans, __u64 now)
{
	static const struct ga_gpu no_plan;
	__u32 pids[GA_MAX_TURNS] = {0};

	for (__u32 i = 0; i < plans->group_count; i++) {
		const struct ga_group *g = &plans->groups[i];

		if (g->role == GA_ROLE_BE && g->gpu == u->index && g->turn < GA_MAX_TURNS)
			pids[g->turn] = g->pid;
	}
	turns_publish(u, u->index < plans->gpu_count ? &plans->gpus[u->index] : &no_plan, pids, now);
}

static void take_gpu(struct gpu *u, const struct ga_plans *plans, __u64 now)
{
	take_turns(u, plans, now);
	if (!u->known) {
		u->break_at = NEVER;
		u->turn_since = now;
		u->budget_at = now - 2000000000ull; /* starts with a full budget */
	}
	u->known = true;
	breaks_publish(u, now);
}

/* On failure what could be taken is in force: the daemon sees the error and decides. */
int publish(struct actuator *a, __u64 now)
{
	static struct ga_plans plans; /* a copy, so that what was checked is what is used */
	int error;

	plans = a->shared->plans;
	if (!in_bounds(&plans))
		return -EINVAL;
	if (!threads_at_least(a, plans.gpu_count + 1))
		return -EAGAIN;
	for_each_gpu(a, u) if (u->known || u->index < plans.gpu_count) take_gpu(u, &plans, now);
	error = take_all(a, &plans, now);
	for_each_gpu(a, u) if (u->known) gpu_settle(a, u->index, now);
	return error;
}

void process_exited(struct actuator *a, __u32 pid, __u64 now)
{
	for_each_plan(a, p)
	{
		if (p->used && p->plan.pid == pid)
			withdraw(a, p, GA_END_EXIT, now);
		if (p->own && p->own->plan.pid == pid)
			p->own = NULL;
	}
	for_each_group(a, g) if (g->used && g->plan.pid == pid) g->dead = true;
	for_each_slot(a, s) if (s->fd >= 0 && s->pid == pid) s->dropped = true;
	for_each_gpu(a, u)
	{
		if (!u->known)
			continue;
		turns_tick(u, now);
		gpu_settle(a, u->index, now);
	}
}
