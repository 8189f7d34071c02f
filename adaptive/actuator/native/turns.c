/* SPDX-License-Identifier: Apache-2.0 */
#include "actuator.h"

#include <string.h>

#define BUDGET_WINDOW_NS 1000000000ll /* reserved time may be used up at once within this */
#define WHOLE_TURN 1000000ull	      /* of 'served' */
#define MOST_BEHIND (WHOLE_TURN / 4)
#define PAUSE_BELIEVED_NS 1000000000ull
#define SHORT_TURN_NS 5000000ull /* ten times what passing a turn on takes */

static __u64 turn_ns(const struct gpu *u)
{
	return u->plan.turn_us[u->turn] * US;
}

static bool has_turns(const struct gpu *u)
{
	return u->plan.turn_count > 1;
}

bool turns_allow(const struct gpu *u, const struct group *g)
{
	return !has_turns(u) || g->plan.turn == u->turn;
}

/*
 * Off the runlist is enough where another takes over: it is the cheaper control, and what runs goes on until then.
 * Where nobody does, what runs must be taken off, too.
 */
enum mode turns_off_mode(const struct gpu *u)
{
	return u->idle_turns >> u->turn & 1 ? MODE_DISABLED : MODE_UNSCHEDULED;
}

static void tell_turn(struct gpu *u, __u64 now)
{
	__u64 had_ns = now - u->turn_since;

	u->actuator->shared->turns[u->index].had_ns[u->turn] += had_ns;
	if (turn_ns(u)) /* none where nobody takes turns */
		u->served[u->turn] += had_ns * WHOLE_TURN / turn_ns(u);
}

void turns_publish(struct gpu *u, const struct ga_gpu *plan, __u64 now)
{
	if (u->plan.turn_count != plan->turn_count) { /* what each had before counts for nobody */
		memset(u->served, 0, sizeof(u->served));
		for (__u32 i = 0; i < GA_MAX_TURNS; i++)
			u->waits_since[i] = now;
		if (u->turn_since != NEVER)
			u->turn_since = now;
	}
	u->plan = *plan;
	if (u->turn >= plan->turn_count)
		u->turn = 0;
	if (!u->turn_left_ns || u->turn_left_ns > turn_ns(u))
		u->turn_left_ns = turn_ns(u);
}

/*
 * A turn is time in which its process may run: the clock stands still while the GPU is reserved. One that is nearly
 * over ends with the reservation: then the next burst is farthest off, which controls that are under way would hold up.
 */
void turns_clock(struct gpu *u, __u64 now)
{
	bool stands = u->turn_since == NEVER;

	if (gpu_is_reserved(u->actuator, u->index) == stands)
		return;
	if (stands) {
		u->turn_since = now;
		if (u->turn_left_ns < turn_ns(u) / 4)
			u->turn_left_ns = 0;
		return;
	}
	tell_turn(u, now);
	u->turn_left_ns -= earlier(u->turn_left_ns, now - u->turn_since);
	u->turn_since = NEVER;
}

static bool has_turn(const struct gpu *u, const struct group *g, __u32 turn)
{
	return g->used && !g->leaving && !g->dead && g->plan.role == GA_ROLE_BE && g->plan.gpu == u->index &&
	       g->plan.turn == turn;
}

static bool turn_is_alive(const struct gpu *u, __u32 turn)
{
	if (u->idle_turns >> turn & 1)
		return true;
	for_each_group(u->actuator, g) if (has_turn(u, g, turn)) return true;
	return false;
}

/* Its process is there and, as far as is known, has something to do. The turn of nobody is always wanted. */
static bool turn_is_wanted(const struct gpu *u, __u32 turn, __u64 now)
{
	if (u->idle_turns >> turn & 1)
		return true;
	for_each_group(u->actuator, g) if (has_turn(u, g, turn) && now >= g->paused_until) return true;
	return false;
}

/* Nobody waits for much longer than two turns of its own. */
static bool waits_for_long(const struct gpu *u, __u32 turn, __u64 now)
{
	return now > u->waits_since[turn] + 2 * u->plan.turn_us[turn] * US;
}

/* Whether the first of two turns that are wanted goes before the second. */
static bool goes_before(const struct gpu *u, __u32 first, __u32 second, __u64 now)
{
	bool late = waits_for_long(u, first, now);

	if (late != waits_for_long(u, second, now))
		return late;
	return late ? u->waits_since[first] < u->waits_since[second] : u->served[first] < u->served[second];
}

/*
 * Of the others that are wanted the one that was served least, in parts of its own turn; in order, where they are even.
 * Whose turn it was goes on only if nobody else wants it.
 */
static __u32 next_turn(const struct gpu *u, __u64 now)
{
	__u32 count = u->plan.turn_count, found = count;

	for (__u32 i = 1; i < count; i++) {
		__u32 turn = (u->turn + i) % count;

		if (turn_is_wanted(u, turn, now) && (found == count || goes_before(u, turn, found, now)))
			found = turn;
	}
	if (found != count || turn_is_wanted(u, u->turn, now))
		return found != count ? found : u->turn;
	for (__u32 i = 0; i < count; i++)
		if (turn_is_alive(u, (u->turn + i) % count))
			return (u->turn + i) % count;
	return u->turn;
}

/* Who paused for long has little claim on what it missed, or others would wait for long in their turn. */
static void forgive(struct gpu *u)
{
	__u64 least = u->served[u->turn];

	for (__u32 i = 0; least > MOST_BEHIND && i < u->plan.turn_count; i++)
		if (u->served[i] < least - MOST_BEHIND)
			u->served[i] = least - MOST_BEHIND;
}

/* A job that pauses gets a short turn now and then all the same: the word that it works again may have been lost. */
static void end_turn(struct gpu *u, __u64 now)
{
	u->waits_since[u->turn] = now;
	for_each_group(u->actuator, g)
	{
		if (has_turn(u, g, u->turn) && g->paused_until && now >= g->paused_until)
			g->paused_until = now + PAUSE_BELIEVED_NS;
	}
}

static void begin_turn(struct gpu *u, __u64 now)
{
	u->turn_left_ns = turn_ns(u);
	u->hurried = false;
	for_each_group(u->actuator, g)
	{
		if (has_turn(u, g, u->turn) && g->paused_until && now >= g->paused_until)
			u->turn_left_ns = earlier(u->turn_left_ns, SHORT_TURN_NS);
	}
	if (u->turn_since != NEVER)
		u->turn_since = now;
}

/*
 * The turn of a process that exited is passed on at once. That of one that pauses as well, but not during a
 * reservation, which controls that nobody is in a hurry for might disturb; nor to nobody's use.
 */
void turns_tick(struct gpu *u, __u64 now)
{
	bool counts = u->turn_since != NEVER, over = counts && now >= turns_deadline(u);
	__u32 next;

	if (!has_turns(u) || (!over && turn_is_alive(u, u->turn) && (!counts || turn_is_wanted(u, u->turn, now))))
		return;
	next = next_turn(u, now);
	if (next == u->turn && !over)
		return;
	if (counts)
		tell_turn(u, now);
	end_turn(u, now);
	u->actuator->shared->counters.turns += next != u->turn;
	u->turn = next;
	forgive(u);
	begin_turn(u, now);
	gpu_settle(u->actuator, u->index, now);
}

/* Somebody who was served much less works again: whoever has the turn keeps half of it. */
static void hurry(struct gpu *u, __u32 turn, __u64 now)
{
	__u64 elapsed = u->turn_since == NEVER ? 0 : now - u->turn_since, half = turn_ns(u) / 2;

	if (u->hurried || turn >= u->plan.turn_count || u->served[turn] + MOST_BEHIND / 2 >= u->served[u->turn])
		return;
	u->hurried = true;
	u->turn_left_ns = u->turn_left_ns > elapsed + half ? u->turn_left_ns - half : earlier(u->turn_left_ns, elapsed);
}

/* A best-effort process has nothing to do, or works again. */
void turns_pause(struct actuator *a, const struct gs_event *event, __u64 now)
{
	for_each_group(a, g)
	{
		if (!g->used || g->plan.pid != event->pid || g->plan.role != GA_ROLE_BE)
			continue;
		g->paused_until = event->result ? now + PAUSE_BELIEVED_NS : 0;
		if (event->result || g->plan.turn >= GA_MAX_TURNS)
			continue;
		a->gpus[g->plan.gpu].waits_since[g->plan.turn] = now;
		hurry(&a->gpus[g->plan.gpu], g->plan.turn, now);
	}
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
