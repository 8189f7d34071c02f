/* SPDX-License-Identifier: Apache-2.0 */
#include "work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "exit_codes.h"

/* Calibration: kernels of two lengths, so that the constant cost of a launch falls out of the difference; the shortest
 * of several, since another process may have the GPU in between. The warm-up lets the clocks rise. */
#define CALIBRATION_ITERS 20000
#define CALIBRATION_ROUNDS 10
#define WARM_UP_US 50e3
#define WARM_UP_KERNELS 10 /* between two looks at the clock */

/* PTX text, ended by a zero byte as cuModuleLoadData wants it. */
__asm__(".section .rodata\n"
	"work_ptx: .incbin \"work.ptx\"\n"
	".byte 0\n"
	".previous\n");
extern const char work_ptx[];

/* Queues all kernels at once with an event between each two: what waits for another process is only the first one, and
 * those during which the GPU was taken away. */
static float shortest_kernel_us(struct work *work, CUevent *events, uint32_t iters)
{
	float shortest = HUGE_VALF;

	CHECK(cuEventRecord(events[0], NULL));
	for (int round = 1; round <= CALIBRATION_ROUNDS; round++) {
		work_launch(work, NULL, iters);
		CHECK(cuEventRecord(events[round], NULL));
	}
	CHECK(cuEventSynchronize(events[CALIBRATION_ROUNDS]));
	for (int round = 1; round <= CALIBRATION_ROUNDS; round++) {
		float milliseconds = 0;

		CHECK(cuEventElapsedTime(&milliseconds, events[round - 1], events[round]));
		shortest = fminf(shortest, milliseconds * 1e3F);
	}
	return shortest;
}

static void warm_up(struct work *work)
{
	double until = clock_now_us() + WARM_UP_US;

	while (clock_now_us() < until) {
		for (int kernel = 0; kernel < WARM_UP_KERNELS; kernel++)
			work_launch(work, NULL, CALIBRATION_ITERS);
		CHECK(cuCtxSynchronize());
	}
}

static double calibrate(struct work *work)
{
	CUevent events[CALIBRATION_ROUNDS + 1];
	float once, twice;

	for (int i = 0; i <= CALIBRATION_ROUNDS; i++)
		CHECK(cuEventCreate(&events[i], CU_EVENT_DEFAULT));
	warm_up(work);
	once = shortest_kernel_us(work, events, CALIBRATION_ITERS);
	twice = shortest_kernel_us(work, events, 2 * CALIBRATION_ITERS);
	if (!(twice > once)) {
		fprintf(stderr, "calibration failed (%.1f and %.1f us); give --iters-per-us\n", (double)once,
			(double)twice);
		exit(EXIT_CUDA);
	}
	return CALIBRATION_ITERS / (double)(twice - once);
}

void work_setup(struct work *work, uint32_t blocks, double iters_per_us)
{
	CUmodule module;

	*work = (struct work){.n = blocks * WORK_THREADS};
	CHECK(cuModuleLoadData(&module, work_ptx));
	CHECK(cuModuleGetFunction(&work->function, module, "gpsched_work"));
	CHECK(cuMemAlloc_v2(&work->state, (size_t)work->n * sizeof(float)));
	CHECK(cuMemAlloc_v2(&work->count, (size_t)work->n * sizeof(uint32_t)));
	CHECK(cuMemsetD32_v2(work->state, 0, work->n));
	CHECK(cuMemsetD32_v2(work->count, 0, work->n));
	work->iters_per_us = iters_per_us > 0 ? iters_per_us : calibrate(work);
}

uint32_t work_iters(const struct work *work, double us)
{
	double iters = us * work->iters_per_us + 0.5;

	return iters < 1 ? 1 : iters > UINT32_MAX ? UINT32_MAX : (uint32_t)iters;
}

void work_launch(struct work *work, CUstream stream, uint32_t iters)
{
	void *parameters[] = {&work->state, &work->count, &iters, &work->n};

	CHECK(cuLaunchKernel(work->function, work->n / WORK_THREADS, 1, 1, WORK_THREADS, 1, 1, 0, stream, parameters,
			     NULL));
	work->launched++;
}

static uint32_t *copy_words(CUdeviceptr from, uint32_t n)
{
	uint32_t *words = malloc((size_t)n * sizeof(*words));

	if (!words) {
		fprintf(stderr, "no memory to verify %u counters; use fewer --blocks\n", n);
		exit(EXIT_CUDA);
	}
	CHECK(cuMemcpyDtoH_v2(words, from, (size_t)n * sizeof(*words)));
	return words;
}

struct work_errors work_verify(const struct work *work)
{
	struct work_errors errors = {0, 0};
	uint32_t *count, *state;

	CHECK(cuCtxSynchronize());
	count = copy_words(work->count, work->n);
	state = copy_words(work->state, work->n);
	for (uint32_t i = 0; i < work->n; i++) {
		errors.counters += count[i] != (uint32_t)work->launched;
		errors.states += state[i] != state[0];
	}
	free(count);
	free(state);
	return errors;
}
