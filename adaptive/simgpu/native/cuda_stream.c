/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: queues on the channels of the context's compute group. Submitting is one message; waiting is one futex. */
#define _GNU_SOURCE
#include "cuda_sim.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_LIMIT 1024 /* operations in flight in a stream before a launch blocks, as on the real driver */
#define LEGACY ((CUstream)1)
#define PER_THREAD ((CUstream)2)

static struct stream *live[SIM_STREAMS]; /* by id: other handles are refused */
static uint32_t top;			 /* ids in use are below */
static uint64_t last[SIM_STREAMS]; /* operations are numbered on when an id is used again: old events stay complete */

bool stream_done(uint32_t id, uint64_t seq)
{
	return (int32_t)(atomic_load(&sim_shared->stream[id].done) - (uint32_t)seq) >= 0;
}

CUresult stream_wait(uint32_t id, uint64_t seq)
{
	struct sim_stream_state *state = &sim_shared->stream[id];
	struct timespec second = {.tv_sec = 1};
	CUresult result = CUDA_SUCCESS;

	if (stream_done(id, seq))
		return state->failed ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
	atomic_fetch_add(&state->waiters, 1);
	while (!result) {
		uint32_t seen = atomic_load(&state->done);

		if ((int32_t)(seen - (uint32_t)seq) >= 0)
			break;
		syscall(SYS_futex, &state->done, FUTEX_WAIT, seen, &second, NULL, 0);
		if (atomic_load(&state->done) == seen && !server_alive())
			result = CUDA_ERROR_LAUNCH_FAILED;
	}
	atomic_fetch_sub(&state->waiters, 1);
	return state->failed ? CUDA_ERROR_LAUNCH_FAILED : result;
}

void streams_forget(void)
{
	for (int i = 0; i < SIM_STREAMS; i++) {
		live[i] = NULL;
		last[i] = 0;
	}
}

struct stream *stream_create(struct context *context, bool blocking)
{
	struct sim_message open = {.type = SIM_STREAM_OPEN, .client = rm_root()};
	struct stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	while (open.id < SIM_STREAMS && live[open.id])
		open.id++;
	if (open.id == SIM_STREAMS) {
		free(stream);
		return NULL;
	}
	live[open.id] = stream;
	top = open.id >= top ? open.id + 1 : top;
	open.handle = context->channel[context->next_channel++ % COMPUTE_CHANNELS];
	*stream = (struct stream){.next = context->streams,
				  .context = context,
				  .id = open.id,
				  .blocking = blocking,
				  .submitted = last[open.id]};
	context->streams = stream;
	open.base = (uint32_t)last[open.id];
	atomic_store(&sim_shared->stream[open.id].failed, 0);
	sim_send(&open, 0);
	return stream;
}

void stream_destroy(struct stream *stream)
{
	struct sim_message close = {.type = SIM_STREAM_CLOSE, .id = stream->id};
	struct stream **link = &stream->context->streams;

	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	sim_send(&close, 0);
	live[stream->id] = NULL;
	last[stream->id] = stream->submitted;
	free(stream);
}

static struct stream *thread_stream(struct context *context)
{
	for (struct stream *s = context->streams; s; s = s->next)
		if (s->of_thread && pthread_equal(s->thread, pthread_self()))
			return s;
	struct stream *stream = stream_create(context, true);
	if (stream) {
		stream->of_thread = true;
		stream->thread = pthread_self();
	}
	return stream;
}

static bool is_live(const struct stream *stream)
{
	for (uint32_t i = 0; i < top; i++)
		if (live[i] == stream)
			return true;
	return false;
}

CUresult resolve_stream(CUstream handle, bool per_thread, struct stream **stream)
{
	struct context *context;
	CUresult result = CUDA_SUCCESS;

	*stream = handle;
	if (handle > PER_THREAD)
		return is_live(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	result = current_context(&context);
	if (result)
		return result;
	bool own = handle == PER_THREAD || (!handle && per_thread);
	*stream = own ? thread_stream(context) : context->legacy;
	return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static uint32_t add_wait(struct sim_message *m, uint32_t count, const struct stream *on)
{
	if (count == SIM_OPS || stream_done(on->id, on->submitted))
		return count;
	m->ops[count] = (struct sim_op){.kind = OP_WAIT, .arg = on->submitted, .value = on->id};
	return count + 1;
}

/* The legacy stream waits for every blocking stream of its context, and they for it. */
static uint32_t add_legacy_waits(struct sim_message *m, const struct stream *stream)
{
	const struct context *context = stream->context;
	uint32_t count = 0;

	if (!stream->blocking)
		return 0;
	if (stream != context->legacy)
		return add_wait(m, 0, context->legacy);
	for (const struct stream *s = context->streams; s; s = s->next)
		if (s != stream && s->blocking)
			count = add_wait(m, count, s);
	return count;
}

CUresult stream_push(struct stream *stream, const struct operation *operations, size_t count)
{
	static struct sim_message m; /* under sim_lock */
	uint32_t used;

	if (stream->capture)
		return graph_append(stream->capture, operations, count);
	m.type = SIM_SUBMIT;
	m.id = stream->id;
	used = add_legacy_waits(&m, stream);
	stream->submitted += used;
	for (size_t i = 0; i < count; i++) {
		if (used == SIM_OPS) {
			sim_send(&m, used);
			used = 0;
		}
		m.ops[used++] = operations[i].op;
		stream->submitted++;
		if (operations[i].effect.kind)
			effects_add(stream->id, stream->submitted, &operations[i].effect);
	}
	if (used)
		sim_send(&m, used);
	return CUDA_SUCCESS;
}

/* A launch blocks while too much is in flight. */
CUresult stream_limit(uint32_t id, uint64_t seq)
{
	return stream_wait(id, seq - QUEUE_LIMIT);
}

/* Adds one operation by handle; with `wait`, returns when it is complete and memory shows it. */
CUresult stream_enqueue(CUstream handle, bool per_thread, const struct operation *operation, bool wait)
{
	struct stream *stream;

	pthread_mutex_lock(&sim_lock);
	CUresult result = resolve_stream(handle, per_thread, &stream);
	if (!result && wait && stream->capture)
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!result)
		result = stream_push(stream, operation, 1);
	uint32_t id = result ? 0 : stream->id;
	uint64_t seq = result ? 0 : stream->submitted;
	pthread_mutex_unlock(&sim_lock);
	if (result)
		return result;
	if (!wait)
		return stream_limit(id, seq);
	result = stream_wait(id, seq);
	effects_apply();
	return result;
}

CUresult context_wait(struct context *context)
{
	struct {
		uint32_t id;
		uint64_t seq;
	} waits[SIM_STREAMS];
	int count = 0;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&sim_lock);
	for (struct stream *s = context->streams; s && count < SIM_STREAMS; s = s->next) {
		waits[count].id = s->id;
		waits[count++].seq = s->submitted;
	}
	pthread_mutex_unlock(&sim_lock);
	for (int i = 0; i < count && !result; i++)
		result = stream_wait(waits[i].id, waits[i].seq);
	effects_apply();
	return result;
}

static CUresult create(CUstream *to, unsigned int flags)
{
	struct context *context;
	CUresult result = current_context(&context);

	if (result)
		return result;
	pthread_mutex_lock(&sim_lock);
	*to = stream_create(context, !(flags & 1));
	pthread_mutex_unlock(&sim_lock);
	return *to ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult position(CUstream handle, bool per_thread, uint32_t *id, uint64_t *seq)
{
	struct stream *stream;

	pthread_mutex_lock(&sim_lock);
	CUresult result = resolve_stream(handle, per_thread, &stream);
	if (!result && stream->capture)
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!result) {
		*id = stream->id;
		*seq = stream->submitted;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult synchronize(CUstream handle, bool per_thread)
{
	uint32_t id;
	uint64_t seq;
	CUresult result = position(handle, per_thread, &id, &seq);

	if (!result)
		result = stream_wait(id, seq);
	if (!result)
		effects_apply();
	return result;
}

static CUresult query(CUstream handle, bool per_thread)
{
	uint32_t id;
	uint64_t seq;
	CUresult result = position(handle, per_thread, &id, &seq);

	if (result)
		return result;
	if (!stream_done(id, seq))
		return CUDA_ERROR_NOT_READY;
	effects_apply();
	return CUDA_SUCCESS;
}

static CUresult destroy(CUstream stream)
{
	CUresult result = stream <= PER_THREAD ? CUDA_ERROR_INVALID_HANDLE : synchronize(stream, false);

	if (result)
		return result;
	pthread_mutex_lock(&sim_lock);
	if (is_live(stream))
		stream_destroy(stream);
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

static CUresult write_value(CUstream handle, CUdeviceptr address, uint32_t value, bool per_thread)
{
	struct operation operation = {.op = {.kind = OP_WRITE, .arg = address, .value = value}};

	return stream_enqueue(handle, per_thread, &operation, false);
}

static CUresult no_host_function(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

CALL(cuStreamCreate, (CUstream * stream, unsigned int flags), create(stream, flags))
CALL(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority),
     ((void)priority, create(stream, flags)))
CALL(cuStreamDestroy, (CUstream stream), destroy(stream))
CALL(cuStreamDestroy_v2, (CUstream stream), destroy(stream))
STREAM_CALL(cuStreamSynchronize, _ptsz, (CUstream stream), synchronize(stream, per_thread))
STREAM_CALL(cuStreamQuery, _ptsz, (CUstream stream), query(stream, per_thread))
STREAM_CALL(cuStreamWriteValue32, _ptsz, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags),
	    ((void)flags, write_value(stream, address, value, per_thread)))
STREAM_CALL(cuStreamWriteValue32_v2, _ptsz, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags),
	    ((void)flags, write_value(stream, address, value, per_thread)))
STREAM_CALL(cuLaunchHostFunc, _ptsz, (CUstream stream, void *function, void *data),
	    ((void)stream, (void)function, (void)data, (void)per_thread, no_host_function()))
