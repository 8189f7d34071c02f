/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated libcuda: types of the CUDA driver API as far as it goes, and the state shared by the cuda_*.c files.
 *
 * Every exported name is a function of its own (never an alias of another), and none calls another exported one: a
 * probe on one name counts the calls of that name, as on the real library.
 */
#ifndef GPSCHED_CUDA_SIM_H
#define GPSCHED_CUDA_SIM_H

#include "engine.h"
#include "protocol.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* CUresult values of cuda.h */
typedef enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_SYSTEM_NOT_READY = 802,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
} CUresult;

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct graph *CUgraph;
typedef struct graph *CUgraphExec;

#define GROUPS 4
#define COMPUTE_CHANNELS 8
#define COPY_CHANNELS 4
#define MAX_DEVICES 8
#define TOTAL_MEMORY (139ull << 30)

/* What an operation does to memory once the GPU has completed it. */
enum effect_kind { EFFECT_NONE, EFFECT_ADD, EFFECT_COPY, EFFECT_SET };

struct effect {
	enum effect_kind kind;
	void *to;
	const void *from;      /* EFFECT_COPY */
	bool stage;	       /* the source may change once the call has returned */
	void *staged;	       /* a copy of it, freed afterwards */
	uint64_t count;	       /* elements, or bytes of a copy */
	uint32_t value, width; /* EFFECT_SET */
};

struct operation {
	struct sim_op op;
	struct effect effect;
};

struct context {
	struct context *next;
	CUdevice device;
	uint32_t rm_device, channel[COMPUTE_CHANNELS];
	int next_channel, primary_refs;
	bool dead;		/* destroyed; never freed, as other threads may have it current */
	struct stream *streams; /* the legacy one and those of threads among them */
	struct stream *legacy;
};

struct stream {
	struct stream *next;
	struct context *context;
	uint32_t id;
	bool blocking; /* synchronises with the legacy stream */
	pthread_t thread;
	bool of_thread;
	uint64_t submitted;
	struct graph *capture;
};

struct graph {
	struct operation *nodes;
	size_t count, room;
};

/* cuda_core.c */
CUresult ensure_ready(void);
bool server_alive(void);
uint64_t sim_now(void);
void sim_send(struct sim_message *message, uint32_t count);
extern struct sim_shared *sim_shared;
extern pthread_mutex_t sim_lock; /* contexts, streams, the order of submissions, effects */
uint32_t rm_alloc(uint32_t parent, uint32_t class_id, const void *params, uint32_t size, uint32_t *handle);
void rm_free(uint32_t parent, uint32_t handle);
uint32_t rm_control(uint32_t object, uint32_t cmd, void *params, uint32_t size);
uint32_t rm_root(void);
int device_count(void);
int device_instance(CUdevice device);

/* cuda_context.c */
CUresult current_context(struct context **context);
void contexts_forget(void);

/* cuda_stream.c: all but the waits want sim_lock held */
CUresult resolve_stream(CUstream handle, bool per_thread, struct stream **stream);
struct stream *stream_create(struct context *context, bool blocking);
void stream_destroy(struct stream *stream);
CUresult stream_push(struct stream *stream, const struct operation *operations, size_t count);
CUresult stream_enqueue(CUstream handle, bool per_thread, const struct operation *operation, bool wait);
void streams_forget(void);
bool stream_done(uint32_t id, uint64_t seq);
CUresult stream_limit(uint32_t id, uint64_t seq);
CUresult stream_wait(uint32_t id, uint64_t seq);
CUresult context_wait(struct context *context);

/* cuda_memory.c */
void effects_add(uint32_t stream, uint64_t seq, const struct effect *effect);
void effects_apply(void);
void effects_forget(void);

/* cuda_graph.c */
CUresult graph_append(struct graph *graph, const struct operation *operations, size_t count);

/* A call that exists in two variants: stream 0 is the legacy stream, or the calling thread's. */
#define STREAM_CALL(name, suffix, params, call)                                                                        \
	EXPORT CUresult name params;                                                                                   \
	EXPORT CUresult name##suffix params;                                                                           \
	EXPORT CUresult name params                                                                                    \
	{                                                                                                              \
		enum { per_thread = 0 };                                                                               \
		return call;                                                                                           \
	}                                                                                                              \
	EXPORT CUresult name##suffix params                                                                            \
	{                                                                                                              \
		enum { per_thread = 1 };                                                                               \
		return call;                                                                                           \
	}
#define CALL(name, params, call)                                                                                       \
	EXPORT CUresult name params;                                                                                   \
	EXPORT CUresult name params                                                                                    \
	{                                                                                                              \
		return call;                                                                                           \
	}

#endif
