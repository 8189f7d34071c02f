/* SPDX-License-Identifier: Apache-2.0 */
/* One best-effort process at a time: whose turn it is. lengths.c says how long. */
#include "actuator.h"

#include <string.h>

#define WHOLE_TURN 1000000ull /* of 'served' */
#define MOST_BEHIND WHOLE_TURN
#define FAR_BEHIND (WHOLE_TURN / 8)
#define PAUSE_BELIEVED_NS 1000000000ull
#define DOUBT_NS 500000ull	 /* passing a turn on takes nearly as long */
#define SHORT_TURN_NS 5000000ull /* ten times as long */
#define UNIT_SHIFT 4		 /* a sixteenth of what the longest unit took is forgotten with each */
#define HURRIED_NS 15000000ull	 /* what is left to a turn that somebody is in a hurry for: room for most units */

static bool has_turns(const struct gpu *u)
{
	return u->plan.turn_count > 1;
}

bool turns_allow(const struct gpu *u, const struct group *g)
{
	return !has_turns(u) || g->plan.turn == u->turn;
}

static void tell_turn(struct gpu *u, __u64 now)
{
	__u64 had_ns = now - u->turn_since;

	u->actuator->shared->turns[u->index].had_ns[u->turn] += had_ns;
	if (turn_ns(u)) /* none where nobody takes turns */
		u->served[u->turn] += had_ns * WHOLE_TURN / turn_ns(u);
}

/* What each had before counts for nobody. */
static void begin_anew(struct gpu *u, __u64 now)
{
	memset(u->served, 0, sizeof(u->served));
	memset(u->unit_ns, 0, sizeof(u->unit_ns));
	for (__u32 i = 0; i < GA_MAX_TURNS; i++)
		u->waits_since[i] = now;
	if (u->turn_since != NEVER)
		u->turn_since = now;
	u->turn_began = now;
	u->turn_had_ns = 0;
	u->due_permille = 1000;
}

/* ``pids``: whose each turn is, 0: nobody's. */
void turns_publish(struct gpu *u, const struct ga_gpu *plan, const __u32 *pids, __u64 now)
{
	if (u->plan.turn_count != plan->turn_count || memcmp(u->turn_pids, pids, sizeof(u->turn_pids)))
		begin_anew(u, now);
	memcpy(u->turn_pids, pids, sizeof(u->turn_pids));
	u->plan = *plan;
	lengths_publish(u);
	if (u->turn >= plan->turn_count)
		u->turn = 0;
	if (!u->turn_left_ns || u->turn_left_ns > turn_due_ns(u))
		u->turn_left_ns = turn_due_ns(u);
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
		if (turn_is_nearly_over(u))
			u->turn_left_ns = 0;
		return;
	}
	tell_turn(u, now);
	u->turn_left_ns -= earlier(u->turn_left_ns, now - u->turn_since);
	u->turn_had_ns += now - u->turn_since;
	u->turn_since = NEVER;
}

static bool has_turn(const struct gpu *u, const struct group *g, __u32 turn)
{
	return g->used && !g->leaving && !g->dead && g->plan.role == GA_ROLE_BE && g->plan.gpu == u->index &&
	       g->plan.turn == turn;
}

static bool turn_is_alive(const struct gpu *u, __u32 turn)
{
	if (!u->turn_pids[turn])
		return true;
	for_each_group(u->actuator, g) if (has_turn(u, g, turn)) return true;
	return false;
}

bool has_paused(const struct group *g, __u64 now)
{
	return now >= g->doubted_until && now < g->paused_until;
}

/* Its process is there and, as far as is known, has something to do. The turn of nobody is always wanted. */
static bool turn_is_wanted(const struct gpu *u, __u32 turn, __u64 now)
{
	if (!u->turn_pids[turn])
		return true;
	for_each_group(u->actuator, g) if (has_turn(u, g, turn) && !has_paused(g, now)) return true;
	return false;
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

/* What those who want turns had on average. */
static __u64 mean_served(const struct gpu *u, __u64 now)
{
	__u64 sum = 0, count = 0;

	for (__u32 i = 0; i < u->plan.turn_count; i++) {
		if (!turn_is_wanted(u, i, now))
			continue;
		sum += u->served[i];
		count++;
	}
	return count ? sum / count : u->served[u->turn];
}

/*
 * Who had too little has a longer turn, who had too much a shorter one, by half of it at most. One that begins is
 * behind those who had theirs in this round, by less than half of a turn on average.
 */
static __u64 due_permille(const struct gpu *u, __u64 now)
{
	__u64 own = u->served[u->turn], mean = mean_served(u, now), usual = own + WHOLE_TURN / 2;

	if (mean > usual)
		return 1000 + earlier(mean - usual, WHOLE_TURN / 2) / 1000;
	return 1000 - earlier(own - earlier(own, mean), WHOLE_TURN / 2) / 1000;
}

static void begin_turn(struct gpu *u, __u64 now)
{
	u->due_permille = due_permille(u, now);
	u->turn_left_ns = turn_due_ns(u);
	u->turn_had_ns = 0;
	u->turn_began = now;
	for_each_group(u->actuator, g)
	{
		if (has_turn(u, g, u->turn) && g->paused_until && now >= g->paused_until)
			u->turn_left_ns = earlier(u->turn_left_ns, SHORT_TURN_NS);
	}
	if (u->turn_since != NEVER)
		u->turn_since = now;
}

/* When a pause of whose turn it is will be believed. */
static __u64 doubt_end(const struct gpu *u)
{
	__u64 end = NEVER;

	for_each_group(u->actuator, g)
	{
		if (has_turn(u, g, u->turn) && g->doubted_until)
			end = earlier(end, g->doubted_until);
	}
	return end;
}

static void believe(struct gpu *u, __u64 now)
{
	for_each_group(u->actuator, g)
	{
		if (has_turn(u, g, u->turn) && now >= g->doubted_until)
			g->doubted_until = 0;
	}
}

/*
 * The turn of a process that exited is passed on at once. That of one that pauses as well, but not during a
 * reservation, which controls that nobody is in a hurry for might disturb; nor to nobody's use.
 */
void turns_tick(struct gpu *u, __u64 now)
{
	bool counts = u->turn_since != NEVER, over = counts && now >= turn_end(u);
	__u32 next;

	believe(u, now);
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
	begin_turn(u, now);
	gpu_settle(u->actuator, u->index, now);
}

__u64 turns_deadline(const struct gpu *u)
{
	return has_turns(u) && u->turn_since != NEVER ? earlier(turn_end(u), doubt_end(u)) : NEVER;
}

/* Who paused for long has little claim on what it missed, or others would wait for long in their turn. */
static void forgive(struct gpu *u, __u32 turn, __u64 now)
{
	__u64 least = NEVER;

	for (__u32 i = 0; i < u->plan.turn_count; i++)
		if (i != turn && turn_is_wanted(u, i, now))
			least = earlier(least, u->served[i]);
	if (least == NEVER)
		least = u->served[u->turn];
	u->served[turn] = later(u->served[turn], least - earlier(least, MOST_BEHIND));
}

/* Somebody who was served much less works again: whoever has the turn keeps half of it. */
static void hurry(struct gpu *u, __u32 turn)
{
	__u64 kept = later(turn_ns(u) / 2, HURRIED_NS);

	if (u->served[turn] + FAR_BEHIND < u->served[u->turn])
		u->turn_left_ns = earlier(u->turn_left_ns, kept - earlier(kept, u->turn_had_ns));
}

static __u64 had_ns(const struct gpu *u, __u32 turn, __u64 now)
{
	__u64 before = u->actuator->shared->turns[u->index].had_ns[turn];

	return before + (turn == u->turn && u->turn_since != NEVER ? now - u->turn_since : 0);
}

/*
 * A unit of work is done: it may have run on while reservations began, and so seem shorter than it is. The next one
 * waits if it would be cut in two: so others wait less, and it no longer.
 */
static void unit_ends(struct gpu *u, __u32 turn, __u64 now)
{
	__u64 *unit = &u->unit_ns[turn], took = had_ns(u, turn, now) - u->unit_from_ns[turn];

	*unit = later(took, *unit - (*unit >> UNIT_SHIFT));
	if (turn == u->turn && u->turn_since != NEVER && turn_end(u) < now + *unit)
		u->turn_left_ns = earlier(u->turn_left_ns, now - u->turn_since);
}

static void pause_ends(struct gpu *u, __u32 turn, bool believed, __u64 now)
{
	u->unit_from_ns[turn] = had_ns(u, turn, now);
	if (!believed) /* it has waited all the time */
		return;
	u->waits_since[turn] = now;
	forgive(u, turn, now);
	hurry(u, turn);
}

/* A best-effort process has nothing to do, or works again. */
void turns_pause(struct actuator *a, const struct gs_event *event, __u64 now)
{
	for_each_group(a, g)
	{
		struct gpu *u = &a->gpus[g->plan.gpu];
		bool believed = has_paused(g, now);

		if (!g->used || g->plan.pid != event->pid || g->plan.role != GA_ROLE_BE)
			continue;
		g->doubted_until = event->result == GS_PAUSE_IN_DOUBT ? now + DOUBT_NS : 0;
		g->paused_until = event->result ? now + PAUSE_BELIEVED_NS : 0;
		if (g->plan.turn >= u->plan.turn_count)
			continue;
		if (event->result && event->flags & GS_FLAG_WHOLE)
			unit_ends(u, g->plan.turn, now);
		if (!event->result)
			pause_ends(u, g->plan.turn, believed, now);
	}
}
