/* SPDX-License-Identifier: Apache-2.0 */
#include "holder.h"

#include <sys/mman.h>

#define PAGE_BYTES 4096
#define WARP 32

__asm__(".section .rodata\n"
	".balign 16\n"
	"gpsched_hold_ptx: .incbin \"hold.ptx\"\n"
	".byte 0\n"
	".previous\n");
extern const char hold_ptx[] __asm__("gpsched_hold_ptx") __attribute__((visibility("hidden")));

#define TRY(call)                                                                                                      \
	do {                                                                                                           \
		CUresult result_ = (call);                                                                             \
		if (result_)                                                                                           \
			return result_;                                                                                \
	} while (0)

static CUresult map_flag(struct holder *h)
{
	CUresult result;

	if (!h->flag) {
		void *page =
		    mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (page == MAP_FAILED)
			return CU_ERROR_OUT_OF_MEMORY;
		h->flag = page;
	}
	/* A child would share it copy-on-write and move it away from the GPU. */
	madvise((void *)h->flag, PAGE_BYTES, MADV_DONTFORK);
	result = cu.cuMemHostRegister_v2((void *)h->flag, PAGE_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result && result != CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED) /* by an attempt that failed later */
		return result;
	return cu.cuMemHostGetDevicePointer_v2(&h->flag_address, (void *)h->flag, 0);
}

/* Non-blocking, or the program's default stream would wait for the hold; the highest priority, to be first. */
static CUresult prepare(struct holder *h)
{
	int least = 0, greatest = 0;
	CUmodule module;

	TRY(cu.cuCtxSetCurrent(h->context));
	TRY(map_flag(h));
	TRY(cu.cuModuleLoadData(&module, hold_ptx));
	TRY(cu.cuModuleGetFunction(&h->function, module, "gpsched_hold"));
	TRY(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
	TRY(cu.cuStreamCreateWithPriority(&h->stream, CU_STREAM_NON_BLOCKING, greatest));
	/* The first launch loads the code: that must not happen when a hold is needed. It ends at once. */
	return holder_launch(h, *h->flag, 1, 0);
}

/* The context is the program's: a reference that is kept would keep its memory when the program gives it up. */
CUresult holder_follow(struct holder *h, CUdevice device)
{
	unsigned int flags;
	int active = 0;
	CUresult result;

	TRY(cu.cuDevicePrimaryCtxGetState(device, &flags, &active));
	if (!active)
		h->ready = false;
	if (!active || h->ready)
		return 0;
	TRY(cu.cuDevicePrimaryCtxRetain(&h->context, device));
	result = prepare(h);
	cu.cuDevicePrimaryCtxRelease_v2(device);
	h->ready = !result;
	return result;
}

CUresult holder_launch(struct holder *h, uint32_t sequence, uint32_t kernels, uint64_t limit_ns)
{
	void *parameters[] = {&h->flag_address, &sequence, &limit_ns};

	TRY(cu.cuCtxSetCurrent(h->context));
	for (uint32_t i = 0; i < kernels; i++)
		TRY(cu.cuLaunchKernel(h->function, 1, 1, 1, WARP, 1, 1, 0, h->stream, parameters, NULL));
	return 0;
}

void holder_release(struct holder *h, uint32_t sequence)
{
	if (h->flag)
		__atomic_store_n(h->flag, sequence, __ATOMIC_RELEASE);
}
