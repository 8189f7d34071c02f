/* SPDX-License-Identifier: Apache-2.0 */
/* Hold kernels in the primary contexts of the program; one holder a GPU. */
#ifndef GPSCHED_HOLDER_H
#define GPSCHED_HOLDER_H

#include "cuda.h"

#define MAX_DEVICES 16

struct holder {
	CUcontext context;
	CUfunction function;
	CUstream stream;
	CUdeviceptr flag_address; /* as the GPU sees it */
	volatile uint32_t *flag;  /* a page of our own: it must outlive the context */
	bool ready;
};

/* Prepares the holder when the program has made its primary context, and forgets it when that is gone. Returns a
 * CUresult. */
CUresult holder_follow(struct holder *h, CUdevice device);

/* Launches `kernels` back to back. They end when holder_release gives `sequence`, or one limit after they begin to run.
 */
CUresult holder_launch(struct holder *h, uint32_t sequence, uint32_t kernels, uint64_t limit_ns);

void holder_release(struct holder *h, uint32_t sequence);

#endif
