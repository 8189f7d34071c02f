/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of kernels of given lengths, as one inference of a model is: launched one by one, or as one CUDA graph. */
#ifndef GPSCHED_BENCH_CHAIN_H
#define GPSCHED_BENCH_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "work.h"

#define MAX_CHAIN 10000

struct chain {
	uint32_t *iters;
	int length;
	CUgraphExec graph; /* NULL: launched one by one */
};

/* Lengths in microseconds, one a line, of `file`; `kernels` times `kernel_us` when it is NULL. Ends the program with
 * EXIT_USAGE when the file cannot be read or holds anything else. */
void chain_setup(struct chain *chain, const struct work *work, const char *file, int kernels, double kernel_us);

/* Makes one CUDA graph of it; launches through `stream` from then on. */
void chain_capture(struct chain *chain, struct work *work, CUstream stream);

/* Queues the whole chain, with `gap_us` of host work between two launches unless it is a graph. */
void chain_launch(struct chain *chain, struct work *work, CUstream stream, double gap_us);

#endif
