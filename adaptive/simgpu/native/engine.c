/* SPDX-License-Identifier: Apache-2.0 */
/* Queues and virtual time of the embedded GPU. */
#include "engine_internal.h"

#include <stdlib.h>

/* Fitted to the measurements listed in docs/simgpu.md. */
static const struct engine_model H200 = {
    .save = 115000,
    .save_soft = 60000,
    .load = 75000,
    .slice_head = 36000,
    .block_preempt = 480000,
    .acquire = 100000,
    .copy_latency = 8000,
    .copy_bytes_per_us = 25000,
    .hold_limit = 2000000000,
    .effect_pct = 70,
};

const struct engine_model *engine_h200(void)
{
	return &H200;
}

struct engine *engine_new(int gpus, const struct engine_model *model, const struct engine_callbacks *callbacks)
{
	struct engine *e = gpus > 0 && gpus <= MAX_GPUS ? calloc(1, sizeof(*e)) : NULL;

	if (!e)
		return NULL;
	e->model = model ? *model : H200;
	if (callbacks)
		e->callbacks = *callbacks;
	e->gpus = gpus;
	for (int i = 0; i < gpus; i++) {
		e->gpu[i].resident = e->gpu[i].target = e->gpu[i].parked = NONE;
		e->gpu[i].turn = 0;
	}
	return e;
}

void engine_free(struct engine *e)
{
	if (!e)
		return;
	for (int s = 0; s < MAX_STREAMS; s++)
		stream_clear(&e->stream[s]);
	while (e->controls) {
		struct control *control = e->controls;

		e->controls = control->next;
		free(control);
	}
	free(e);
}

/* Every change goes between these two: slices that nobody contested are renewed first, then the GPU looks again. */
void gpu_settle(struct engine *e, int gpu)
{
	streams_pump(e, gpu);
	gpu_schedule(e, gpu);
}

void stream_finish_head(struct engine *e, int stream)
{
	struct stream *s = &e->stream[stream];
	struct op *op = s->head;
	struct engine_done done = {.stream = stream,
				   .kind = op->kind,
				   .seq = op->seq,
				   .arg = op->arg,
				   .value = op->value,
				   .submit = op->submit,
				   .start = op->start,
				   .finish = e->now};

	s->head = op->next;
	if (!s->head)
		s->tail = NULL;
	s->completed = op->seq;
	e->group[s->group].stats.kernels += op->kind == OP_KERNEL;
	free(op);
	if (e->callbacks.done)
		e->callbacks.done(e->callbacks.user, &done);
}

static void copy_start(struct engine *e, int gpu, struct op *op)
{
	uint64_t *lane = &e->gpu[gpu].copy_free[op->value % 3];

	op->started = op->running = true;
	op->start = *lane > e->now ? *lane : e->now;
	op->end = op->start + e->model.copy_latency + op->arg * 1000 / e->model.copy_bytes_per_us;
	*lane = op->end;
}

/* Does the head of a stream that needs no compute engine; true when something completed. */
static bool pump_head(struct engine *e, int gpu, int stream)
{
	struct op *head = e->stream[stream].head;

	if (!head || is_compute(head))
		return false;
	if (head->kind == OP_COPY && !head->started)
		copy_start(e, gpu, head);
	if (head->kind == OP_COPY && head->end > e->now)
		return false;
	if (head->kind == OP_WAIT && head->value < MAX_STREAMS && e->stream[head->value].used &&
	    e->stream[head->value].completed < head->arg)
		return false;
	if (!head->started)
		head->start = e->now;
	stream_finish_head(e, stream);
	return true;
}

void streams_pump(struct engine *e, int gpu)
{
	bool progress = true;

	while (progress) {
		progress = false;
		for (int g = 0; g < e->group_top; g++) {
			if (!e->group[g].used || e->group[g].gpu != gpu)
				continue;
			for_each_stream(e, s, g) while (pump_head(e, gpu, s)) progress = true;
		}
	}
}

uint64_t engine_submit(struct engine *e, int stream, uint32_t kind, uint64_t arg, uint64_t value)
{
	struct op *op = stream >= 0 && stream < MAX_STREAMS && e->stream[stream].used ? calloc(1, sizeof(*op)) : NULL;

	if (!op)
		return 0;
	struct stream *s = &e->stream[stream];
	int gpu = e->group[s->group].gpu;

	gpu_renew_slice(e, gpu);
	op->kind = kind;
	op->arg = arg;
	op->value = value;
	op->submit = e->now;
	op->seq = ++s->submitted;
	if (s->tail)
		s->tail->next = op;
	else
		s->head = op;
	s->tail = op;
	gpu_settle(e, gpu);
	return s->submitted;
}

uint64_t engine_now(const struct engine *e)
{
	return e->now;
}

static uint64_t copies_next(const struct engine *e)
{
	uint64_t next = ENGINE_NEVER;

	for (int g = 0; g < e->group_top; g++) {
		if (!e->group[g].used)
			continue;
		for_each_stream(e, s, g)
		{
			const struct op *head = e->stream[s].head;

			if (head && head->kind == OP_COPY && head->started && head->end < next)
				next = head->end;
		}
	}
	return next;
}

uint64_t engine_next(const struct engine *e)
{
	uint64_t next = copies_next(e);

	for (int i = 0; i < e->gpus; i++) {
		uint64_t t = gpu_next(e, i);

		next = t < next ? t : next;
	}
	if (e->controls && e->controls->effect < next)
		next = e->controls->effect;
	return next == ENGINE_NEVER || next > e->now ? next : e->now;
}

static void finish_kernels(struct engine *e, int gpu)
{
	int group = e->gpu[gpu].resident;

	if (group == NONE)
		return;
	for_each_stream(e, s, group)
	{
		struct op *head = e->stream[s].head;

		if (head && is_compute(head) && head->running && head->end <= e->now)
			stream_finish_head(e, s);
	}
}

/* Adds the time since the last step to whoever was running. */
static void account(struct engine *e, uint64_t time)
{
	for (int i = 0; i < e->gpus; i++) {
		int group = e->gpu[i].resident;
		bool running = false;

		if (group == NONE || e->gpu[i].switching)
			continue;
		for_each_stream(e, s, group) running |=
		    e->stream[s].head && is_compute(e->stream[s].head) && e->stream[s].head->running;
		if (running)
			e->group[group].stats.gpu_ns += time - e->now;
	}
}

static void step(struct engine *e)
{
	for (int i = 0; i < e->gpus; i++) {
		if (e->gpu[i].switching && e->gpu[i].switch_end <= e->now)
			gpu_switch_done(e, i);
		finish_kernels(e, i);
	}
	while (e->controls && e->controls->effect <= e->now) {
		struct control *control = e->controls;

		e->controls = control->next;
		control_apply(e, control);
		free(control);
	}
	/* Two passes: a completion on one GPU may release a stream that waits for it on another. */
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < e->gpus; i++)
			gpu_settle(e, i);
}

void engine_advance(struct engine *e, uint64_t time)
{
	for (;;) {
		uint64_t next = engine_next(e);

		if (next > time)
			break;
		account(e, next);
		e->now = next;
		for (int i = 0; i < e->gpus; i++)
			gpu_renew_slice(e, i);
		step(e);
	}
	if (time > e->now) {
		account(e, time);
		e->now = time;
	}
}

int engine_poll_holds(struct engine *e)
{
	int held = 0;

	for (int i = 0; i < e->gpus; i++) {
		int group = e->gpu[i].resident;

		if (group == NONE || e->gpu[i].switching)
			continue;
		gpu_renew_slice(e, i);
		bool released = false;
		for_each_stream(e, s, group)
		{
			struct op *head = e->stream[s].head;

			if (!head || head->kind != OP_HOLD || !head->running)
				continue;
			if (e->callbacks.released && e->callbacks.released(e->callbacks.user, e->group[group].owner,
									   head->arg, (uint32_t)head->value)) {
				stream_finish_head(e, s);
				released = true;
			} else {
				held++;
			}
		}
		if (released)
			gpu_settle(e, i);
	}
	return held;
}
