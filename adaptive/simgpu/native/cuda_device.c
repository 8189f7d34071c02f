/* SPDX-License-Identifier: Apache-2.0 */
/* What programs ask about the driver, its devices and its errors. */
#include "cuda_sim.h"

#include <stdio.h>
#include <string.h>

#define DRIVER_VERSION 13000

static CUresult on_device(CUdevice device)
{
	CUresult result = ensure_ready();

	if (result)
		return result;
	return device < 0 || device >= device_count() ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static CUresult give_int(CUresult result, int *to, int value)
{
	if (!result && !to)
		return CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*to = value;
	return result;
}

static CUresult device_name(char *name, int length, CUdevice device)
{
	CUresult result = on_device(device);

	if (!result && name && length > 0)
		snprintf(name, (size_t)length, "gpsched simulated GPU %d", device_instance(device));
	return result;
}

static CUresult device_uuid(void *uuid, CUdevice device)
{
	CUresult result = on_device(device);

	if (!result) {
		memcpy(uuid, "gpsched-simgpu-", 15);
		((char *)uuid)[15] = (char)('0' + device_instance(device));
	}
	return result;
}

static CUresult device_memory(size_t *bytes, CUdevice device)
{
	CUresult result = on_device(device);

	if (!result)
		*bytes = TOTAL_MEMORY;
	return result;
}

/* CUdevice_attribute: what programs commonly ask, as on an H200; 0 for the rest. */
static int attribute(int which)
{
	switch (which) {
	case 1: /* MAX_THREADS_PER_BLOCK */
	case 2: /* MAX_BLOCK_DIM_X */
	case 3: /* MAX_BLOCK_DIM_Y */
		return 1024;
	case 5: /* MAX_GRID_DIM_X */
		return 2147483647;
	case 8: /* MAX_SHARED_MEMORY_PER_BLOCK */
		return 49152;
	case 10: /* WARP_SIZE */
		return 32;
	case 13: /* CLOCK_RATE, kHz */
		return 1980000;
	case 16: /* MULTIPROCESSOR_COUNT */
		return 132;
	case 19: /* CAN_MAP_HOST_MEMORY */
	case 31: /* CONCURRENT_KERNELS */
	case 41: /* UNIFIED_ADDRESSING */
	case 78: /* STREAM_PRIORITIES_SUPPORTED */
	case 95: /* COOPERATIVE_LAUNCH */
		return 1;
	case 39: /* MAX_THREADS_PER_MULTIPROCESSOR */
		return 2048;
	case 40: /* ASYNC_ENGINE_COUNT */
		return 3;
	case 75: /* COMPUTE_CAPABILITY_MAJOR */
		return 9;
	default:
		return 0;
	}
}

static const struct {
	CUresult code;
	const char *name, *text;
} ERRORS[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "cuInit was not called"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no simulated GPU: GPSCHED_SIM_DIR is not set"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "no such device"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "no current context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "not complete yet"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "already registered"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "not registered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "the simulated GPU went away"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "not supported by the simulated GPU"},
    {CUDA_ERROR_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "the simulated GPU's server does not answer"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not allowed during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture is not valid"},
};

static CUresult describe(CUresult code, const char **to, bool name)
{
	for (size_t i = 0; i < sizeof(ERRORS) / sizeof(ERRORS[0]); i++)
		if (ERRORS[i].code == code) {
			*to = name ? ERRORS[i].name : ERRORS[i].text;
			return CUDA_SUCCESS;
		}
	*to = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

CALL(cuDriverGetVersion, (int *version), give_int(CUDA_SUCCESS, version, DRIVER_VERSION))
CALL(cuDeviceGetCount, (int *count), give_int(ensure_ready(), count, device_count()))
CALL(cuDeviceGet, (CUdevice * device, int ordinal), give_int(on_device(ordinal), device, ordinal))
CALL(cuDeviceGetName, (char *name, int length, CUdevice device), device_name(name, length, device))
CALL(cuDeviceGetUuid, (void *uuid, CUdevice device), device_uuid(uuid, device))
CALL(cuDeviceGetUuid_v2, (void *uuid, CUdevice device), device_uuid(uuid, device))
CALL(cuDeviceGetAttribute, (int *value, int which, CUdevice device),
     give_int(on_device(device), value, attribute(which)))
CALL(cuDeviceTotalMem, (size_t * bytes, CUdevice device), device_memory(bytes, device))
CALL(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device), device_memory(bytes, device))
CALL(cuGetErrorName, (CUresult code, const char **name), describe(code, name, true))
CALL(cuGetErrorString, (CUresult code, const char **text), describe(code, text, false))
