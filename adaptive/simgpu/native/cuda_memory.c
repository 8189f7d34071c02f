/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory is memory of the process. What an operation does to it is done here once the GPU has completed the
 * operation, in the order of submission, whenever the process looks: at synchronisations, queries and now and then at
 * launches.
 */
#define _GNU_SOURCE
#include "cuda_sim.h"

#include <stdlib.h>
#include <string.h>

struct pending {
	struct pending *next;
	uint32_t stream;
	uint64_t seq;
	struct effect effect;
};

struct block {
	struct block *next;
	char *base;
	size_t bytes;
	bool host, registered; /* memory of the program's own, made known by cuMemHostRegister */
};

#define APPLY_ABOVE 256 /* pending effects, for programs that only launch */

static void effects_apply_locked(void);

static struct pending *pending, **pending_end = &pending;
static size_t pending_count, device_bytes;
static struct block *blocks;

static bool known(const void *address)
{
	for (const struct block *b = blocks; b; b = b->next)
		if ((const char *)address >= b->base && (const char *)address < b->base + b->bytes)
			return true;
	return false;
}

/* An asynchronous copy from memory that CUDA did not allocate has read its source when the call returns. */
static bool stage(struct effect *effect)
{
	if (!effect->stage || known(effect->from))
		return true;
	effect->staged = malloc(effect->count);
	if (effect->staged)
		effect->from = memcpy(effect->staged, effect->from, effect->count);
	return effect->staged != NULL;
}

void effects_add(uint32_t stream, uint64_t seq, const struct effect *effect)
{
	struct pending *p = malloc(sizeof(*p));

	if (pending_count >= APPLY_ABOVE)
		effects_apply_locked();
	if (!p)
		abort();
	*p = (struct pending){NULL, stream, seq, *effect};
	if (!stage(&p->effect))
		abort();
	*pending_end = p;
	pending_end = &p->next;
	pending_count++;
}

static void add_one(uint32_t *counters, uint64_t count, uint32_t times)
{
	for (uint64_t i = 0; i < count; i++)
		counters[i] += times;
}

static void set(const struct effect *e)
{
	for (uint64_t i = 0; i < e->count; i++)
		memcpy((char *)e->to + i * e->width, &e->value, e->width);
}

static void apply_one(const struct effect *e, uint32_t times)
{
	if (e->kind == EFFECT_ADD)
		add_one(e->to, e->count, times);
	else if (e->kind == EFFECT_COPY)
		memmove(e->to, e->from, e->count);
	else if (e->kind == EFFECT_SET && e->width == 1)
		memset(e->to, (int)e->value, e->count);
	else if (e->kind == EFFECT_SET)
		set(e);
	free(e->staged);
}

static bool same_counters(const struct effect *a, const struct effect *b)
{
	return a->kind == EFFECT_ADD && b->kind == EFFECT_ADD && a->to == b->to && a->count == b->count;
}

/* Equal additions that follow each other are done in one pass. */
static void effects_apply_locked(void)
{
	struct pending **link = &pending;
	struct effect run = {.kind = EFFECT_NONE};
	uint32_t times = 0;

	while (*link) {
		struct pending *p = *link;

		if (!stream_done(p->stream, p->seq)) {
			link = &p->next;
			continue;
		}
		if (times && !same_counters(&run, &p->effect)) {
			apply_one(&run, times);
			times = 0;
		}
		run = p->effect;
		times++;
		*link = p->next;
		pending_count--;
		free(p);
	}
	if (times)
		apply_one(&run, times);
	pending_end = link;
}

void effects_apply(void)
{
	pthread_mutex_lock(&sim_lock);
	effects_apply_locked();
	pthread_mutex_unlock(&sim_lock);
}

void effects_forget(void)
{
	pending = NULL;
	pending_end = &pending;
	pending_count = 0;
}

static CUresult allocate(void **to, size_t bytes, bool host)
{
	struct context *context;
	CUresult result = current_context(&context);

	if (result)
		return result;
	if (!to || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > TOTAL_MEMORY || (!host && device_bytes + bytes > TOTAL_MEMORY))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct block *block = malloc(sizeof(*block));
	if (!block || posix_memalign((void **)&block->base, 4096, bytes)) {
		free(block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	block->bytes = bytes;
	block->host = host;
	block->registered = false;
	pthread_mutex_lock(&sim_lock);
	block->next = blocks;
	blocks = block;
	device_bytes += host ? 0 : bytes;
	pthread_mutex_unlock(&sim_lock);
	*to = block->base;
	return CUDA_SUCCESS;
}

/* Frees after the work that may still use the memory, as the real calls do. */
static CUresult release(void *base, bool host)
{
	struct context *context;
	struct block **link = &blocks;

	if (!base)
		return host ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	if (!current_context(&context))
		context_wait(context);
	pthread_mutex_lock(&sim_lock);
	while (*link && ((*link)->base != base || (*link)->host != host || (*link)->registered))
		link = &(*link)->next;
	struct block *block = *link;
	if (block) {
		*link = block->next;
		device_bytes -= host ? 0 : block->bytes;
	}
	pthread_mutex_unlock(&sim_lock);
	if (!block)
		return CUDA_ERROR_INVALID_VALUE;
	free(block->base);
	free(block);
	return CUDA_SUCCESS;
}

static CUresult register_host(void *base, size_t bytes)
{
	struct block *block = base && bytes && !ensure_ready() ? malloc(sizeof(*block)) : NULL;
	CUresult result = block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim_lock);
	if (block && known(base)) {
		result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
		free(block);
	} else if (block) {
		*block = (struct block){.next = blocks, .base = base, .bytes = bytes, .host = true, .registered = true};
		blocks = block;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

static CUresult unregister_host(void *base)
{
	struct block **link = &blocks;

	pthread_mutex_lock(&sim_lock);
	while (*link && ((*link)->base != base || !(*link)->registered))
		link = &(*link)->next;
	struct block *block = *link;
	if (block)
		*link = block->next;
	pthread_mutex_unlock(&sim_lock);
	free(block);
	return block ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

static CUresult memory_info(size_t *free_bytes, size_t *total)
{
	*free_bytes = TOTAL_MEMORY - device_bytes;
	*total = TOTAL_MEMORY;
	return ensure_ready();
}

static CUresult device_pointer(CUdeviceptr *to, void *host)
{
	*to = (uintptr_t)host;
	return to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

enum direction { TO_DEVICE, TO_HOST, IN_DEVICE };

static CUresult copy(uint64_t to, uint64_t from, size_t bytes, enum direction direction, CUstream stream,
		     bool per_thread, bool wait)
{
	struct operation operation = {
	    .op = {.kind = OP_COPY, .arg = bytes, .value = direction},
	    .effect = {.kind = EFFECT_COPY, .to = (void *)to, .from = (const void *)from, .count = bytes}};

	if (!to || !from)
		return CUDA_ERROR_INVALID_VALUE;
	operation.effect.stage = direction == TO_DEVICE && !wait;
	return stream_enqueue(stream, per_thread, &operation, wait);
}

static CUresult fill(uint64_t to, uint32_t value, uint32_t width, size_t count, CUstream stream, bool per_thread,
		     bool wait)
{
	struct operation operation = {
	    .op = {.kind = OP_COPY, .arg = count * width, .value = IN_DEVICE},
	    .effect = {.kind = EFFECT_SET, .to = (void *)to, .count = count, .value = value, .width = width}};

	return to ? stream_enqueue(stream, per_thread, &operation, wait) : CUDA_ERROR_INVALID_VALUE;
}

typedef CUdeviceptr D;
typedef CUstream S;

CALL(cuMemGetInfo, (size_t * free_bytes, size_t *total), memory_info(free_bytes, total))
CALL(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total), memory_info(free_bytes, total))
CALL(cuMemAlloc, (D * to, size_t bytes), allocate((void **)to, bytes, false))
CALL(cuMemAlloc_v2, (D * to, size_t bytes), allocate((void **)to, bytes, false))
CALL(cuMemFree, (D address), release((void *)address, false))
CALL(cuMemFree_v2, (D address), release((void *)address, false))
CALL(cuMemAllocHost, (void **to, size_t bytes), allocate(to, bytes, true))
CALL(cuMemAllocHost_v2, (void **to, size_t bytes), allocate(to, bytes, true))
CALL(cuMemHostAlloc, (void **to, size_t bytes, unsigned int flags), ((void)flags, allocate(to, bytes, true)))
CALL(cuMemHostRegister, (void *base, size_t bytes, unsigned int flags), ((void)flags, register_host(base, bytes)))
CALL(cuMemHostRegister_v2, (void *base, size_t bytes, unsigned int flags), ((void)flags, register_host(base, bytes)))
CALL(cuMemHostUnregister, (void *base), unregister_host(base))
CALL(cuMemFreeHost, (void *address), release(address, true))
CALL(cuMemHostGetDevicePointer, (D * to, void *host, unsigned int flags), ((void)flags, device_pointer(to, host)))
CALL(cuMemHostGetDevicePointer_v2, (D * to, void *host, unsigned int flags), ((void)flags, device_pointer(to, host)))

#define COPIES(name, suffix_sync, suffix_async, to_type, from_type, direction)                                         \
	STREAM_CALL(name, suffix_sync, (to_type to, from_type from, size_t bytes),                                     \
		    copy((uint64_t)to, (uint64_t)from, bytes, direction, NULL, per_thread, true))                      \
	STREAM_CALL(name##_v2, suffix_sync, (to_type to, from_type from, size_t bytes),                                \
		    copy((uint64_t)to, (uint64_t)from, bytes, direction, NULL, per_thread, true))
#define COPIES_ASYNC(name, to_type, from_type, direction)                                                              \
	STREAM_CALL(name, _ptsz, (to_type to, from_type from, size_t bytes, S stream),                                 \
		    copy((uint64_t)to, (uint64_t)from, bytes, direction, stream, per_thread, false))                   \
	STREAM_CALL(name##_v2, _ptsz, (to_type to, from_type from, size_t bytes, S stream),                            \
		    copy((uint64_t)to, (uint64_t)from, bytes, direction, stream, per_thread, false))

COPIES(cuMemcpyHtoD, _ptds, _ptsz, D, const void *, TO_DEVICE)
COPIES(cuMemcpyDtoH, _ptds, _ptsz, void *, D, TO_HOST)
COPIES(cuMemcpyDtoD, _ptds, _ptsz, D, D, IN_DEVICE)
COPIES_ASYNC(cuMemcpyHtoDAsync, D, const void *, TO_DEVICE)
COPIES_ASYNC(cuMemcpyDtoHAsync, void *, D, TO_HOST)
COPIES_ASYNC(cuMemcpyDtoDAsync, D, D, IN_DEVICE)
STREAM_CALL(cuMemcpy, _ptds, (D to, D from, size_t bytes), copy(to, from, bytes, IN_DEVICE, NULL, per_thread, true))
STREAM_CALL(cuMemcpyAsync, _ptsz, (D to, D from, size_t bytes, S stream),
	    copy(to, from, bytes, IN_DEVICE, stream, per_thread, false))
STREAM_CALL(cuMemcpyPeer, _ptds, (D to, CUcontext to_context, D from, CUcontext from_context, size_t bytes),
	    ((void)to_context, (void)from_context, copy(to, from, bytes, IN_DEVICE, NULL, per_thread, true)))
STREAM_CALL(cuMemcpyPeerAsync, _ptsz,
	    (D to, CUcontext to_context, D from, CUcontext from_context, size_t bytes, S stream),
	    ((void)to_context, (void)from_context, copy(to, from, bytes, IN_DEVICE, stream, per_thread, false)))
STREAM_CALL(cuMemsetD8, _ptds, (D to, unsigned char value, size_t count),
	    fill(to, value, 1, count, NULL, per_thread, true))
STREAM_CALL(cuMemsetD8_v2, _ptds, (D to, unsigned char value, size_t count),
	    fill(to, value, 1, count, NULL, per_thread, true))
STREAM_CALL(cuMemsetD32, _ptds, (D to, unsigned int value, size_t count),
	    fill(to, value, 4, count, NULL, per_thread, true))
STREAM_CALL(cuMemsetD32_v2, _ptds, (D to, unsigned int value, size_t count),
	    fill(to, value, 4, count, NULL, per_thread, true))
STREAM_CALL(cuMemsetD8Async, _ptsz, (D to, unsigned char value, size_t count, S stream),
	    fill(to, value, 1, count, stream, per_thread, false))
STREAM_CALL(cuMemsetD32Async, _ptsz, (D to, unsigned int value, size_t count, S stream),
	    fill(to, value, 4, count, stream, per_thread, false))
