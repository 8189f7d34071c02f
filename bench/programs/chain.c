/* SPDX-License-Identifier: Apache-2.0 */
#include "chain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "options.h"

static double *read_lengths(const char *name, int *count)
{
	double *lengths = malloc(MAX_CHAIN * sizeof(*lengths));
	FILE *file = fopen(name, "r");
	double us;
	int got = EOF;

	if (!file || !lengths)
		usage_error("--chain: cannot read %s: %s", name, strerror(errno));
	for (*count = 0; (got = fscanf(file, "%lf", &us)) == 1; lengths[(*count)++] = us)
		if (!(us >= 0.1 && us <= 1e6) || *count == MAX_CHAIN)
			break;
	if (!*count || got != EOF)
		usage_error("--chain: %s: line %d is not a length from 0.1 to 1e6 us (at most %d lines)", name,
			    *count + 1, MAX_CHAIN);
	fclose(file);
	return lengths;
}

void chain_setup(struct chain *chain, const struct work *work, const char *file, int kernels, double kernel_us)
{
	double *lengths = file ? read_lengths(file, &kernels) : NULL;

	*chain = (struct chain){.iters = malloc((size_t)kernels * sizeof(*chain->iters)), .length = kernels};
	if (!chain->iters)
		usage_error("no memory for %d kernels", kernels);
	for (int i = 0; i < kernels; i++)
		chain->iters[i] = work_iters(work, lengths ? lengths[i] : kernel_us);
	free(lengths);
}

static void launch_each(const struct chain *chain, struct work *work, CUstream stream, double gap_us)
{
	for (int i = 0; i < chain->length; i++) {
		if (i && gap_us > 0)
			clock_work_until(clock_now_us() + gap_us);
		work_launch(work, stream, chain->iters[i]);
	}
}

void chain_capture(struct chain *chain, struct work *work, CUstream stream)
{
	uint64_t launched = work->launched;
	CUgraph graph;

	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch_each(chain, work, stream, 0);
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&chain->graph, graph, 0));
	work->launched = launched; /* captured, not run */
}

void chain_launch(struct chain *chain, struct work *work, CUstream stream, double gap_us)
{
	if (!chain->graph) {
		launch_each(chain, work, stream, gap_us);
		return;
	}
	CHECK(cuGraphLaunch(chain->graph, stream));
	work->launched += (uint64_t)chain->length;
}
