/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA driver API that the sample programs use, from libcuda.so.1 through dlopen, so that they are
 * built without CUDA and one binary runs on a real GPU and on the embedded one. Names, types and values mirror cuda.h
 * (CUDA 12 and 13); each is looked up under the name that the library exports, where uprobes see the calls too.
 */
#ifndef GPSCHED_BENCH_CUDA_DRIVER_H
#define GPSCHED_BENCH_CUDA_DRIVER_H

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
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
	CU_ERROR_NO_DEVICE = 100,
	CU_EVENT_DEFAULT = 0,
	CU_EVENT_DISABLE_TIMING = 2,
	CU_STREAM_NON_BLOCKING = 1,
	CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
};

/* X(symbol, parameters): `cu.symbol(...)` calls it. */
#define CUDA_CALLS(X)                                                                                                  \
	X(cuInit, (unsigned int flags))                                                                                \
	X(cuGetErrorName, (CUresult error, const char **name))                                                         \
	X(cuDriverGetVersion, (int *version))                                                                          \
	X(cuDeviceGetCount, (int *count))                                                                              \
	X(cuDeviceGet, (CUdevice * device, int ordinal))                                                               \
	X(cuDeviceGetName, (char *name, int size, CUdevice device))                                                    \
	X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                            \
	X(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device))                                  \
	X(cuCtxSetCurrent, (CUcontext context))                                                                        \
	X(cuCtxSynchronize, (void))                                                                                    \
	X(cuModuleLoadData, (CUmodule * module, const void *image))                                                    \
	X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))                             \
	X(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))                                                        \
	X(cuMemAllocHost_v2, (void **pointer, size_t bytes))                                                           \
	X(cuMemsetD32_v2, (CUdeviceptr pointer, unsigned int value, size_t words))                                     \
	X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                                 \
	X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                     \
	X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
	X(cuStreamCreate, (CUstream * stream, unsigned int flags))                                                     \
	X(cuStreamSynchronize, (CUstream stream))                                                                      \
	X(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                        \
	X(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                      \
	X(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                  \
	X(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                                          \
	X(cuEventCreate, (CUevent * event, unsigned int flags))                                                        \
	X(cuEventRecord, (CUevent event, CUstream stream))                                                             \
	X(cuEventSynchronize, (CUevent event))                                                                         \
	X(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end))                                       \
	X(cuLaunchKernel, (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,         \
			   unsigned int block_x, unsigned int block_y, unsigned int block_z,                           \
			   unsigned int shared_bytes, CUstream stream, void **parameters, void **extra))

#define CUDA_FIELD(symbol, parameters) CUresult(*symbol) parameters;
struct cuda_driver {
	CUDA_CALLS(CUDA_FIELD)
};
#undef CUDA_FIELD

extern struct cuda_driver cu;

/* Loads libcuda.so.1, initialises it and makes a context of GPU `ordinal` current: the primary one, or one of its own.
 * Ends the program with one line and EXIT_NO_DEVICE when there is no library or no such GPU. */
void cuda_open(int ordinal, bool own_context);

/* The name of the GPU that cuda_open chose. */
const char *cuda_device_name(void);

/* CHECK(call(...)) ends the program with one line and EXIT_CUDA when the call fails. */
#define CHECK(call) cuda_check(cu.call, #call)
void cuda_check(CUresult result, const char *call);

#endif
