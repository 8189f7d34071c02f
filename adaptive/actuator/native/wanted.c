/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each group should be, and which control is the most urgent. Nothing is changed here: worker.c does what is due.
 */
#include "actuator.h"

#define MAX_DISABLE_ATTEMPTS 3
#define MAX_STOP_ATTEMPTS 6

static enum mode mechanism_mode(__u32 mechanism)
{
	if (mechanism & GA_DISABLE)
		return MODE_DISABLED;
	return mechanism & GA_DISABLE_SCHEDULING ? MODE_UNSCHEDULED : MODE_ENABLED;
}

enum mode group_wanted(const struct actuator *a, const struct group *g)
{
	const struct gpu *u = &a->gpus[g->plan.gpu];
	enum mode wanted = MODE_ENABLED;

	if (a->stopping || g->leaving)
		return MODE_ENABLED;
	if (g->plan.role != GA_ROLE_BE)
		return u->on_break || must_wait(a, g) ? MODE_DISABLED : MODE_ENABLED;
	if (!turns_allow(u, g)) /* off the runlist would do, for half the time: but on an H200 such jobs stood still */
		return MODE_DISABLED;
	for_each_plan(a, p)
	{
		if (p->used && p->phase == RESERVED && p->plan.gpu == g->plan.gpu &&
		    mechanism_mode(p->plan.mechanism) > wanted)
			wanted = mechanism_mode(p->plan.mechanism);
	}
	return wanted;
}

/* Who is off is off, in whatever way: whoever was only taken off the runlist has made room for another since. */
static bool is_as(enum mode actual, enum mode wanted)
{
	bool is_off = actual == MODE_DISABLED || actual == MODE_UNSCHEDULED;

	return actual == wanted || (is_off && wanted != MODE_ENABLED);
}

/* What to ask for: a control that is repeated, since one failed or channels are new, is the same one again. */
enum mode way_to(const struct group *g, enum mode wanted)
{
	return wanted != MODE_ENABLED && g->off_by != MODE_ENABLED ? g->off_by : wanted;
}

/* A disable that keeps failing is given up until something else is wanted; an enable never is, while the daemon lives.
 */
static bool given_up(const struct actuator *a, const struct group *g, enum mode wanted)
{
	if (wanted != g->target)
		return false;
	if (wanted != MODE_ENABLED)
		return g->attempts >= MAX_DISABLE_ATTEMPTS;
	return a->stopping && g->attempts >= MAX_STOP_ATTEMPTS;
}

bool needs_control(const struct actuator *a, const struct group *g, unsigned gpu)
{
	enum mode wanted = group_wanted(a, g);

	return g->used && !g->dead && g->plan.gpu == gpu && !is_as(g->actual, wanted) && !given_up(a, g, wanted);
}

static __u64 due(const struct actuator *a, const struct group *g)
{
	return group_wanted(a, g) == g->target ? g->retry_ns : 0;
}

static bool has_service(const struct actuator *a, unsigned gpu)
{
	for_each_group(a, g) if (g->used && g->plan.gpu == gpu && g->plan.role == GA_ROLE_LC) return true;
	return false;
}

/*
 * Disabling goes first: a reservation waits for it, and of two turns the old one must leave before the new one runs,
 * since with the short slices that both have beside a service neither would get on; but not who has nothing to run.
 * Where there is no service both work on with slices of their own meanwhile, and passing on costs a third.
 */
static unsigned urgency(const struct actuator *a, const struct group *g, __u64 now)
{
	enum mode wanted = group_wanted(a, g);

	if (wanted == MODE_ENABLED)
		return has_service(a, g->plan.gpu) ? 1 : MODE_UNKNOWN + 1;
	return has_paused(g, now) ? 0 : wanted + 1;
}

struct group *most_urgent(struct actuator *a, unsigned gpu, __u64 now)
{
	struct group *found = NULL;

	for_each_group(a, g)
	{
		if (!needs_control(a, g, gpu) || due(a, g) > now)
			continue;
		if (!found || urgency(a, g, now) > urgency(a, found, now))
			found = g;
	}
	return found;
}

__u64 next_retry(const struct actuator *a, unsigned gpu)
{
	__u64 next = NEVER;

	for_each_group(a, g) if (needs_control(a, g, gpu)) next = earlier(next, due(a, g));
	return next;
}
