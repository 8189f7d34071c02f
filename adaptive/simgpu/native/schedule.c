/* SPDX-License-Identifier: Apache-2.0 */
/* Who has the compute engine: turns, timeslices, context switches and the dry pushbuffer. */
#include "engine_internal.h"

#include <stddef.h>

static bool may_run(const struct engine *e, const struct stream *stream, bool resident)
{
	const struct channel *channel = &e->channel[stream->channel];

	return !channel->stuck && !channel->disabled && (resident || !channel->unscheduled);
}

/* A group is on the runlist when one of its scheduled channels has a kernel to run. */
static bool runnable(const struct engine *e, int group)
{
	if (!e->group[group].used)
		return false;
	for_each_stream(e, s, group)
	{
		const struct op *head = e->stream[s].head;

		if (head && is_compute(head) && may_run(e, &e->stream[s], false))
			return true;
	}
	return false;
}

/* The next runnable group after `after` in runlist order, `after` itself last (only if `self`). */
static int next_runnable(const struct engine *e, int gpu, int after, bool self)
{
	for (int i = 1; i <= e->group_top; i++) {
		int g = (after + i) % e->group_top;

		if (e->group[g].gpu == gpu && (self || g != after) && runnable(e, g))
			return g;
	}
	return NONE;
}

static int count_running(const struct engine *e, int group, uint32_t kind)
{
	int n = 0;

	for_each_stream(e, s, group)
	{
		const struct op *head = e->stream[s].head;

		n += head && head->running && head->kind == kind;
	}
	return n;
}

static bool any_running(const struct engine *e, int group)
{
	return count_running(e, group, OP_KERNEL) || count_running(e, group, OP_HOLD);
}

/* Is a kernel queued that has not started: behind another one, or behind a copy? */
static bool has_waiting(const struct engine *e, int group)
{
	for_each_stream(e, s, group)
	{
		if (!may_run(e, &e->stream[s], true))
			continue;
		for (const struct op *op = e->stream[s].head; op; op = op->next)
			if (is_compute(op) && !op->started)
				return true;
	}
	return false;
}

static uint64_t hold_limit(const struct engine *e, const struct op *op)
{
	uint64_t limit = (op->value >> 32) * 1000;

	return limit && limit < e->model.hold_limit ? limit : e->model.hold_limit;
}

static void op_run(struct engine *e, struct op *op)
{
	if (!op->started) {
		op->started = true;
		op->start = e->now;
		op->left = op->kind == OP_HOLD ? hold_limit(e, op) : op->arg;
	}
	op->running = true;
	op->end = e->now + op->left;
}

static void group_pause(struct engine *e, int group)
{
	for_each_stream(e, s, group)
	{
		struct op *head = e->stream[s].head;

		if (head && head->running) {
			head->left = head->end - e->now;
			head->running = false;
		}
	}
}

/* The stream whose kernel fills the engine next: one that was cut off first, then the oldest. */
static int pick_kernel(const struct engine *e, int group, bool fetch)
{
	int best = NONE;

	for_each_stream(e, s, group)
	{
		const struct op *head = e->stream[s].head, *other = best == NONE ? NULL : e->stream[best].head;

		if (!head || head->kind != OP_KERNEL || head->running || !may_run(e, &e->stream[s], true))
			continue;
		if (!head->started && !fetch)
			continue;
		if (!other || head->started > other->started ||
		    (head->started == other->started && head->submit < other->submit))
			best = s;
	}
	return best;
}

/* Hold kernels are one warp: they run beside anything. Other kernels fill the engine, one at a time. */
static void start_holds(struct engine *e, int group, bool fetch)
{
	int owner = e->group[group].owner;
	bool again = true;

	while (again) {
		again = false;
		for_each_stream(e, s, group)
		{
			struct op *head = e->stream[s].head;

			if (!head || head->kind != OP_HOLD || head->running || !may_run(e, &e->stream[s], true))
				continue;
			if (!head->started && !fetch)
				continue;
			op_run(e, head);
			if (e->callbacks.released &&
			    e->callbacks.released(e->callbacks.user, owner, head->arg, (uint32_t)head->value)) {
				stream_finish_head(e, s);
				again = true;
			}
		}
	}
}

static void start_ready(struct engine *e, int gpu)
{
	int group = e->gpu[gpu].resident;
	bool fetch = e->gpu[gpu].parked == NONE;

	start_holds(e, group, fetch);
	if (count_running(e, group, OP_KERNEL) == 0) {
		int s = pick_kernel(e, group, fetch);

		if (s != NONE)
			op_run(e, e->stream[s].head);
	}
}

static bool leaves_runlist(const struct engine *e, int group)
{
	for_each_stream(e, s, group) if (e->channel[e->stream[s].channel].unscheduled) return true;
	return false;
}

static bool any_realtime(const struct engine *e, int gpu)
{
	for (int g = 0; g < e->group_top; g++)
		if (e->group[g].used && e->group[g].gpu == gpu && e->group[g].realtime)
			return true;
	return false;
}

static void begin_switch(struct engine *e, int gpu, int target)
{
	struct gpu *u = &e->gpu[gpu];
	uint64_t cost = target == NONE ? 0 : e->model.load;

	if (u->resident != NONE) {
		cost += leaves_runlist(e, u->resident) ? e->model.save_soft : e->model.save;
		if (any_running(e, u->resident) && any_realtime(e, gpu))
			cost += e->model.block_preempt;
		group_pause(e, u->resident);
	}
	if (target != NONE)
		e->group[target].stats.switches++;
	u->resident = u->parked = NONE;
	u->target = target;
	u->switching = true;
	u->switch_end = e->now + cost;
}

void gpu_switch_done(struct engine *e, int gpu)
{
	struct gpu *u = &e->gpu[gpu];

	u->switching = false;
	u->resident = u->target;
	if (u->resident == NONE)
		return;
	u->turn = u->resident;
	uint64_t slice = e->group[u->resident].timeslice_us * 1000;
	u->slice_end = e->now + (slice ? slice : 1000) - e->model.slice_head;
	e->group[u->resident].waiting_since = ENGINE_NEVER;
}

/* An expired slice starts anew when nobody else wants the engine; called before anything else changes. */
void gpu_renew_slice(struct engine *e, int gpu)
{
	struct gpu *u = &e->gpu[gpu];

	if (u->switching || u->resident == NONE || (int64_t)(e->now - u->slice_end) < 0)
		return;
	if (next_runnable(e, gpu, u->resident, false) != NONE)
		return;
	uint64_t slice = e->group[u->resident].timeslice_us * 1000;
	slice = slice ? slice : 1000;
	u->slice_end += ((e->now - u->slice_end) / slice + 1) * slice;
}

/* Takes the resident group off the engine, whoever it is. */
void gpu_preempt(struct engine *e, int gpu)
{
	struct gpu *u = &e->gpu[gpu];

	if (u->switching || u->resident == NONE)
		return;
	begin_switch(e, gpu, next_runnable(e, gpu, u->resident, true));
}

/*
 * The host engine: once the resident group's pushbuffer is dry it moves on to the next runnable group and stays there,
 * so the resident's later launches are not fetched before that group has had its turn.
 */
static void move_host_engine(struct engine *e, int gpu, int next)
{
	struct gpu *u = &e->gpu[gpu];

	if (u->parked != NONE && !runnable(e, u->parked))
		u->parked = NONE;
	if (u->parked == NONE && next != NONE && any_running(e, u->resident) && !has_waiting(e, u->resident))
		u->parked = next;
}

/* Nothing runs: may the group stay because its kernels only wait for a copy? */
static bool waits_for_copy(struct engine *e, int gpu)
{
	struct group *group = &e->group[e->gpu[gpu].resident];

	if (e->gpu[gpu].parked != NONE || !has_waiting(e, e->gpu[gpu].resident)) {
		group->waiting_since = ENGINE_NEVER;
		return false;
	}
	if (group->waiting_since == ENGINE_NEVER)
		group->waiting_since = e->now;
	return e->now < group->waiting_since + e->model.acquire;
}

void gpu_schedule(struct engine *e, int gpu)
{
	struct gpu *u = &e->gpu[gpu];

	if (u->switching)
		return;
	if (u->resident == NONE) {
		int next = next_runnable(e, gpu, u->turn, true);

		if (next != NONE)
			begin_switch(e, gpu, next);
		return;
	}
	start_ready(e, gpu);
	int next = next_runnable(e, gpu, u->resident, false);
	move_host_engine(e, gpu, next);
	if (u->parked == NONE)
		start_ready(e, gpu);
	if (next == NONE)
		return;
	bool expired = (int64_t)(e->now - u->slice_end) >= 0;
	bool running = any_running(e, u->resident);
	if (running)
		e->group[u->resident].waiting_since = ENGINE_NEVER;
	if (expired || (!running && !waits_for_copy(e, gpu)))
		begin_switch(e, gpu, next);
}

bool gpu_busy(const struct engine *e, int gpu)
{
	return e->gpu[gpu].switching || next_runnable(e, gpu, e->gpu[gpu].turn, true) != NONE ||
	       (e->gpu[gpu].resident != NONE && any_running(e, e->gpu[gpu].resident));
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* When the scheduler of this GPU must act next. */
uint64_t gpu_next(const struct engine *e, int gpu)
{
	const struct gpu *u = &e->gpu[gpu];
	uint64_t next = ENGINE_NEVER;

	if (u->switching)
		return u->switch_end;
	if (u->resident == NONE)
		return next;
	for_each_stream(e, s, u->resident)
	{
		const struct op *head = e->stream[s].head;

		if (head && head->running)
			next = earlier(next, head->end);
	}
	if (next_runnable(e, gpu, u->resident, false) == NONE)
		return next;
	const struct group *group = &e->group[u->resident];
	if (group->waiting_since != ENGINE_NEVER)
		next = earlier(next, group->waiting_since + e->model.acquire);
	return earlier(next, (int64_t)(u->slice_end - e->now) < 0 ? e->now : u->slice_end);
}
