/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long turns last: their part of the GPU's time, or less, so that none waits for much longer than the plan says by
 * the clock on the wall. To no less than a unit of their job's work: one that is cut in two waits for two rounds. Who
 * had too little of it, by that or in a hurry, has more the next time.
 */
#include "actuator.h"

#define SHORTEST_NS 4000000ull /* ten times what passing a turn on takes */
#define WHOLE 1000

void lengths_publish(struct gpu *u)
{
	__u64 sum = 0, shortest = NEVER, longest = 0;

	for (__u32 i = 0; i < u->plan.turn_count; i++) {
		sum += u->plan.turn_us[i];
		shortest = earlier(shortest, u->plan.turn_us[i]);
		longest = later(longest, u->plan.turn_us[i]);
	}
	u->wait_ns = u->plan.turn_count > 1 && sum > shortest ? u->plan.wait_us * US : 0;
	/* Whoever has the shortest waits for all the others. */
	u->wall_permille = u->wait_ns ? (__u64)u->plan.wait_us * WHOLE / (sum - shortest) : 0;
	u->longest_wall_ns = longest * US * u->wall_permille / WHOLE;
}

/* Of the GPU's time, without a bound. */
__u64 turn_ns(const struct gpu *u)
{
	return u->plan.turn_us[u->turn] * US;
}

static __u64 least_ns(const struct gpu *u)
{
	__u64 unit = u->unit_ns[u->turn];

	return later(SHORTEST_NS, unit + unit / 2); /* with what passing on and reservations cost */
}

/* A turn that is shortened for what its job had too much still has room for a unit, if a whole one has. */
__u64 turn_due_ns(const struct gpu *u)
{
	return later(turn_ns(u) * u->due_permille / WHOLE, earlier(least_ns(u), turn_ns(u)));
}

/* By the clock on the wall. */
static __u64 turn_wall_ns(const struct gpu *u)
{
	return turn_due_ns(u) * u->wall_permille / WHOLE;
}

/* When somebody will have waited for as long as the plan says. */
static __u64 somebody_waited(const struct gpu *u)
{
	__u64 since = NEVER - u->wait_ns;

	for_each_group(u->actuator, g)
	{
		if (g->used && g->plan.role == GA_ROLE_BE && g->plan.gpu == u->index && g->plan.turn != u->turn &&
		    g->plan.turn < GA_MAX_TURNS && !g->paused_until)
			since = earlier(since, u->waits_since[g->plan.turn]);
	}
	return since + u->wait_ns;
}

/* While the clock of turns runs. */
__u64 turn_end(const struct gpu *u)
{
	__u64 end = u->turn_since + u->turn_left_ns, least = least_ns(u), wall;

	if (!u->wait_ns)
		return end;
	wall = earlier(u->turn_began + turn_wall_ns(u), somebody_waited(u));
	return earlier(end, later(wall, u->turn_since + least - earlier(least, u->turn_had_ns)));
}

bool turn_is_nearly_over(const struct gpu *u)
{
	__u64 whole = turn_ns(u);

	if (!u->wait_ns)
		return u->turn_left_ns < whole / 4;
	whole = earlier(whole, turn_wall_ns(u));
	return u->turn_had_ns >= least_ns(u) && turn_end(u) < u->turn_since + whole / 4;
}

/* Another turn before this one might be one too many. */
bool waits_for_long(const struct gpu *u, __u32 turn, __u64 now)
{
	return u->wait_ns && now + u->longest_wall_ns > u->waits_since[turn] + u->wait_ns;
}
