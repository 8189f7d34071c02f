/* SPDX-License-Identifier: Apache-2.0
 *
 * The one ABI between the BPF programs, the Python decoder (adaptive/probes/events.py)
 * and the native actuator. A test compares every size and offset in all of them.
 *
 * One fixed-size record for every event: the ring buffer's readers index fields instead
 * of parsing, and a record never grows without GS_ABI_VERSION changing.
 */
#ifndef GPSCHED_EVENTS_H
#define GPSCHED_EVENTS_H

#include <linux/types.h>

#define GS_ABI_VERSION 4
#define GS_COMM_LEN 16

enum gs_class {
	GS_CLASS_PENDING = 0, /* has opened the driver; the daemon has not classified it yet */
	GS_CLASS_LC = 1,
	GS_CLASS_BE = 2,
};

enum gs_kind {
	GS_CUDA_ENTER = 1,
	GS_CUDA_RETURN = 2,
	GS_RM_ALLOC = 3,
	GS_RM_FREE = 4,
	GS_RM_CONTROL = 5,
	GS_RM_DUP = 6,
	GS_PROC_FORK = 7,
	GS_PROC_EXEC = 8,
	GS_PROC_EXIT = 9,
	GS_WAKE = 10,
	GS_HINT = 11,
	GS_PAUSE = 12, /* a best-effort job has nothing to do, or works again: enum gs_pause; to the actuator only */
};

/* What a CUDA driver entry point does; several exported names map to one call. */
enum gs_call {
	GS_CALL_NONE = 0,
	GS_CALL_LAUNCH = 1,
	GS_CALL_GRAPH_LAUNCH = 2,
	GS_CALL_COPY_H2D = 3,
	GS_CALL_COPY_D2H = 4,
	GS_CALL_COPY_D2D = 5,
	GS_CALL_COPY_PEER = 6,
	GS_CALL_COPY_ANY = 7, /* direction only known from the pointers (cuMemcpy) */
	GS_CALL_STREAM_SYNC = 8,
	GS_CALL_EVENT_SYNC = 9,
	GS_CALL_CTX_SYNC = 10,
	GS_CALL_STREAM_QUERY = 11,
	GS_CALL_EVENT_QUERY = 12,
	GS_CALL_EVENT_RECORD = 13, /* only its entry is sent */
	GS_CALL_COUNT = 14,
};

/*
 * What a thread of a latency-critical process came back from: `call` of GS_WAKE. adaptive/hints has the same numbers.
 * WAKING: it waits in such a call and is being woken, by whatever. It comes back once its CPU is awake, and only then
 * is known what it read: there is no size and no result.
 */
#define GS_WAKING 16 /* added to the kind */

enum gs_wake {
	GS_WAKE_SOCKET_READ = 1,
	GS_WAKE_ACCEPT = 2,
	GS_WAKE_EPOLL = 3, /* epoll, poll, select, io_uring: something is ready */
	GS_WAKE_PIPE = 4,
	GS_WAKE_EVENTFD = 5,
	GS_WAKE_TIMER = 6, /* a timerfd was read */
	GS_WAKE_SLEEP = 7, /* a sleep is over, or one of the waits above reached its time limit */
	GS_WAKE_FUTEX = 8,
	GS_WAKE_SOCKET_WAKING = 17,
	GS_WAKE_ACCEPT_WAKING = 18,
	GS_WAKE_EPOLL_WAKING = 19,
	GS_WAKE_PIPE_WAKING = 20,
	GS_WAKE_EVENTFD_WAKING = 21,
	GS_WAKE_TIMER_WAKING = 22,
	GS_WAKE_SLEEP_WAKING = 23,
};

/* `result` of GS_PAUSE. */
enum gs_pause {
	GS_PAUSE_OVER = 0,
	GS_PAUSE_SURE = 1,     /* longer than it takes to pass a turn on and back */
	GS_PAUSE_IN_DOUBT = 2, /* perhaps not */
};

/* What a program announces itself: `call` of GS_HINT. */
enum gs_hint {
	GS_HINT_RESERVE = 1,
	GS_HINT_CANCEL = 2,
};

#define GS_FLAG_ASYNC 0x1 /* the call returns before its work is done */
#define GS_FLAG_WHOLE 0x2 /* of GS_PAUSE: when the work before it began was told, too */

/*
 * What a uprobe's cookie says about the entry point it sits on, so that one program serves
 * them all: enum gs_call, GS_FLAG_*, and the numbers (from 1, 0 for none) of the arguments
 * that hold the stream or event and the size of a copy.
 */
#define GS_COOKIE_CALL(cookie) ((cookie) & 0xff)
#define GS_COOKIE_FLAGS(cookie) (((cookie) >> 8) & 0xff)
#define GS_COOKIE_HANDLE(cookie) (((cookie) >> 16) & 0xf)
#define GS_COOKIE_BYTES(cookie) (((cookie) >> 20) & 0xf)
#define GS_ARG_LAUNCH_CONFIG 15 /* the stream is inside the CUlaunchConfig of argument 1 */

/* Zero on GS_CUDA_RETURN, the matching GS_CUDA_ENTER of the same thread has them; queries, sent only then, have theirs.
 */
struct gs_cuda {
	__u64 handle; /* stream of launches, copies, stream sync and query; event of event record, sync and query */
	__u64 bytes;  /* copies whose size is an argument; the stream of an event record */
};

#define GS_UNKNOWN (~0ull) /* the wait was not on one descriptor */

/* `result` of the event is what the system call returned. */
struct gs_woken {
	__u64 handle; /* descriptor that was read, accepted on or waited for, else GS_UNKNOWN */
	__u64 bytes;  /* read; 0 for what reads nothing */
};

struct gs_hinted {
	__u64 in_us; /* when the burst begins, from the event's time on; means nothing on GS_HINT_CANCEL */
	/* Of the daemon's own, which are of the time to reserve at: from then on again after every so long, and how
	 * much later the launch is expected. 0: once. */
	__u64 every_ns;
	__u64 lead_ns;
};

struct gs_rm {
	__u32 client;
	__u32 parent; /* RM_ALLOC, RM_FREE; for DUP the source client */
	__u32 object; /* for DUP the new handle */
	__u32 code;   /* class of an RM_ALLOC, command of an RM_CONTROL, source handle of a DUP */
	__u64 value;  /* timeslice in us (SET_TIMESLICE), first u32 of the parameters (RM_ALLOC), new parent (DUP) */
	__u32 fd;     /* the descriptor that the process used */
	__u32 pad;
};

struct gs_proc {
	__u32 parent; /* GS_PROC_FORK: the parent's pid; the event's own pid is the child's */
	__u32 pad;
	char comm[GS_COMM_LEN];
};

struct gs_event {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 pid;     /* thread group */
	__u32 tid;
	__u16 kind;   /* enum gs_kind */
	__u16 call;   /* enum gs_call, gs_wake or gs_hint, by the kind; else 0 */
	__s32 result; /* CUresult, NV_STATUS (or the ioctl's -errno), wait status, a system call's; else 0 */
	__u32 flags;
	__u32 pad;
	union {
		struct gs_cuda cuda;
		struct gs_rm rm;
		struct gs_proc proc;
		struct gs_woken wake;
		struct gs_hinted hint;
	};
};

/* Value of the map `managed`, keyed by pid. */
struct gs_managed {
	__u32 class_; /* enum gs_class */
	__u32 flags;  /* GS_MANAGED_* */
	__u32 agent;  /* thread of its hold agent, whose calls and wakes are not the program's; 0: none */
	__u32 wakes;  /* bit n: wakes of kind n trigger its reservation, so they go to the ring `fast` */
};

/* Calls and wakes are read ten times a second, unless the daemon has to act by them. */
#define GS_MANAGED_FAST 0x1    /* in the actuator's plans: its events, or a job's long pauses, go to the ring `fast` */
#define GS_MANAGED_BURSTS 0x2  /* what begins or may end a burst wakes the daemon at once */
#define GS_MANAGED_ALL 0x4     /* whatever is new does */
#define GS_MANAGED_RESTING 0x8 /* the daemon is told of no call and no wake: it knows them well enough for now */

/* Indices of the per-CPU array `lost`. */
enum gs_lost {
	GS_LOST_EVENTS = 0,    /* the ring buffer was full */
	GS_LOST_PROCESSES = 1, /* the map of processes was full: a fork or a new GPU process is not followed */
	GS_LOST_FAST = 2,      /* the actuator's ring buffer was full */
	GS_LOST_COUNT = 3,
};

/* Value of the map `counters`, keyed by pid: calls by kind, kept for lc and be alike; wakes of lc. */
struct gs_counters {
	__u64 calls[GS_CALL_COUNT];
	__u64 wakes;	 /* sent, hints included */
	__u64 throttled; /* not sent: more than the process or one of its sources may send in a time */
	__u64 unrelated; /* not sent: inside of a CUDA call, of a thread or process without one: see wake.bpf.c */
	__u64 window;	 /* the time for which `used` counts */
	__u64 used;
	/* Launches that follow each other, see cuda.bpf.c. */
	__u64 told_ns;	    /* when the daemon was told of one; 0 after any other event */
	__u64 told_fast_ns; /* when the actuator was */
	__u64 stream;
	__u32 launcher; /* thread */
	__u32 pad;
};

#endif
