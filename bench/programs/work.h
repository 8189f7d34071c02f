/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel gpsched_work (work.ptx) with its buffers, its calibration and the check of its results. */
#ifndef GPSCHED_BENCH_WORK_H
#define GPSCHED_BENCH_WORK_H

#include <stdint.h>

#include "cuda_driver.h"

#define WORK_THREADS 256 /* a block */

struct work {
	CUfunction function;
	CUdeviceptr state, count;
	uint32_t n;	     /* threads, and elements of both buffers */
	uint64_t launched;   /* kernels since work_setup */
	double iters_per_us; /* of the whole grid, alone on the GPU */
};

struct work_errors {
	uint64_t counters; /* counters that differ from the number of kernels launched */
	uint64_t states;   /* state words that differ from the first one: all threads do the same arithmetic */
};

/* Loads the kernel and clears its buffers. `iters_per_us` 0 = measure it by event times. */
void work_setup(struct work *work, uint32_t blocks, double iters_per_us);

/* Iterations of a kernel that lasts `us`. */
uint32_t work_iters(const struct work *work, double us);

/* Queues one kernel. */
void work_launch(struct work *work, CUstream stream, uint32_t iters);

/* Waits for the GPU and checks the result of all kernels. A caller that overwrites state ignores `states`. */
struct work_errors work_verify(const struct work *work);

#endif
