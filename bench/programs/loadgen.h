/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load generator: requests over TCP at a given rate, at most one outstanding on each connection. A request that
 * falls due while all connections wait is sent as soon as one is free: `latency` counts from sending it, `scheduled`
 * from when it was due, so that a service that falls behind cannot hide it.
 */
#ifndef GPSCHED_BENCH_LOADGEN_H
#define GPSCHED_BENCH_LOADGEN_H

#include <stdint.h>

#define MAX_CONNECTIONS 64

/* The wire format, host byte order: it never leaves the machine. */
struct request {
	uint64_t sequence;
	uint8_t payload[56];
};

struct reply {
	uint64_t sequence;
	double server_us; /* from the return of recv to just before the reply is sent */
	double gpu_us;	  /* between two events around the GPU work; 0 without --gpu-time */
};

enum arrival { ARRIVAL_CONSTANT, ARRIVAL_POISSON, ARRIVAL_BURSTY, ARRIVAL_JITTER };
extern const char *const arrival_names[]; /* NULL-ended */

struct load {
	long requests;
	double rate; /* requests per second of program time */
	enum arrival arrival;
	long seed;
};

/* Connects to `port` on loopback; exits with EXIT_LOAD when it cannot. */
void loadgen_connect(int port, int connections);

/* Sends the load and prints one JSON line with all latencies; exits with EXIT_LOAD when the service is lost. */
void loadgen_run(const struct load *load);

/* Obeys `run REQUESTS RATE [ARRIVAL [SEED]]` and `quit` on standard input until its end. */
void loadgen_obey(void);

#endif
