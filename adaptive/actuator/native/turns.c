/* SPDX-License-Identifier: Apache-2.0 */
#include "actuator.h"

#define BUDGET_WINDOW_NS 1000000000ll /* reserved time may be used up at once within this */

static __u64 turn_ns(const struct gpu *u)
{
	return u->plan.turn_us[u->turn] * US;
}

static bool has_turns(const struct gpu *u)
{
	return u->plan.turn_count > 1;
}

static void tell_turn(struct gpu *u, __u64 now)
{
	u->actuator->shared->turns[u->index].had_ns[u->turn] += now - u->turn_since;
}

void turns_publish(struct gpu *u, const struct ga_gpu *plan)
{
	u->plan = *plan;
	if (u->turn >= plan->turn_count)
		u->turn = 0;
	if (!u->turn_left_ns || u->turn_left_ns > turn_ns(u))
		u->turn_left_ns = turn_ns(u);
}

/* A turn is time in which its process may run: the clock stands still while the GPU is reserved. */
void turns_clock(struct gpu *u, __u64 now)
{
	bool stands = u->turn_since == NEVER;

	if (gpu_is_reserved(u->actuator, u->index) == stands)
		return;
	if (stands) {
		u->turn_since = now;
		return;
	}
	tell_turn(u, now);
	u->turn_left_ns -= earlier(u->turn_left_ns, now - u->turn_since);
	u->turn_since = NEVER;
}

static bool turn_is_alive(const struct gpu *u)
{
	if (u->idle_turns >> u->turn & 1)
		return true;
	for_each_group(u->actuator, g)
	{
		if (g->used && !g->leaving && !g->dead && g->plan.role == GA_ROLE_BE && g->plan.gpu == u->index &&
		    g->plan.turn == u->turn)
			return true;
	}
	return false;
}

/* The turn of a process that exited is passed on at once. */
void turns_tick(struct gpu *u, __u64 now)
{
	bool over = u->turn_since != NEVER && now >= turns_deadline(u);

	if (!has_turns(u) || !(over || !turn_is_alive(u)))
		return;
	if (u->turn_since != NEVER)
		tell_turn(u, now);
	for (__u32 i = 0; i < u->plan.turn_count; i++) {
		u->turn = (u->turn + 1) % u->plan.turn_count;
		if (turn_is_alive(u))
			break;
	}
	u->turn_left_ns = turn_ns(u);
	if (u->turn_since != NEVER)
		u->turn_since = now;
	u->actuator->shared->counters.turns++;
	gpu_settle(u->actuator, u->index, now);
}

__u64 turns_deadline(const struct gpu *u)
{
	return has_turns(u) && u->turn_since != NEVER ? u->turn_since + u->turn_left_ns : NEVER;
}

__s64 budget_left(struct gpu *u, __u64 now)
{
	__s64 share = u->plan.max_reserved_permille, full = BUDGET_WINDOW_NS / 1000 * share;
	__s64 elapsed = (__s64)earlier(now - u->budget_at, 2 * BUDGET_WINDOW_NS);

	if (!share)
		return INT64_MAX;
	u->budget_ns += elapsed / 1000 * share;
	u->budget_at = now;
	if (u->budget_ns > full)
		u->budget_ns = full;
	if (u->budget_ns >= full / 4)
		u->exhausted = false;
	return u->exhausted ? 0 : u->budget_ns; /* not crumbs: a cut reservation helps nobody */
}

void budget_spend(struct gpu *u, __u64 spent_ns)
{
	if (!u->plan.max_reserved_permille)
		return;
	u->budget_ns -= (__s64)spent_ns;
	u->exhausted |= u->budget_ns <= 0;
}
