/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ABI between the daemon, which decides plans, and the actuator, which executes them.
 *
 * Two channels: a memory file that both map (struct ga_shared) and a SOCK_SEQPACKET socket. The daemon writes `plans`,
 * raises `generation` and sends GA_MSG_PUBLISH; the actuator takes a private copy and answers with the same message.
 * The daemon leaves `plans` alone in between, so neither can see a half-written plan. Descriptors travel over the
 * socket into numbered slots, which plans refer to. The actuator alone writes `counters`, `records`, `turns`.
 *
 * Python mirror: adaptive/actuator/abi.py; tests/abi/test_actuator_abi.py compares every size and offset.
 * Times named _us are microseconds, those named _ns are CLOCK_MONOTONIC.
 */
#ifndef GPSCHED_PLAN_H
#define GPSCHED_PLAN_H

#include <linux/types.h>

#define GA_MAGIC 0x54434147 /* "GACT" */
#define GA_ABI_VERSION 6

#define GA_MAX_GPUS 8
#define GA_MAX_SLOTS 256
#define GA_MAX_GROUPS 128
#define GA_MAX_CHANNELS 64 /* what one FIFO_DISABLE_CHANNELS takes; a larger group is given as several */
#define GA_MAX_PLANS 64
#define GA_MAX_TRIGGERS 4
#define GA_MAX_TURNS 32
#define GA_MAX_RECORDS 1024

enum ga_role {
	GA_ROLE_LC = 1,
	GA_ROLE_BE = 2,
};

/* A channel group with the compute engine. */
struct ga_group {
	__u32 pid;
	__u32 slot; /* of the copy of the nvidiactl descriptor that owns the client */
	__u32 gpu;  /* index of the plan space */
	__u32 role; /* enum ga_role */
	__u32 client;
	__u32 handle;
	__u32 subdevice;
	__u32 turn;	   /* BE: which turn it belongs to, if its GPU has turns */
	__u64 original_us; /* timeslice to restore when the daemon dies; 0 when it was not changed */
	__u32 channel_count;
	__u32 channels[GA_MAX_CHANNELS];
	__u32 pad;
};

/* An event (bpf/events.h) that announces a burst; zero in kind, call or tid matches any. */
struct ga_trigger {
	__u16 kind;
	__u16 call;
	__u32 tid;
	__u64 handle_mask; /* first word of the event's body & mask == handle; a mask of 0 matches any */
	__u64 handle;
	__u64 bytes_min; /* second word of the body, both ends included; 0, 0 matches any */
	__u64 bytes_max;
	__u32 offset_us; /* from the event to the first control */
	__u32 before_us; /* of GS_HINT: so long before the announced time */
};

/* What a reservation does; may be combined. */
enum ga_mechanism {
	GA_DISABLE = 0x1,	     /* best-effort channels off, running work preempted */
	GA_DISABLE_SCHEDULING = 0x2, /* best-effort channels off the runlist, running work stays until switched out */
	GA_PREEMPT = 0x4,	     /* then preempt the best-effort groups, waiting */
	GA_RESTART = 0x8,	     /* then restart the runlist through the group's own channel */
	GA_HOLD = 0x10,		     /* launch hold kernels through the agent */
	GA_START_ON_LAUNCH = 0x20, /* a launch before the offset is over starts the reservation; else it is given up */
	GA_ORDER = 0x40,     /* latency-critical groups off whose own reservation comes after this one (rank, due_us) */
	GA_WHEN_IDLE = 0x80, /* the triggers mean an idle process: during a burst they announce no other */
};

/* What to do for one latency-critical process on one GPU. `calls` are bits 1 << enum gs_call. */
struct ga_plan {
	__u32 pid;
	__u32 gpu;
	__u32 group;	 /* index of its own group, GA_NO_INDEX without one (no GA_RESTART then) */
	__u32 mechanism; /* enum ga_mechanism; 0 observes only */
	__u32 limit_us;	 /* a reservation never lasts longer, whatever happens */
	__u32
	    launch_within_us; /* given up when no launch follows within this time of the first control; 0: the limit */
	__u32 quiet_us;	      /* how long after the end condition the reservation waits for more work */
	__u32 end_calls;      /* synchronous calls whose return ends a burst; 0: only the quiet time does */
	__u32 release_us; /* a hold ends that long after a launch, or a copy to the host, that no other call follows */
	__u32 agent_slot; /* GA_NO_INDEX without an agent */
	__u32 agent_tid;  /* its thread: its calls are not the program's */
	__u32 hold_kernels;
	__u32 max_per_second; /* reservations; 0: no bound */
	__u32 trigger_count;
	__u32 rank;   /* of two reservations on a GPU the higher goes first */
	__u32 due_us; /* then the one whose trigger plus this is earlier; 0: never due */
	struct ga_trigger triggers[GA_MAX_TRIGGERS];
};

#define GA_NO_INDEX 0xffffffff

struct ga_gpu {
	__u32 turn_count; /* 0: all best-effort groups are enabled outside reservations; else one turn at a time */
	__u32 max_reserved_permille; /* of wall time, all plans of the GPU together; 0: no bound */
	__u32 break_us;		     /* latency-critical groups are off for so long, once in break_every_us; 0: never */
	__u32 break_every_us;
	__u32 wait_us;		     /* no turn waits for much longer, by the clock on the wall; 0: no bound */
	__u32 turn_us[GA_MAX_TURNS]; /* time outside reservations that each turn lasts at most */
};

struct ga_plans {
	__u32 gpu_count;
	__u32 group_count;
	__u32 plan_count;
	__u32 pad;
	struct ga_gpu gpus[GA_MAX_GPUS];
	struct ga_group groups[GA_MAX_GROUPS];
	struct ga_plan plans[GA_MAX_PLANS];
};

/* Why a reservation ended. */
enum ga_reason {
	GA_END_SYNC = 1,      /* the burst's last synchronisation returned */
	GA_END_QUIET = 2,     /* no more work within the quiet time */
	GA_END_LIMIT = 3,     /* the time limit */
	GA_END_NO_LAUNCH = 4, /* a false trigger */
	GA_END_MISSED = 5,    /* the launch came before the offset was over: nothing was done */
	GA_END_BUDGET = 6,    /* the GPU's bound of reserved time */
	GA_END_EXIT = 7,      /* the latency-critical process exited */
	GA_END_WITHDRAWN = 8, /* the plan, or the announcement, was taken back */
};

/* One reservation. Times that did not happen are 0. */
struct ga_record {
	__u64 sequence;	  /* from 1; written last */
	__u64 trigger_ns; /* the event's own time */
	__u64 begin_ns;	  /* first control issued (or hold rung) */
	__u64 ready_ns;	  /* all best-effort groups were off the GPU; of a hold: its kernels were launched */
	__u64 launch_ns;  /* first launch of the burst */
	__u64 end_ns;	  /* decided to end */
	__u64 undone_ns;  /* best-effort work was allowed again */
	__u32 pid;
	__u32 gpu;
	__u32 trigger; /* index in the plan */
	__u32 reason;  /* enum ga_reason */
	__u32 merged;  /* further triggers that came while it lasted */
	__u32 controls;
	__u32 failures;	   /* controls that the driver refused */
	__u32 last_status; /* NV_STATUS or -errno of the last failure */
};

struct ga_counters {
	__u64 events;
	__u64 triggers;
	__u64 throttled; /* triggers ignored: more than max_per_second, or no reserved time left */
	__u64 reservations;
	__u64 controls;
	__u64 failures;
	__u64 turns;
	__u64 descriptors; /* open slots */
	__u64 disabled;	   /* groups that are not known to be enabled */
	__u64 beside;	   /* the process on whose thread's CPU events are awaited; 0: on any */
};

struct ga_turns {
	__u64 had_ns[GA_MAX_TURNS]; /* time that each turn has had so far */
};

struct ga_shared {
	__u32 magic;
	__u32 version;
	__u32 size;
	__u32 pad;
	__u64 generation;
	struct ga_counters counters;
	struct ga_plans plans;
	__u64 record_count; /* written so far; record n lies at (n - 1) % GA_MAX_RECORDS */
	struct ga_record records[GA_MAX_RECORDS];
	struct ga_turns turns[GA_MAX_GPUS];
};

enum ga_message_type {
	GA_MSG_SLOT = 1,    /* with one descriptor: put it in `slot` */
	GA_MSG_DROP = 2,    /* close the slot once nothing uses it */
	GA_MSG_PUBLISH = 3, /* take the plans; answered */
	GA_MSG_EVENT = 4,   /* the daemon's own trigger (predicted arrivals) */
};

enum ga_slot_kind {
	GA_SLOT_DRIVER = 1, /* a copy of nvidiactl */
	GA_SLOT_PIDFD = 2,  /* readable once the process exits: all its slots are closed then */
	GA_SLOT_AGENT = 3,  /* the agent's page, adaptive/agent/native/hold_page.h */
	GA_SLOT_RING = 4,   /* the BPF ring buffer map */
};

struct ga_message {
	__u32 type;
	__u32 slot;
	__u32 kind;
	__u32 pid;
	__u64 generation;
	__u8 event[64]; /* struct gs_event */
};

#endif
