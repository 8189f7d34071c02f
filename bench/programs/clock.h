/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program clock: CLOCK_MONOTONIC divided by GPSCHED_TIME_SCALE (real microseconds per program microsecond, 1 when
 * unset). On an embedded GPU whose time is stretched, a program measures and waits in the GPU's time without knowing
 * why.
 */
#ifndef GPSCHED_BENCH_CLOCK_H
#define GPSCHED_BENCH_CLOCK_H

#include <time.h>

/* Reads GPSCHED_TIME_SCALE; an invalid value ends the program with exit code 2. Call it once, first. */
void clock_setup(void);

/* Program time now, in microseconds. */
double clock_now_us(void);

/* How long `us` of program time lasts on the real clock. */
struct timespec clock_real(double us);

/* Sleeps until program time `us`; returns early when a signal arrives. */
void clock_sleep_until(double us);

/* Keeps the processor busy until program time `us`, as host preparation does. In stretched time it sleeps for most of
 * it, so that several programs fit on two cores. */
void clock_work_until(double us);

#endif
