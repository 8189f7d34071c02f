/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver for tests of the sample programs: a kernel lasts `iters` ns and runs inside its launch call. It can
 * misbehave: FAKE_CUDA_DROP=N loses the Nth launch of the process after the last memset, FAKE_CUDA_TWICE=N runs it
 * twice, FAKE_CUDA_FAIL=N fails it, FAKE_CUDA_DEVICES sets the number of GPUs (1).
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_CAPTURED 1024
#define LAUNCH_FAILED 719

struct launch {
	uint32_t *count;
	uint32_t iters, n;
};

static struct launch captured[MAX_CAPTURED];
static int captured_count, capturing;
static uint64_t gpu_ns;
static long launches;

static long setting(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? atol(text) : otherwise;
}

static int execute(const struct launch *launch)
{
	struct timespec length = {0, launch->iters};
	int times = 1;

	launches++;
	if (launches == setting("FAKE_CUDA_FAIL", -1))
		return LAUNCH_FAILED;
	if (launches == setting("FAKE_CUDA_DROP", -1))
		times = 0;
	if (launches == setting("FAKE_CUDA_TWICE", -1))
		times = 2;
	nanosleep(&length, NULL);
	gpu_ns += launch->iters;
	for (uint32_t i = 0; i < launch->n; i++)
		launch->count[i] += (uint32_t)times;
	return 0;
}

int cuInit(unsigned int flags)
{
	(void)flags;
	return setting("FAKE_CUDA_DEVICES", 1) ? 0 : 100;
}

int cuGetErrorName(int error, const char **name)
{
	*name = error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_UNKNOWN";
	return 0;
}

int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

int cuDeviceGetCount(int *count)
{
	*count = (int)setting("FAKE_CUDA_DEVICES", 1);
	return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
	(void)device;
	strncpy(name, "Fake GPU", (size_t)size);
	return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	(void)device;
	*context = &gpu_ns;
	return 0;
}

int cuCtxCreate_v2(void **context, unsigned int flags, int device)
{
	(void)flags;
	return cuDevicePrimaryCtxRetain(context, device);
}

int cuCtxSetCurrent(void *context)
{
	(void)context;
	return 0;
}

int cuCtxSynchronize(void)
{
	return 0;
}

int cuModuleLoadData(void **module, const void *image)
{
	*module = (void *)image;
	return strstr(image, ".visible .entry gpsched_work(") ? 0 : 218;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = module;
	return strcmp(name, "gpsched_work") ? 500 : 0;
}

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes)
{
	*pointer = (uint64_t)malloc(bytes);
	return 0;
}

int cuMemAllocHost_v2(void **pointer, size_t bytes)
{
	*pointer = malloc(bytes);
	return 0;
}

int cuMemsetD32_v2(uint64_t pointer, unsigned int value, size_t words)
{
	for (size_t i = 0; i < words; i++)
		((uint32_t *)pointer)[i] = value;
	launches = 0;
	return 0;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
	memcpy(to, (void *)from, bytes);
	return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
	(void)stream;
	memcpy((void *)to, from, bytes);
	return 0;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
	(void)stream;
	return cuMemcpyDtoH_v2(to, from, bytes);
}

int cuStreamCreate(void **stream, unsigned int flags)
{
	(void)flags;
	*stream = &capturing;
	return 0;
}

int cuStreamSynchronize(void *stream)
{
	(void)stream;
	return 0;
}

int cuStreamBeginCapture_v2(void *stream, int mode)
{
	(void)stream, (void)mode;
	capturing = 1;
	return 0;
}

int cuStreamEndCapture(void *stream, void **graph)
{
	(void)stream;
	capturing = 0;
	*graph = captured;
	return 0;
}

int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
	(void)flags;
	*exec = graph;
	return 0;
}

int cuGraphLaunch(void *exec, void *stream)
{
	(void)exec, (void)stream;
	for (int i = 0; i < captured_count; i++) {
		int result = execute(&captured[i]);

		if (result)
			return result;
	}
	return 0;
}

int cuEventCreate(void **event, unsigned int flags)
{
	(void)flags;
	*event = calloc(1, sizeof(uint64_t));
	return 0;
}

int cuEventRecord(void *event, void *stream)
{
	(void)stream;
	*(uint64_t *)event = gpu_ns;
	return 0;
}

int cuEventSynchronize(void *event)
{
	(void)event;
	return 0;
}

int cuEventElapsedTime(float *milliseconds, void *start, void *end)
{
	*milliseconds = (float)(*(uint64_t *)end - *(uint64_t *)start) * 1e-6F;
	return 0;
}

int cuLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
		   unsigned int block_y, unsigned int block_z, unsigned int shared, void *stream, void **parameters,
		   void **extra)
{
	struct launch launch = {(uint32_t *)*(uint64_t *)parameters[1], *(uint32_t *)parameters[2],
				*(uint32_t *)parameters[3]};

	(void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
	(void)shared, (void)stream, (void)extra;
	if (!capturing)
		return execute(&launch);
	captured[captured_count++] = launch;
	return 0;
}
