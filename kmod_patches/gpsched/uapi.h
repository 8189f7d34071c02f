/* SPDX-License-Identifier: MIT OR GPL-2.0-only WITH Linux-syscall-note */
/*
 * gpsched's generic netlink family: the contract with user space (adaptive/driver/module_abi.py mirrors it and a
 * test compares the two). Numbers are never reused; a new attribute or operation sets a feature bit.
 */
#ifndef GPSCHED_UAPI_H
#define GPSCHED_UAPI_H

#include <linux/types.h>

#define GS_FAMILY "gpsched"
#define GS_FAMILY_VERSION 1
#define GS_MCGRP_EVENTS "events"

enum gs_cmd {
	GS_CMD_INFO = 1,       /* anyone: version, features, counters */
	GS_CMD_LIST = 2,       /* dump; without CAP_SYS_ADMIN only the caller's own user's groups */
	GS_CMD_GET = 3,	       /* GROUP -> the driver's own timeslice, and what is held */
	GS_CMD_CONTROL = 4,    /* ACTIONS, LEASE_MS, COOKIE, ASYNC -> DONE */
	GS_CMD_RENEW = 5,      /* LEASE_MS: everything the socket holds lives that long from now */
	GS_CMD_RELEASE = 6,    /* undo everything the socket holds, drop its plans */
	GS_CMD_PLAN_SET = 7,   /* ACTIONS, LEASE_MS -> PLAN */
	GS_CMD_PLAN_BEGIN = 8, /* PLAN */
	GS_CMD_PLAN_END = 9,   /* PLAN */
	GS_CMD_PLAN_DROP = 10, /* PLAN */
	/* the kernel's messages */
	GS_CMD_ADDED = 16,
	GS_CMD_REMOVED = 17,
	GS_CMD_DONE = 18,
};

enum gs_attr {
	GS_A_UNSPEC,
	GS_A_PAD,
	GS_A_VERSION,	 /* u32 */
	GS_A_FEATURES,	 /* u32, GS_FEATURE_* */
	GS_A_DRIVER,	 /* string: the driver's version */
	GS_A_COUNTERS,	 /* u64[GS_COUNTERS] */
	GS_A_GROUP,	 /* u64: never reused while the module is loaded */
	GS_A_CLIENT,	 /* u32 */
	GS_A_HANDLE,	 /* u32 */
	GS_A_PID,	 /* u32, in the caller's PID namespace */
	GS_A_UID,	 /* u32 */
	GS_A_CGROUP,	 /* u64: inode of the cgroup v2 folder, 0 if the process is gone */
	GS_A_ENGINE,	 /* u32, enum gs_engine */
	GS_A_DEVICE,	 /* u32: the RM's device instance */
	GS_A_GPU,	 /* u32: the RM's GPU id; absent when unknown */
	GS_A_SUBDEVICE,	 /* u32 handle; absent when none */
	GS_A_CHANNELS,	 /* u32 pairs: client, handle */
	GS_A_TIMESLICE,	 /* u64, us: what is held (LIST), what the driver says (GET) */
	GS_A_INTERLEAVE, /* u32 */
	GS_A_DISABLED,	 /* u32: 0, GS_DISABLED or GS_DISABLED_SCHEDULING */
	GS_A_ACTIONS,	 /* struct gs_action[1..GS_MAX_ACTIONS] */
	GS_A_RESULTS,	 /* struct gs_result[], one for each action */
	GS_A_LEASE_MS,	 /* u32, GS_MIN_LEASE_MS..GS_MAX_LEASE_MS */
	GS_A_COOKIE,	 /* u64, given back in DONE */
	GS_A_ASYNC,	 /* flag: answer at once, DONE follows */
	GS_A_PLAN,	 /* u32 */
	GS_A_ERROR,	 /* s32: first error of a control, as negative errno */
	GS_A_STATUS,	 /* u32: the NV_STATUS behind it */
	GS_A_MAX = GS_A_STATUS,
};

enum gs_engine {
	GS_ENGINE_UNKNOWN = 0,
	GS_ENGINE_OTHER = 1,
	GS_ENGINE_COPY = 2,
	GS_ENGINE_COMPUTE = 3,
};

enum gs_op {
	GS_OP_TIMESLICE = 1,  /* value: us, 1..GS_MAX_TIMESLICE_US; held */
	GS_OP_INTERLEAVE = 2, /* value: 0..2; held */
	GS_OP_DISABLE = 3,    /* value: GS_DISABLED or GS_DISABLED_SCHEDULING; held */
	GS_OP_ENABLE = 4,     /* gives up the caller's own DISABLE */
	GS_OP_TIMESLICE_UNDO = 5,
	GS_OP_INTERLEAVE_UNDO = 6,
	GS_OP_PREEMPT = 7, /* value: 0 do not wait, else wait at most so many us, to GS_MAX_PREEMPT_US */
	GS_OP_RESTART = 8, /* value: GS_RESTART_* */
	GS_OP_MAX = GS_OP_RESTART,
};

#define GS_DISABLED 1
#define GS_DISABLED_SCHEDULING 2
#define GS_RESTART_FORCE 1
#define GS_RESTART_WAIT 2

#define GS_MAX_ACTIONS 64
#define GS_MAX_TIMESLICE_US 10000000
#define GS_MAX_PREEMPT_US 1000000
#define GS_MIN_LEASE_MS 10
#define GS_MAX_LEASE_MS 3600000
#define GS_DEFAULT_LEASE_MS 10000
#define GS_MAX_PLANS 64
#define GS_MAX_CONTROLLERS 64

struct gs_action {
	__u64 group;
	__u32 op;
	__u32 value;
};

struct gs_result {
	__s32 error;
	__u32 status;
};

#define GS_FEATURE_KFUNCS 0x1	 /* BPF programs can call gpsched_* */
#define GS_FEATURE_COMPANION 0x2 /* a module of its own: sees only clients opened after it was loaded */
#define GS_FEATURE_TEST 0x4	 /* test build: never on a machine that matters */

enum gs_counter {
	GS_COUNT_CLIENTS,     /* now */
	GS_COUNT_OBJECTS,     /* now */
	GS_COUNT_GROUPS,      /* now */
	GS_COUNT_CONTROLLERS, /* now */
	GS_COUNT_PLANS,	      /* now */
	GS_COUNT_HOLDS,	      /* now */
	GS_COUNT_ALLOCATED,   /* memory: records alive, also those waiting for RCU */
	GS_COUNT_LOST,	      /* objects not remembered: no memory, or over a limit */
	GS_COUNT_CONTROLS,    /* RM controls issued */
	GS_COUNT_FAILED,      /* ... and refused by the RM */
	GS_COUNT_UNDONE,      /* settings undone because a lease ran out or a controller died */
	GS_COUNT_LIMITED,     /* requests refused by the rate limit */
	GS_COUNTERS,
};

#endif
