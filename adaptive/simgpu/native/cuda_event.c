/* SPDX-License-Identifier: Apache-2.0 */
/* Events: a mark in a stream whose completion time the server writes, on the GPU's own clock. */
#include "cuda_sim.h"

#include <stdlib.h>

struct event {
	uint32_t slot, stream;
	uint64_t seq;
	bool recorded;
};

static bool taken[SIM_EVENTS];

static CUresult create(CUevent *to)
{
	struct context *context;
	CUresult result = current_context(&context);
	struct event *event = result ? NULL : calloc(1, sizeof(*event));

	if (!event)
		return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&sim_lock);
	while (event->slot < SIM_EVENTS && taken[event->slot])
		event->slot++;
	if (event->slot < SIM_EVENTS)
		taken[event->slot] = true;
	pthread_mutex_unlock(&sim_lock);
	if (event->slot == SIM_EVENTS) {
		free(event);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*to = event;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUevent event)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&sim_lock);
	taken[event->slot] = false;
	pthread_mutex_unlock(&sim_lock);
	free(event);
	return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream handle, bool per_thread)
{
	struct operation mark = {.op = {.kind = OP_MARK}};
	struct stream *stream;

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&sim_lock);
	CUresult result = resolve_stream(handle, per_thread, &stream);
	mark.op.arg = event->slot;
	if (!result)
		result = stream_push(stream, &mark, 1);
	if (!result && !stream->capture) {
		event->stream = stream->id;
		event->seq = stream->submitted;
		event->recorded = true;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult synchronize(CUevent event)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = event->recorded ? stream_wait(event->stream, event->seq) : CUDA_SUCCESS;
	effects_apply();
	return result;
}

static CUresult query(CUevent event)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->recorded && !stream_done(event->stream, event->seq))
		return CUDA_ERROR_NOT_READY;
	effects_apply();
	return CUDA_SUCCESS;
}

static CUresult elapsed(float *ms, CUevent from, CUevent to)
{
	if (!from || !to || !from->recorded || !to->recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!stream_done(from->stream, from->seq) || !stream_done(to->stream, to->seq))
		return CUDA_ERROR_NOT_READY;
	uint64_t begin = atomic_load(&sim_shared->event_ns[from->slot]);
	*ms = (float)((double)(int64_t)(atomic_load(&sim_shared->event_ns[to->slot]) - begin) / 1e6);
	return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream handle, CUevent event, bool per_thread)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!event->recorded)
		return CUDA_SUCCESS;
	struct operation wait = {.op = {.kind = OP_WAIT, .arg = event->seq, .value = event->stream}};
	return stream_enqueue(handle, per_thread, &wait, false);
}

CALL(cuEventCreate, (CUevent * event, unsigned int flags), ((void)flags, create(event)))
CALL(cuEventDestroy, (CUevent event), destroy(event))
CALL(cuEventDestroy_v2, (CUevent event), destroy(event))
STREAM_CALL(cuEventRecord, _ptsz, (CUevent event, CUstream stream), record(event, stream, per_thread))
STREAM_CALL(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned int flags),
	    ((void)flags, record(event, stream, per_thread)))
CALL(cuEventSynchronize, (CUevent event), synchronize(event))
CALL(cuEventQuery, (CUevent event), query(event))
CALL(cuEventElapsedTime, (float *ms, CUevent from, CUevent to), elapsed(ms, from, to))
CALL(cuEventElapsedTime_v2, (float *ms, CUevent from, CUevent to), elapsed(ms, from, to))
STREAM_CALL(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned int flags),
	    ((void)flags, wait_event(stream, event, per_thread)))
