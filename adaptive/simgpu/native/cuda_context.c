/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: each allocates from the resource manager what a context of the real library was seen to allocate. */
#include "cuda_sim.h"

#include <stdlib.h>

#define STACK 32

static struct context *contexts;
static struct context *primary[MAX_DEVICES];
static __thread struct context *stack[STACK];
static __thread int depth; /* of the stack; the top is current */

CUresult current_context(struct context **context)
{
	*context = depth ? stack[depth - 1] : NULL;
	if (*context)
		return (*context)->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
	return ensure_ready() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_CONTEXT;
}

void contexts_forget(void)
{
	contexts = NULL;
	for (int i = 0; i < MAX_DEVICES; i++)
		primary[i] = NULL;
	depth = 0;
}

/* One channel group; the library itself sets the default timeslice once the group exists. */
static bool group_alloc(uint32_t device, uint32_t engine_class, int channels, uint32_t *first)
{
	uint64_t timeslice_us = ENGINE_DEFAULT_TIMESLICE_US;
	uint32_t group, channel, object;
	uint8_t enable[3] = {1, 0, 0};

	if (rm_alloc(device, 0xa06c, NULL, 0, &group))
		return false;
	for (int i = 0; i < channels; i++) {
		if (rm_alloc(group, 0xc86f, NULL, 0, &channel) || rm_alloc(channel, engine_class, NULL, 0, &object))
			return false;
		if (first)
			first[i] = channel;
	}
	return !rm_control(group, 0xa06c0103, &timeslice_us, sizeof(timeslice_us)) &&
	       !rm_control(group, 0xa06c0101, enable, sizeof(enable));
}

static bool context_alloc(struct context *context)
{
	uint32_t params[14] = {(uint32_t)device_instance(context->device)}, subdevice_params = 0, subdevice;

	if (rm_alloc(rm_root(), 0x80, params, sizeof(params), &context->rm_device) ||
	    rm_alloc(context->rm_device, 0x2080, &subdevice_params, sizeof(subdevice_params), &subdevice) ||
	    !group_alloc(context->rm_device, 0xcbc0, COMPUTE_CHANNELS, context->channel))
		return false;
	for (int i = 1; i < GROUPS; i++)
		if (!group_alloc(context->rm_device, 0xc8b5, COPY_CHANNELS, NULL))
			return false;
	return true;
}

static void context_free(struct context *context)
{
	struct context **link = &contexts;

	context_wait(context);
	pthread_mutex_lock(&sim_lock);
	while (*link && *link != context)
		link = &(*link)->next;
	if (*link)
		*link = context->next;
	context->dead = true;
	while (context->streams)
		stream_destroy(context->streams);
	pthread_mutex_unlock(&sim_lock);
	rm_free(rm_root(), context->rm_device);
}

static CUresult context_new(struct context **to, CUdevice device)
{
	struct context *context = calloc(1, sizeof(*context));

	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->device = device;
	if (!context_alloc(context)) {
		rm_free(rm_root(), context->rm_device);
		free(context);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&sim_lock);
	context->legacy = stream_create(context, true);
	context->next = contexts;
	contexts = context;
	pthread_mutex_unlock(&sim_lock);
	*to = context;
	return CUDA_SUCCESS;
}

static CUresult check_device(CUdevice device)
{
	CUresult result = ensure_ready();

	if (result)
		return result;
	return device < 0 || device >= device_count() ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static CUresult push(struct context *context)
{
	if (depth == STACK)
		return CUDA_ERROR_INVALID_VALUE;
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

static CUresult create(CUcontext *to, CUdevice device)
{
	CUresult result = check_device(device);

	if (!result)
		result = context_new(to, device);
	return result ? result : push(*to);
}

static void drop_from_stack(struct context *context)
{
	int kept = 0;

	for (int i = 0; i < depth; i++)
		if (stack[i] != context)
			stack[kept++] = stack[i];
	depth = kept;
}

static CUresult destroy(CUcontext context)
{
	if (!context || context->dead)
		return CUDA_ERROR_INVALID_CONTEXT;
	drop_from_stack(context);
	context_free(context);
	return CUDA_SUCCESS;
}

static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult retain(CUcontext *to, CUdevice device)
{
	CUresult result = check_device(device);

	if (result)
		return result;
	pthread_mutex_lock(&primary_lock);
	if (!primary[device])
		result = context_new(&primary[device], device);
	if (!result) {
		primary[device]->primary_refs++;
		*to = primary[device];
	}
	pthread_mutex_unlock(&primary_lock);
	return result;
}

static CUresult release(CUdevice device, bool reset)
{
	CUresult result = check_device(device);

	if (result)
		return result;
	pthread_mutex_lock(&primary_lock);
	struct context *context = primary[device];
	if (!context) {
		result = reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	} else if (reset || --context->primary_refs == 0) {
		primary[device] = NULL;
		destroy(context);
	}
	pthread_mutex_unlock(&primary_lock);
	return result;
}

static CUresult primary_state(CUdevice device, unsigned int *flags, int *active)
{
	CUresult result = check_device(device);

	if (!result) {
		*flags = 0;
		*active = primary[device] != NULL;
	}
	return result;
}

static CUresult set_current(CUcontext context)
{
	if (ensure_ready())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (depth)
		depth--;
	return context ? push(context) : CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *context)
{
	*context = depth ? stack[depth - 1] : NULL;
	return ensure_ready();
}

static CUresult pop(CUcontext *context)
{
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = stack[depth];
	return CUDA_SUCCESS;
}

static CUresult current_device(CUdevice *device)
{
	struct context *context;
	CUresult result = current_context(&context);

	if (!result)
		*device = context->device;
	return result;
}

static CUresult synchronize(void)
{
	struct context *context;
	CUresult result = current_context(&context);

	return result ? result : context_wait(context);
}

static CUresult priority_range(int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return ensure_ready();
}

CALL(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device), ((void)flags, create(context, device)))
CALL(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device), ((void)flags, create(context, device)))
CALL(cuCtxCreate_v3, (CUcontext * context, void *affinity, int count, unsigned int flags, CUdevice device),
     ((void)affinity, (void)count, (void)flags, create(context, device)))
CALL(cuCtxCreate_v4, (CUcontext * context, void *params, unsigned int flags, CUdevice device),
     ((void)params, (void)flags, create(context, device)))
CALL(cuCtxDestroy, (CUcontext context), destroy(context))
CALL(cuCtxDestroy_v2, (CUcontext context), destroy(context))
CALL(cuCtxSetCurrent, (CUcontext context), set_current(context))
CALL(cuCtxGetCurrent, (CUcontext * context), get_current(context))
CALL(cuCtxPushCurrent, (CUcontext context), push(context))
CALL(cuCtxPushCurrent_v2, (CUcontext context), push(context))
CALL(cuCtxPopCurrent, (CUcontext * context), pop(context))
CALL(cuCtxPopCurrent_v2, (CUcontext * context), pop(context))
CALL(cuCtxGetDevice, (CUdevice * device), current_device(device))
CALL(cuCtxSynchronize, (void), synchronize())
CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), priority_range(least, greatest))
CALL(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), retain(context, device))
CALL(cuDevicePrimaryCtxRelease, (CUdevice device), release(device, false))
CALL(cuDevicePrimaryCtxRelease_v2, (CUdevice device), release(device, false))
CALL(cuDevicePrimaryCtxReset, (CUdevice device), release(device, true))
CALL(cuDevicePrimaryCtxReset_v2, (CUdevice device), release(device, true))
CALL(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active),
     primary_state(device, flags, active))
CALL(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned int flags), ((void)flags, check_device(device)))
CALL(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned int flags), ((void)flags, check_device(device)))
