/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by objects.c, engine.c (queues, time), schedule.c (who has the compute engine) and control.c. */
#ifndef GPSCHED_ENGINE_INTERNAL_H
#define GPSCHED_ENGINE_INTERNAL_H

#include "engine.h"

#define MAX_GPUS 8
#define MAX_GROUPS ENGINE_MAX_GROUPS
#define MAX_CHANNELS 2048
#define MAX_STREAMS ENGINE_MAX_STREAMS
#define NONE (-1)

struct op {
	struct op *next;
	uint64_t arg, value, seq, submit, start, left, end;
	uint32_t kind;
	bool started, running;
};

struct stream {
	bool used;
	int group, channel, next_of_group;
	struct op *head, *tail;
	uint64_t submitted, completed;
};

struct channel {
	bool used, disabled, unscheduled;
	bool stuck; /* for good: see set_channels */
	int group;
};

struct group {
	bool used, realtime;
	int gpu, owner, first_stream;
	uint64_t timeslice_us;
	uint64_t waiting_since; /* the host engine waits on this group's semaphore since then */
	struct engine_stats stats;
};

struct gpu {
	int resident, target; /* groups; `target` is valid while switching */
	int parked; /* the group that the host engine moved on to while `resident` still runs its last kernel */
	int turn;   /* the last group that had a turn: where the round robin goes on */
	bool switching;
	uint64_t switch_end, slice_end, lock_free, copy_free[3];
};

struct control {
	struct control *next;
	uint64_t effect;
	uint32_t kind;
	int gpu, count;
	uint64_t value;
	int ids[];
};

struct engine {
	struct engine_model model;
	struct engine_callbacks callbacks;
	uint64_t now;
	int gpus;
	struct gpu gpu[MAX_GPUS];
	struct group group[MAX_GROUPS];
	struct channel channel[MAX_CHANNELS];
	struct stream stream[MAX_STREAMS];
	int group_top; /* all ids in use are below */
	struct control *controls;
};

#define for_each_stream(e, s, g) for (int s = (e)->group[g].first_stream; s != NONE; s = (e)->stream[s].next_of_group)

static inline bool is_compute(const struct op *op)
{
	return op->kind == OP_KERNEL || op->kind == OP_HOLD;
}

/* objects.c */
void stream_clear(struct stream *stream);

/* engine.c */
void gpu_settle(struct engine *e, int gpu);
void stream_finish_head(struct engine *e, int stream);
void streams_pump(struct engine *e, int gpu);

/* schedule.c */
void gpu_schedule(struct engine *e, int gpu);
void gpu_renew_slice(struct engine *e, int gpu);
void gpu_preempt(struct engine *e, int gpu);
void gpu_switch_done(struct engine *e, int gpu);
uint64_t gpu_next(const struct engine *e, int gpu);
bool gpu_busy(const struct engine *e, int gpu);

/* control.c */
void control_apply(struct engine *e, const struct control *control);

#endif
