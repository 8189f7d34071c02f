/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda.h"

#include <dlfcn.h>

struct cuda_driver cu;

/* A stream capture of the program forbids some calls to all threads that have not said that they know what they do. */
static void leave_captures_alone(void *library)
{
	CUresult (*exchange)(int *mode) = NULL;
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	*(void **)&exchange = dlsym(library, "cuThreadExchangeStreamCaptureMode");
	if (exchange)
		exchange(&mode);
}

bool cuda_load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (!library)
		return false;
#define CUDA_LOAD(symbol, parameters)                                                                                  \
	*(void **)&cu.symbol = dlsym(library, #symbol);                                                                \
	if (!cu.symbol)                                                                                                \
		return false;
	CUDA_CALLS(CUDA_LOAD)
#undef CUDA_LOAD
	leave_captures_alone(library);
	return true;
}
