/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda that runs nothing: it counts the agent's calls and lets the test choose which of them fails. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MAX_LAUNCHES 64

int fake_active;    /* the program has made its primary context */
char fake_fail[64]; /* the call that fails */
int fake_fail_times, fake_result = 999;
int fake_references; /* to the primary context, by the agent */
int fake_launches, fake_flags;

struct {
	uint64_t flag, limit_ns;
	uint32_t sequence, threads;
} fake_launch[MAX_LAUNCHES];

static int result(const char *call)
{
	if (strcmp(call, fake_fail) || !fake_fail_times)
		return 0;
	fake_fail_times--;
	return fake_result;
}

int cuDeviceGetCount(int *count)
{
	*count = 1;
	return result(__func__);
}

int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active)
{
	(void)device, (void)flags;
	*active = fake_active;
	return result(__func__);
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	(void)device;
	*context = &fake_active;
	if (result(__func__))
		return fake_result;
	fake_references++;
	return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	fake_references--;
	return 0;
}

int cuCtxSetCurrent(void *context)
{
	(void)context;
	return result(__func__);
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return result(__func__);
}

int cuStreamCreateWithPriority(void **stream, unsigned int flags, int priority)
{
	*stream = &fake_flags;
	fake_flags = (int)flags | (priority == -5 ? 0x100 : 0);
	return result(__func__);
}

int cuModuleLoadData(void **module, const void *image)
{
	*module = &fake_launch;
	return strstr(image, ".entry gpsched_hold(") ? result(__func__) : 218;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = module;
	return strcmp(name, "gpsched_hold") ? 500 : result(__func__);
}

int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	(void)memory, (void)bytes, (void)flags;
	return result(__func__);
}

int cuMemHostGetDevicePointer_v2(uint64_t *pointer, void *memory, unsigned int flags)
{
	(void)flags;
	*pointer = (uint64_t)memory;
	return result(__func__);
}

int cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
		   unsigned int bz, unsigned int shared, void *stream, void **parameters, void **extra)
{
	(void)function, (void)shared, (void)stream, (void)extra;
	if (result(__func__))
		return fake_result;
	fake_launch[fake_launches % MAX_LAUNCHES].flag = *(uint64_t *)parameters[0];
	fake_launch[fake_launches % MAX_LAUNCHES].sequence = *(uint32_t *)parameters[1];
	fake_launch[fake_launches % MAX_LAUNCHES].limit_ns = *(uint64_t *)parameters[2];
	fake_launch[fake_launches % MAX_LAUNCHES].threads = gx * gy * gz * bx * by * bz;
	fake_launches++;
	return 0;
}
