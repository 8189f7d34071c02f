/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulated libcuda and the server say to each other, besides the RM ABI on nvidiactl.
 *
 * The client sends packets on a SOCK_SEQPACKET socket and gets no answers (except to SIM_STATS): completions appear in
 * memory that both map, where the client waits by futex. Times are virtual ns: CLOCK_MONOTONIC divided by the scale.
 */
#ifndef GPSCHED_SIM_PROTOCOL_H
#define GPSCHED_SIM_PROTOCOL_H

#include <stdatomic.h>
#include <stdint.h>

#define SIM_SOCKET "simgpu.sock"
#define SIM_STREAMS 1024
#define SIM_EVENTS 16384
#define SIM_OPS 256 /* operations in one packet */

enum sim_message_type {
	SIM_HELLO,	  /* carries the descriptor of the shared memory */
	SIM_STREAM_OPEN,  /* stream `id` on channel (client, handle); its first operation has number `base` + 1 */
	SIM_STREAM_CLOSE, /* stream `id` */
	SIM_SUBMIT,	  /* `count` operations for stream `id` */
	SIM_STATS,	  /* the answer is one JSON packet */
};

struct sim_op {
	uint32_t kind; /* enum engine_op_kind */
	uint32_t pad;
	uint64_t arg, value;
};

struct sim_message {
	uint32_t type, id, count, client, handle, base;
	uint64_t time_ns;
	struct sim_op ops[SIM_OPS];
};

#define SIM_MESSAGE_SIZE(count) (offsetof(struct sim_message, ops) + (count) * sizeof(struct sim_op))

struct sim_stream_state {
	_Atomic uint32_t done;	  /* operations completed, modulo 2^32: the futex word */
	_Atomic uint32_t waiters; /* the server wakes only when somebody waits */
	_Atomic uint32_t failed;  /* operations were dropped: no such stream */
};

struct sim_shared {
	struct sim_stream_state stream[SIM_STREAMS];
	_Atomic uint64_t event_ns[SIM_EVENTS]; /* virtual time at which an event's mark completed */
};

#endif
