/* SPDX-License-Identifier: Apache-2.0 */
/* Groups, channels and streams of the embedded GPU. */
#include "engine_internal.h"

#include <stdlib.h>

void stream_clear(struct stream *stream)
{
	while (stream->head) {
		struct op *op = stream->head;

		stream->head = op->next;
		free(op);
	}
	stream->tail = NULL;
}

static bool group_ok(const struct engine *e, int group)
{
	return group >= 0 && group < MAX_GROUPS && e->group[group].used;
}

int engine_group_new(struct engine *e, int gpu, int owner)
{
	if (gpu < 0 || gpu >= e->gpus)
		return NONE;
	for (int g = 0; g < MAX_GROUPS; g++) {
		if (e->group[g].used)
			continue;
		e->group[g] = (struct group){.used = true,
					     .gpu = gpu,
					     .owner = owner,
					     .first_stream = NONE,
					     .timeslice_us = ENGINE_DEFAULT_TIMESLICE_US,
					     .waiting_since = ENGINE_NEVER};
		if (g >= e->group_top)
			e->group_top = g + 1;
		return g;
	}
	return NONE;
}

void engine_group_free(struct engine *e, int group)
{
	if (!group_ok(e, group))
		return;
	struct gpu *u = &e->gpu[e->group[group].gpu];

	while (e->group[group].first_stream != NONE)
		engine_stream_free(e, e->group[group].first_stream);
	for (int c = 0; c < MAX_CHANNELS; c++)
		if (e->channel[c].used && e->channel[c].group == group)
			e->channel[c].used = false;
	e->group[group].used = false;
	if (u->resident == group)
		u->resident = NONE;
	if (u->target == group)
		u->target = NONE;
	if (u->parked == group)
		u->parked = NONE;
	gpu_settle(e, e->group[group].gpu);
}

int engine_channel_new(struct engine *e, int group)
{
	if (!group_ok(e, group))
		return NONE;
	for (int c = 0; c < MAX_CHANNELS; c++) {
		if (e->channel[c].used)
			continue;
		e->channel[c] = (struct channel){.used = true, .group = group};
		return c;
	}
	return NONE;
}

void engine_channel_free(struct engine *e, int channel)
{
	if (channel < 0 || channel >= MAX_CHANNELS || !e->channel[channel].used)
		return;
	int group = e->channel[channel].group;
	int s = e->group[group].first_stream;

	while (s != NONE) {
		int next = e->stream[s].next_of_group;

		if (e->stream[s].channel == channel)
			engine_stream_free(e, s);
		s = next;
	}
	e->channel[channel].used = false;
}

int engine_stream_new(struct engine *e, int group, int channel)
{
	if (!group_ok(e, group) || channel < 0 || channel >= MAX_CHANNELS || !e->channel[channel].used ||
	    e->channel[channel].group != group)
		return NONE;
	for (int s = 0; s < MAX_STREAMS; s++) {
		if (e->stream[s].used)
			continue;
		e->stream[s] = (struct stream){
		    .used = true, .group = group, .channel = channel, .next_of_group = e->group[group].first_stream};
		e->group[group].first_stream = s;
		return s;
	}
	return NONE;
}

void engine_stream_free(struct engine *e, int stream)
{
	if (stream < 0 || stream >= MAX_STREAMS || !e->stream[stream].used)
		return;
	int group = e->stream[stream].group;
	int *link = &e->group[group].first_stream;

	while (*link != stream)
		link = &e->stream[*link].next_of_group;
	*link = e->stream[stream].next_of_group;
	stream_clear(&e->stream[stream]);
	e->stream[stream].used = false;
	if (e->callbacks.stream_gone)
		e->callbacks.stream_gone(e->callbacks.user, stream);
	gpu_renew_slice(e, e->group[group].gpu);
	gpu_settle(e, e->group[group].gpu);
}

uint64_t engine_timeslice(const struct engine *e, int group)
{
	return group_ok(e, group) ? e->group[group].timeslice_us : 0;
}

void engine_group_stats(const struct engine *e, int group, struct engine_stats *stats)
{
	*stats = group >= 0 && group < MAX_GROUPS ? e->group[group].stats : (struct engine_stats){0};
}
