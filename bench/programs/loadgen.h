/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load generator: requests over TCP at a given rate, at most one outstanding on each connection. A request that
 * falls due while all connections wait is sent as soon as one is free: `latency` counts from sending it, `scheduled`
 * from when it was due, so that a service that falls behind cannot hide it.
 */
#ifndef GPSCHED_BENCH_LOADGEN_H
#define GPSCHED_BENCH_LOADGEN_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_CONNECTIONS 64

enum arrival { ARRIVAL_CONSTANT, ARRIVAL_POISSON, ARRIVAL_BURSTY, ARRIVAL_JITTER, ARRIVAL_TRACE };
extern const char *const arrival_names[]; /* NULL-ended */

struct load {
	long requests;
	double rate; /* requests per second of program time */
	enum arrival arrival;
	long seed;
	double phase; /* of arrivals at equal distances, as a share of the period; below 0: from now */
};

/* Connects to `port` on loopback; exits with EXIT_LOAD when it cannot. */
void loadgen_connect(int port, int connections, bool http);

/* Sends the load and prints one JSON line with all latencies; exits with EXIT_LOAD when the service is lost. */
void loadgen_run(const struct load *load);

/* Obeys `run REQUESTS RATE [ARRIVAL [SEED [PHASE]]]`, `replay FILE` (arrival times in microseconds, one a line) and
 * `quit` on standard input until its end. Programs whose periods are equal keep their distance when each is given a
 * PHASE of its own: they count it on the same clock. */
void loadgen_obey(void);

#endif
