/* SPDX-License-Identifier: Apache-2.0 */
/* One message of the load generator or the service on a connected socket: fixed-size structures, or HTTP/1.1. */
#ifndef GPSCHED_BENCH_WIRE_H
#define GPSCHED_BENCH_WIRE_H

#include <stdbool.h>
#include <stdint.h>

/* The plain format, host byte order: it never leaves the machine. Over HTTP the request's structure is the body of a
 * POST (any other body, or none, does as well), and the reply is a JSON object. */
struct request {
	uint64_t sequence;
	uint8_t payload[56];
};

struct reply {
	uint64_t sequence;
	double server_us; /* from the return of recv to just before the reply is sent */
	double gpu_us;	  /* between two events around the GPU work; 0 without --gpu-time */
};

/* Each returns false when the peer is gone or speaks something else. Blocking, as the socket's own limits say. */
bool wire_send_request(int fd, const struct request *request, bool http);
bool wire_receive_request(int fd, struct request *request, bool http);
bool wire_send_reply(int fd, const struct reply *reply, bool http);
bool wire_receive_reply(int fd, struct reply *reply, bool http);

#endif
