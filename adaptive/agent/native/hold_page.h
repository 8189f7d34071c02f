/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page that a hold agent shares with the actuator.
 *
 * The agent, inside the latency-critical program, makes it as a sealed memory file named GS_HOLD_FILE; the daemon finds
 * the descriptor in /proc/PID/fd and copies it like one of the driver. So nothing has to be agreed beforehand (no path,
 * no socket, no permission), and it works across containers.
 */
#ifndef GPSCHED_HOLD_PAGE_H
#define GPSCHED_HOLD_PAGE_H

#include <linux/types.h>

#define GS_HOLD_FILE "gpsched-hold"
#define GS_HOLD_THREAD "gpsched-hold" /* name of the agent's thread */
#define GS_HOLD_MAGIC 0x444c4f48      /* "HOLD" */
#define GS_HOLD_VERSION 2
#define GS_HOLD_BYTES 4096
#define GS_HOLD_MAX_KERNELS 4
#define GS_HOLD_MAX_LIMIT_US 1000000

/* Sequence numbers start at 1 and may wrap: compare differences. */
struct gs_hold_page {
	__u32 magic;
	__u32 version;
	/* written by the actuator */
	__u32 bell;	/* a futex: raised after a change of the fields below */
	__u32 wanted;	/* the last hold that was asked for */
	__u32 released; /* holds up to this one may end */
	__u32 kernels;	/* to launch for a hold, back to back: 1 to GS_HOLD_MAX_KERNELS */
	__u32 limit_us; /* a hold ends by itself after this time, at most GS_HOLD_MAX_LIMIT_US */
	__u32 pad;
	/* written by the agent */
	__u32 ready;	/* contexts in which it can launch; 0 until the program has one */
	__u32 launched; /* the last hold whose kernels were launched */
	__u32 failures; /* CUDA calls that failed */
	__u32 last_error;
	__u64 launched_ns; /* when that was done, by CLOCK_MONOTONIC; written before `launched` */
};

#endif
