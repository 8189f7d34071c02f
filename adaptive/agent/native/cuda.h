/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA driver API that the agent uses, from the library that the program has loaded. Names, types and
 * values mirror cuda.h.
 */
#ifndef GPSCHED_AGENT_CUDA_H
#define GPSCHED_AGENT_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult; /* 0 = CUDA_SUCCESS */
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;

enum {
	CU_ERROR_OUT_OF_MEMORY = 2,
	CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CU_STREAM_NON_BLOCKING = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
	CU_MEMHOSTREGISTER_DEVICEMAP = 2,
};

/* X(symbol, parameters): `cu.symbol(...)` calls it. */
#define CUDA_CALLS(X)                                                                                                  \
	X(cuDeviceGetCount, (int *count))                                                                              \
	X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active))                             \
	X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                            \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                             \
	X(cuCtxSetCurrent, (CUcontext context))                                                                        \
	X(cuCtxGetStreamPriorityRange, (int *least, int *greatest))                                                    \
	X(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority))                           \
	X(cuModuleLoadData, (CUmodule * module, const void *image))                                                    \
	X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))                             \
	X(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned int flags))                                      \
	X(cuMemHostGetDevicePointer_v2, (CUdeviceptr * pointer, void *memory, unsigned int flags))                     \
	X(cuLaunchKernel, (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,         \
			   unsigned int block_x, unsigned int block_y, unsigned int block_z,                           \
			   unsigned int shared_bytes, CUstream stream, void **parameters, void **extra))

#define CUDA_FIELD(symbol, parameters) CUresult(*symbol) parameters;
struct cuda_driver {
	CUDA_CALLS(CUDA_FIELD)
};
#undef CUDA_FIELD

extern struct cuda_driver cu;

/* Finds the calls; false when the library lacks one. */
bool cuda_load(void);

#endif
