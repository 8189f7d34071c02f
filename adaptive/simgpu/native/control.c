/* SPDX-License-Identifier: Apache-2.0 */
/* Controls of the embedded GPU: what they cost (idle and under load) and what they change. */
#include "engine_internal.h"

#include <stdlib.h>
#include <string.h>

/* us, medians measured on an H200: first with an idle GPU, then with two busy processes. */
static const uint32_t COST[CTL_KINDS][2] = {
    [CTL_SET_TIMESLICE] = {240, 440}, [CTL_PREEMPT] = {125, 240},	    [CTL_PREEMPT_WAIT] = {350, 450},
    [CTL_SCHEDULE] = {244, 380},      [CTL_DISABLE] = {540, 640},	    [CTL_DISABLE_SCHEDULING] = {270, 440},
    [CTL_ENABLE] = {305, 430},	      [CTL_ENABLE_SCHEDULING] = {270, 430}, [CTL_INTERLEAVE] = {250, 440},
    [CTL_RESTART] = {115, 290},	      [CTL_REALTIME] = {1270, 1270},
};

/* Only these change who runs; a restart acts when the firmware is done with it, the others before they answer. */
static uint64_t effect_delay(const struct engine *e, uint32_t kind, uint64_t cost)
{
	return kind == CTL_RESTART ? cost : cost * e->model.effect_pct / 100;
}

static void insert(struct engine *e, struct control *control)
{
	struct control **link = &e->controls;

	while (*link && (*link)->effect <= control->effect)
		link = &(*link)->next;
	control->next = *link;
	*link = control;
}

uint64_t engine_control(struct engine *e, int gpu, uint32_t kind, const int *ids, int count, uint64_t value)
{
	if (gpu < 0 || gpu >= e->gpus || kind >= CTL_KINDS || count < 0)
		return e->now;
	struct control *control = calloc(1, sizeof(*control) + (size_t)count * sizeof(int));
	if (!control)
		return e->now;
	struct gpu *u = &e->gpu[gpu];
	uint64_t begin = u->lock_free > e->now ? u->lock_free : e->now;
	uint64_t cost = COST[kind][gpu_busy(e, gpu)] * 1000ull;

	memcpy(control->ids, ids, (size_t)count * sizeof(int));
	control->kind = kind;
	control->gpu = gpu;
	control->count = count;
	control->value = value;
	control->effect = begin + effect_delay(e, kind, cost);
	u->lock_free = begin + cost;
	insert(e, control);
	return u->lock_free;
}

/* Whether any context is left on the runlist, idle or not. */
static bool anybody_scheduled(const struct engine *e, int gpu)
{
	for (int id = 0; id < MAX_CHANNELS; id++) {
		const struct channel *channel = &e->channel[id];
		const struct group *group = &e->group[channel->group];

		if (channel->used && !channel->disabled && !channel->unscheduled && group->gpu == gpu &&
		    group->first_stream != NONE)
			return true;
	}
	return false;
}

static void set_channels(struct engine *e, const struct control *control)
{
	for (int i = 0; i < control->count; i++) {
		int id = control->ids[i];

		if (id < 0 || id >= MAX_CHANNELS || !e->channel[id].used)
			continue;
		struct channel *channel = &e->channel[id];

		/* On an H200 one that is disabled after it was taken off the runlist does no work any more, whatever
		 * follows. */
		if (control->kind == CTL_DISABLE) {
			channel->stuck |= channel->unscheduled;
			channel->disabled = true;
		}
		if (control->kind == CTL_DISABLE_SCHEDULING)
			channel->unscheduled = true;
		/* A full enable puts a channel back on the runlist too; a scheduling-only one undoes only its like. */
		if (control->kind == CTL_ENABLE)
			channel->disabled = channel->unscheduled = false;
		if (control->kind == CTL_ENABLE_SCHEDULING)
			channel->unscheduled = false;
	}
	/* Jobs stood still on an H200, why is not known: here they do where that leaves the runlist empty. */
	if (control->kind != CTL_DISABLE_SCHEDULING || anybody_scheduled(e, control->gpu))
		return;
	for (int i = 0; i < control->count; i++)
		if (control->ids[i] >= 0 && control->ids[i] < MAX_CHANNELS)
			e->channel[control->ids[i]].stuck = true;
}

static void set_timeslice(struct engine *e, int gpu, int group, uint64_t us)
{
	struct gpu *u = &e->gpu[gpu];
	uint64_t slice = (us ? us : 1) * 1000;

	e->group[group].timeslice_us = us;
	if (!u->switching && u->resident == group && u->slice_end > e->now + slice)
		u->slice_end = e->now + slice;
}

void control_apply(struct engine *e, const struct control *control)
{
	struct gpu *u = &e->gpu[control->gpu];
	int group = control->count > 0 ? control->ids[0] : NONE;
	bool alive = group >= 0 && group < MAX_GROUPS && e->group[group].used;

	switch (control->kind) {
	case CTL_SET_TIMESLICE:
		if (alive)
			set_timeslice(e, control->gpu, group, control->value);
		break;
	case CTL_PREEMPT:
	case CTL_PREEMPT_WAIT:
		if (alive && u->resident == group)
			gpu_preempt(e, control->gpu);
		break;
	case CTL_DISABLE:
		/* The driver preempts the whole runlist to take channels off it: whoever runs is cut off. */
		set_channels(e, control);
		gpu_preempt(e, control->gpu);
		break;
	case CTL_DISABLE_SCHEDULING:
	case CTL_ENABLE:
	case CTL_ENABLE_SCHEDULING:
		set_channels(e, control);
		break;
	case CTL_RESTART:
		if (!u->switching)
			u->slice_end = e->now;
		break;
	case CTL_REALTIME:
		if (alive)
			e->group[group].realtime = control->value;
		break;
	default: /* accepted, no effect: GPFIFO_SCHEDULE, SET_INTERLEAVE_LEVEL */
		break;
	}
}
