/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedded GPU's scheduler: a deterministic discrete-event model in virtual time (ns), without any I/O.
 *
 * It models what was measured on an H200 (docs/simgpu.md): channel groups take turns on one compute engine, a turn ends
 * when its timeslice expires while another group is runnable, or when the group has nothing to run; every change of
 * context costs a save and a load. The caller drives it: engine_advance() to a time, then submit or control at that
 * time.
 */
#ifndef GPSCHED_ENGINE_H
#define GPSCHED_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#define ENGINE_NEVER UINT64_MAX
#define ENGINE_DEFAULT_TIMESLICE_US 2048
#define ENGINE_MAX_GROUPS 256
#define ENGINE_MAX_STREAMS 4096

/* Constants of the model, all in ns unless said; engine_new(NULL) uses the H200's. */
struct engine_model {
	uint64_t save;	     /* context out */
	uint64_t save_soft;  /* context out of a group whose channels are off the runlist (scheduling-only disable) */
	uint64_t load;	     /* context in */
	uint64_t slice_head; /* part of the load that already counts against the timeslice */
	uint64_t block_preempt; /* extra wait for thread blocks once a group was made real-time */
	uint64_t acquire;	/* how long the host engine waits on a semaphore of a copy before it yields */
	uint64_t copy_latency;
	uint64_t copy_bytes_per_us;
	uint64_t hold_limit; /* a hold kernel ends by itself after this much GPU time */
	uint32_t effect_pct; /* when, within a control's cost, the GPU is affected */
};

enum engine_op_kind {
	OP_KERNEL, /* arg: ns of GPU time */
	OP_HOLD,  /* arg: address of the flag, value: sequence number; high half: longest duration in us, 0: the model's
		   */
	OP_COPY,  /* arg: bytes, value: 0 to the device, 1 to the host, 2 inside the device */
	OP_WRITE, /* arg: address, value: 32 bits to store */
	OP_WAIT,  /* arg: sequence number that stream `value` must have completed */
	OP_MARK,  /* arg: event slot */
};

/* A completed operation, as given to the callback. */
struct engine_done {
	int stream;
	uint32_t kind;
	uint64_t seq, arg, value, submit, start, finish;
};

struct engine_callbacks {
	void *user;
	void (*done)(void *user, const struct engine_done *done);
	/* Has the flag of a hold kernel of this owner reached the sequence number? */
	int (*released)(void *user, int owner, uint64_t flag, uint32_t seq);
	/* A stream died, by itself or with its channel or group. */
	void (*stream_gone)(void *user, int stream);
};

enum engine_control_kind {
	CTL_SET_TIMESLICE, /* value: us */
	CTL_PREEMPT,
	CTL_PREEMPT_WAIT,
	CTL_SCHEDULE, /* value: bEnable; changes nothing */
	CTL_DISABLE,
	CTL_DISABLE_SCHEDULING,
	CTL_ENABLE,
	CTL_ENABLE_SCHEDULING,
	CTL_INTERLEAVE,
	CTL_RESTART,
	CTL_REALTIME, /* value: on */
	CTL_KINDS,
};

struct engine_stats {
	uint64_t gpu_ns, kernels, switches;
};

struct engine;

struct engine *engine_new(int gpus, const struct engine_model *model, const struct engine_callbacks *callbacks);
void engine_free(struct engine *e);
const struct engine_model *engine_h200(void);

/* Objects: ids are small non-negative integers; -1 when there is no room or no such parent. */
int engine_group_new(struct engine *e, int gpu, int owner);
void engine_group_free(struct engine *e, int group);
int engine_channel_new(struct engine *e, int group);
void engine_channel_free(struct engine *e, int channel);
int engine_stream_new(struct engine *e, int group, int channel);
void engine_stream_free(struct engine *e, int stream);

/* Queues an operation now; returns its sequence number in the stream (from 1), 0 for an unknown stream. */
uint64_t engine_submit(struct engine *e, int stream, uint32_t kind, uint64_t arg, uint64_t value);

/*
 * Starts a control now. `ids` are channels for DISABLE and ENABLE, one group otherwise. Controls of one GPU queue up
 * behind each other (the GPU lock). Returns the time at which the caller gets its answer.
 */
uint64_t engine_control(struct engine *e, int gpu, uint32_t kind, const int *ids, int count, uint64_t value);
uint64_t engine_timeslice(const struct engine *e, int group);

uint64_t engine_now(const struct engine *e);
uint64_t engine_next(const struct engine *e);
void engine_advance(struct engine *e, uint64_t time);
/* Asks the callback about every running hold kernel; returns how many still run. */
int engine_poll_holds(struct engine *e);
void engine_group_stats(const struct engine *e, int group, struct engine_stats *stats);

#endif
