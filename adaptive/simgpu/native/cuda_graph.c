/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs by stream capture: the operations of one stream in their order. */
#include "cuda_sim.h"

#include <stdlib.h>
#include <string.h>

CUresult graph_append(struct graph *graph, const struct operation *operations, size_t count)
{
	if (graph->count + count > graph->room) {
		size_t room = (graph->count + count) * 2;
		struct operation *nodes = realloc(graph->nodes, room * sizeof(*nodes));

		if (!nodes)
			return CUDA_ERROR_OUT_OF_MEMORY;
		graph->nodes = nodes;
		graph->room = room;
	}
	memcpy(graph->nodes + graph->count, operations, count * sizeof(*operations));
	graph->count += count;
	return CUDA_SUCCESS;
}

static CUresult begin(CUstream handle, bool per_thread)
{
	struct stream *stream;

	pthread_mutex_lock(&sim_lock);
	CUresult result = resolve_stream(handle, per_thread, &stream);
	if (!result && (stream->capture || stream == stream->context->legacy))
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!result) {
		stream->capture = calloc(1, sizeof(struct graph));
		result = stream->capture ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult end(CUstream handle, CUgraph *graph, bool per_thread)
{
	struct stream *stream;

	pthread_mutex_lock(&sim_lock);
	CUresult result = resolve_stream(handle, per_thread, &stream);
	if (!result && !stream->capture)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!result) {
		*graph = stream->capture;
		stream->capture = NULL;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult is_capturing(CUstream handle, int *status, bool per_thread)
{
	struct stream *stream;

	pthread_mutex_lock(&sim_lock);
	CUresult result = resolve_stream(handle, per_thread, &stream);
	if (!result)
		*status = stream->capture != NULL;
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* Captures never forbid other calls here, whatever the mode: it is only kept. */
static CUresult exchange_mode(int *mode)
{
	static __thread int current;
	int previous = current;

	if (!mode || *mode < 0 || *mode > 2)
		return CUDA_ERROR_INVALID_VALUE;
	current = *mode;
	*mode = previous;
	return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *to, CUgraph graph)
{
	if (!to || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	*to = calloc(1, sizeof(**to));
	return *to ? graph_append(*to, graph->nodes, graph->count) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy(struct graph *graph)
{
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	free(graph->nodes);
	free(graph);
	return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec graph, CUstream handle, bool per_thread)
{
	struct stream *stream;

	if (!graph)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&sim_lock);
	CUresult result = resolve_stream(handle, per_thread, &stream);
	if (!result)
		result = stream_push(stream, graph->nodes, graph->count);
	uint32_t id = result ? 0 : stream->id;
	uint64_t seq = result ? 0 : stream->submitted;
	pthread_mutex_unlock(&sim_lock);
	return result ? result : stream_limit(id, seq);
}

STREAM_CALL(cuStreamBeginCapture, _ptsz, (CUstream stream), begin(stream, per_thread))
STREAM_CALL(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, int mode), ((void)mode, begin(stream, per_thread)))
STREAM_CALL(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph), end(stream, graph, per_thread))
STREAM_CALL(cuStreamIsCapturing, _ptsz, (CUstream stream, int *status), is_capturing(stream, status, per_thread))
CALL(cuGraphInstantiate, (CUgraphExec * exec, CUgraph graph, void *node, char *log, size_t size),
     ((void)node, (void)log, (void)size, instantiate(exec, graph)))
CALL(cuGraphInstantiate_v2, (CUgraphExec * exec, CUgraph graph, void *node, char *log, size_t size),
     ((void)node, (void)log, (void)size, instantiate(exec, graph)))
CALL(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
     ((void)flags, instantiate(exec, graph)))
STREAM_CALL(cuGraphInstantiateWithParams, _ptsz, (CUgraphExec * exec, CUgraph graph, void *params),
	    ((void)params, (void)per_thread, instantiate(exec, graph)))
STREAM_CALL(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream), launch(exec, stream, per_thread))
STREAM_CALL(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream stream),
	    ((void)stream, (void)per_thread, exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE))
CALL(cuGraphExecDestroy, (CUgraphExec exec), destroy(exec))
CALL(cuGraphDestroy, (CUgraph graph), destroy(graph))
CALL(cuThreadExchangeStreamCaptureMode, (int *mode), exchange_mode(mode))
