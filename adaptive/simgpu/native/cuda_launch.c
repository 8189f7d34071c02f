/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules, functions, launches. There is no code to run: a kernel is GPU time and, for the two that are known by name,
 * an effect. gpsched_work(u64 state, u64 count, u32 iters, u32 n) takes iters ns and adds 1 to count[0..n);
 * gpsched_hold(u64 flag, u32 seq[, u64 limit_ns]) runs until the 32-bit word at `flag` is at least `seq`, or for the
 * limit.
 */
#include "cuda_sim.h"

#include <stdlib.h>
#include <string.h>

#define NAME_LENGTH 128
#define DEFAULT_KERNEL_US 100
#define PACKED ((void *)1) /* CU_LAUNCH_PARAM_BUFFER_POINTER */

enum function_kind { UNKNOWN, WORK, HOLD };

struct function {
	struct function *next;
	enum function_kind kind;
	bool is_limited;
	char name[NAME_LENGTH];
};

struct module {
	struct function *functions;
	bool hold_is_limited; /* its gpsched_hold has the third parameter */
};

/* CUlaunchConfig of cuda.h */
struct launch_config {
	unsigned int grid[3], block[3], shared;
	CUstream stream;
	void *attributes;
	unsigned int attribute_count;
};

/* Does the PTX text declare gpsched_hold with three parameters? */
static bool finds_limited_hold(const char *image)
{
	bool is_text = !strncmp(image, "//", 2) || !strncmp(image, ".version", 8) || *image == '\n';
	const char *at = is_text ? strstr(image, "gpsched_hold") : NULL;
	const char *end = at ? strchr(at, ')') : NULL;
	int parameters = 0;

	while (end && (at = strstr(at, ".param")) && at < end) {
		parameters++;
		at++;
	}
	return parameters >= 3;
}

static CUresult load(CUmodule *to, const void *image)
{
	struct context *context;
	CUresult result = current_context(&context);

	if (result)
		return result;
	if (!to || !image)
		return CUDA_ERROR_INVALID_VALUE;
	*to = calloc(1, sizeof(**to));
	if (!*to)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*to)->hold_is_limited = finds_limited_hold(image);
	return CUDA_SUCCESS;
}

static CUresult unload(CUmodule module)
{
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	while (module->functions) {
		struct function *function = module->functions;

		module->functions = function->next;
		free(function);
	}
	free(module);
	return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *to, CUmodule module, const char *name)
{
	if (!to || !module || !name || strlen(name) >= NAME_LENGTH)
		return CUDA_ERROR_INVALID_VALUE;
	struct function *function = calloc(1, sizeof(*function));
	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	strcpy(function->name, name);
	function->kind = !strcmp(name, "gpsched_work") ? WORK : !strcmp(name, "gpsched_hold") ? HOLD : UNKNOWN;
	function->is_limited = function->kind == HOLD && module->hold_is_limited;
	pthread_mutex_lock(&sim_lock);
	function->next = module->functions;
	module->functions = function;
	pthread_mutex_unlock(&sim_lock);
	*to = function;
	return CUDA_SUCCESS;
}

static uint64_t default_ns(void)
{
	const char *us = getenv("GPSCHED_SIM_KERNEL_US");

	return (uint64_t)((us && atof(us) > 0 ? atof(us) : DEFAULT_KERNEL_US) * 1000);
}

/* Parameter `index` at `offset` of a packed buffer, or by its own pointer. */
static bool parameter(void **params, void **extra, int index, size_t offset, void *to, size_t size)
{
	const char *from = NULL;

	if (params)
		from = params[index];
	else if (extra && extra[0] == PACKED)
		from = (const char *)extra[1] + offset;
	if (from)
		memcpy(to, from, size);
	return from != NULL;
}

static CUresult work(struct operation *o, void **params, void **extra)
{
	uint64_t count;
	uint32_t iters, n;

	if (!parameter(params, extra, 1, 8, &count, 8) || !parameter(params, extra, 2, 16, &iters, 4) ||
	    !parameter(params, extra, 3, 20, &n, 4))
		return CUDA_ERROR_INVALID_VALUE;
	o->op = (struct sim_op){.kind = OP_KERNEL, .arg = iters};
	o->effect = (struct effect){.kind = count ? EFFECT_ADD : EFFECT_NONE, .to = (void *)count, .count = n};
	return CUDA_SUCCESS;
}

static CUresult hold(const struct function *function, struct operation *o, void **params, void **extra)
{
	uint64_t flag, limit_ns = 0, limit_us = 0;
	uint32_t seq;

	if (!parameter(params, extra, 0, 0, &flag, 8) || !parameter(params, extra, 1, 8, &seq, 4))
		return CUDA_ERROR_INVALID_VALUE;
	if (function->is_limited && parameter(params, extra, 2, 16, &limit_ns, 8))
		limit_us = limit_ns / 1000 < UINT32_MAX ? limit_ns / 1000 + 1 : UINT32_MAX;
	o->op = (struct sim_op){.kind = OP_HOLD, .arg = flag, .value = limit_us << 32 | seq};
	return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, CUstream stream, void **params, void **extra, bool per_thread)
{
	struct operation o = {.op = {.kind = OP_KERNEL}};
	CUresult result = function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;

	if (result)
		return result;
	if (function->kind == WORK)
		result = work(&o, params, extra);
	else if (function->kind == HOLD)
		result = hold(function, &o, params, extra);
	else
		o.op.arg = default_ns();
	return result ? result : stream_enqueue(stream, per_thread, &o, false);
}

static CUresult launch_ex(const struct launch_config *config, CUfunction function, void **params, void **extra,
			  bool per_thread)
{
	return config ? launch(function, config->stream, params, extra, per_thread) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult function_attribute(int *value, CUfunction function)
{
	if (!value || !function)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0;
	return CUDA_SUCCESS;
}

#define GEOMETRY                                                                                                       \
	unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,          \
	    unsigned int shared
#define NO_GEOMETRY (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared

CALL(cuModuleLoadData, (CUmodule * module, const void *image), load(module, image))
CALL(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned int count, int *options, void **values),
     ((void)count, (void)options, (void)values, load(module, image)))
CALL(cuModuleUnload, (CUmodule module), unload(module))
CALL(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name),
     get_function(function, module, name))
CALL(cuFuncGetAttribute, (int *value, int which, CUfunction function),
     ((void)which, function_attribute(value, function)))
CALL(cuFuncSetAttribute, (CUfunction function, int which, int value),
     ((void)which, (void)value, function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE))
STREAM_CALL(cuLaunchKernel, _ptsz, (CUfunction function, GEOMETRY, CUstream stream, void **params, void **extra),
	    (NO_GEOMETRY, launch(function, stream, params, extra, per_thread)))
STREAM_CALL(cuLaunchKernelEx, _ptsz,
	    (const struct launch_config *config, CUfunction function, void **params, void **extra),
	    launch_ex(config, function, params, extra, per_thread))
STREAM_CALL(cuLaunchCooperativeKernel, _ptsz, (CUfunction function, GEOMETRY, CUstream stream, void **params),
	    (NO_GEOMETRY, launch(function, stream, params, NULL, per_thread)))
