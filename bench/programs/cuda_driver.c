/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exit_codes.h"

struct cuda_driver cu;

static char device_name[128];

static void *symbol_or_exit(void *library, const char *name)
{
	void *address = dlsym(library, name);

	if (!address) {
		fprintf(stderr, "libcuda.so.1 has no %s; install an NVIDIA driver for CUDA 12 or later\n", name);
		exit(EXIT_NO_DEVICE);
	}
	return address;
}

static void load_library(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		fprintf(stderr, "cannot load libcuda.so.1 (%s); install the NVIDIA driver or use the embedded GPU\n",
			dlerror());
		exit(EXIT_NO_DEVICE);
	}
	/* ISO C has no conversion from void * to a function pointer: POSIX's way is through the pointer's storage. */
#define CUDA_LOAD(symbol, parameters) *(void **)&cu.symbol = symbol_or_exit(library, #symbol);
	CUDA_CALLS(CUDA_LOAD)
#undef CUDA_LOAD
}

static void exit_without_device(const char *why)
{
	fprintf(stderr, "no GPU: %s; see nvidia-smi and CUDA_VISIBLE_DEVICES\n", why);
	exit(EXIT_NO_DEVICE);
}

void cuda_open(int ordinal, bool own_context)
{
	CUcontext context;
	CUdevice device;
	CUresult result;
	int count = 0;

	load_library();
	result = cu.cuInit(0);
	if (result == CU_ERROR_NO_DEVICE)
		exit_without_device("CUDA finds no device");
	cuda_check(result, "cuInit(0)");
	CHECK(cuDeviceGetCount(&count));
	if (ordinal >= count) {
		char why[64];

		snprintf(why, sizeof(why), "number %d was asked for, there are %d", ordinal, count);
		exit_without_device(why);
	}
	CHECK(cuDeviceGet(&device, ordinal));
	CHECK(cuDeviceGetName(device_name, sizeof(device_name), device));
	if (own_context)
		CHECK(cuCtxCreate_v2(&context, 0, device));
	else
		CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
}

const char *cuda_device_name(void)
{
	return device_name;
}

void cuda_check(CUresult result, const char *call)
{
	const char *name = NULL;

	if (!result)
		return;
	if (cu.cuGetErrorName(result, &name) || !name)
		name = "unknown error";
	fprintf(stderr, "%.*s failed: %s (%d); see the kernel log for NVRM or Xid lines\n", (int)strcspn(call, "("),
		call, name, result);
	exit(EXIT_CUDA);
}
