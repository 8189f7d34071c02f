/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The actuator's state. Events, messages and time change what each best-effort group *should* be (burst.c, turns.c);
 * worker.c makes the driver agree. So a control, which takes hundreds of microseconds, never delays the next event, and
 * undoing anything is only a change of what should be.
 *
 * `lock` guards everything; a thread gives it up while it waits for events or is inside the driver.
 */
#ifndef GPSCHED_ACTUATOR_H
#define GPSCHED_ACTUATOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../../bpf/events.h"
#include "plan.h"
#include "rm.h"

#define NEVER ((__u64) - 1)
#define US 1000ull

struct gs_hold_page;

struct slot {
	int fd; /* -1: free */
	__u32 kind, pid;
	unsigned users; /* workers inside the driver with it */
	bool dropped;
	struct gs_hold_page *page;
};

struct group {
	struct ga_group plan;
	bool used, leaving, dead;
	bool busy;    /* a worker is inside the driver with it */
	bool changed; /* its channels changed meanwhile */
	enum mode actual, target;
	enum mode off_by;  /* how it was put off since it was last enabled; MODE_ENABLED: it was not */
	unsigned attempts; /* failures in a row on the way to `target` */
	__u64 retry_ns;
	__u64 paused_until;  /* its process has nothing to do, as far as is known; in the past: nobody says so */
	__u64 doubted_until; /* from then on that is believed; 0: it is */
};

enum phase {
	IDLE,
	WAITING,  /* for the offset */
	RESERVED, /* best-effort work is kept off the GPU, or the hold runs */
	CLOSING,  /* until best-effort work is allowed again */
};

struct rhythm {
	__u64 at;	 /* the next reservation, or the present one */
	__u64 every_ns;	 /* 0: there is none */
	__u64 lead_ns;	 /* from there to the launch */
	__s64 shift_ns;	 /* what the present burst puts right */
	bool kept;	 /* it came as foretold */
	unsigned misses; /* that did not, in a row */
	struct gs_event event;
};

struct plan {
	struct ga_plan plan;
	struct group *own;
	bool used, leaving;
	enum phase phase;
	bool launched;	      /* since the trigger */
	bool announced_again; /* a trigger came since the last launch */
	bool extras_due;      /* preempt, restart: once the best-effort groups are as they should be */
	bool budget_cut;      /* the limit is what the GPU's budget had left */
	unsigned syncs_inside;
	__u64 start_at, limit_at, launch_by, quiet_at, release_at; /* NEVER when not awaited */
	__u64 reserved_at;
	__u64 due_at;	  /* NEVER without due_us */
	__u64 rate_ns;	  /* leaky bucket: the time at which it is empty */
	__u32 hold;	  /* sequence number of the hold that runs, 0: none */
	__u32 hold_asked; /* of the last one asked for */
	__u32 placed_tid; /* the agent's thread, while it is to run where we do */
	int placed_cpu, own_nice;
	__u64 placed_until; /* perhaps not for longer */
	struct ga_record record;
	struct gs_event ahead; /* announces a burst after the present one; kind 0: none */
	struct rhythm rhythm;
};

struct gpu {
	struct ga_gpu plan;
	struct actuator *actuator;
	unsigned index;
	bool known;    /* was in a plan */
	bool busy;     /* a thread is inside the driver for it */
	bool restored; /* when stopping */
	__u32 turn;
	__u32 turn_pids[GA_MAX_TURNS];	/* 0: the plan gives this turn to nobody, all wait */
	__u64 turn_left_ns, turn_since; /* turn_since NEVER: the clock of turns stands still */
	__u64 due_permille;		/* of the present turn, for what its job has missed or had too much */
	__u64 turn_had_ns;		/* of the present turn, before turn_since */
	__u64 turn_began;		/* by the clock on the wall, which does not stand still */
	__u64 served[GA_MAX_TURNS];	/* what each had, in millionths of its own turn */
	__u64 waits_since[GA_MAX_TURNS];
	__u64 unit_ns[GA_MAX_TURNS];	  /* of its turns' time, what the longest of the last units of work took */
	__u64 unit_from_ns[GA_MAX_TURNS]; /* of that time, when the present unit began */
	__u64 wait_ns, longest_wall_ns;	  /* of the plan; 0: no bound */
	__u64 wall_permille;		  /* of a turn, that it may take by the clock on the wall */
	__s64 budget_ns;		  /* reserved time that is left; see max_reserved_permille */
	bool exhausted;
	__u64 budget_at;
	bool on_break;
	__u64 break_at; /* when it begins or ends; NEVER without breaks */
};

/* A best-effort thread on whose CPU to wait. */
struct awake {
	int pid, tid; /* 0: none */
	int cpu;      /* -1: it is not known yet whether it is busy enough */
	unsigned long busy_ticks;
	__u64 since;   /* from when on these count */
	__u64 at;      /* when to look again */
	unsigned next; /* group whose process is asked next */
};

struct actuator {
	pthread_mutex_t lock;
	struct ga_shared *shared;
	struct slot slots[GA_MAX_SLOTS];
	struct group groups[2 * GA_MAX_GROUPS]; /* room for those that leave beside those that come */
	struct plan plans[2 * GA_MAX_PLANS];
	struct gpu gpus[GA_MAX_GPUS];
	unsigned group_top, plan_top; /* all entries in use are below */
	pthread_cond_t idle;	      /* followers */
	unsigned threads;
	struct awake awake;
	bool led;    /* a thread waits for events */
	bool called; /* it called another one to issue a control, who has not come yet */
	bool stopping;
	__u64 stop_by;
};

#define for_each_group(a, g) for (__auto_type g = &(a)->groups[0]; g < &(a)->groups[(a)->group_top]; g++)
#define for_each_plan(a, p) for (__auto_type p = &(a)->plans[0]; p < &(a)->plans[(a)->plan_top]; p++)
#define for_each_gpu(a, u) for (__auto_type u = &(a)->gpus[0]; u < &(a)->gpus[GA_MAX_GPUS]; u++)
#define for_each_slot(a, s) for (struct slot *s = (a)->slots; s < (a)->slots + GA_MAX_SLOTS; s++)

__u64 now_ns(void);

static inline __u64 earlier(__u64 one, __u64 other)
{
	return one < other ? one : other;
}

static inline __u64 later(__u64 one, __u64 other)
{
	return one > other ? one : other;
}

/* burst.c: reservations, from the trigger to the end. */
void burst_event(struct actuator *a, const struct gs_event *event, __u64 now);
void burst_tick(struct actuator *a, __u64 now);
void burst_end(struct actuator *a, struct plan *p, __u32 reason, __u64 now);
void burst_finish(struct actuator *a, struct plan *p, __u64 now);
__u64 burst_deadline(const struct plan *p, __u64 now);
__u64 burst_imminent(const struct actuator *a, __u64 now); /* what is to begin too soon to sleep until then, or now */
bool gpu_is_reserved(const struct actuator *a, unsigned gpu);

/* rhythm.c: bursts that are foretold without the daemon. */
void rhythm_begin(struct plan *p, const struct gs_event *event);
void rhythm_launch(struct plan *p, __u64 launch_ns);
void rhythm_next(struct plan *p, __u64 now);
void rhythm_end(struct plan *p);

/* order.c: several latency-critical processes on one GPU. */
__u64 due_at(const struct plan *p, __u64 announced_ns);
bool must_wait(const struct actuator *a, const struct group *g);

/* breaks.c: the floor of best-effort work beside latency-critical work that never rests. */
void breaks_publish(struct gpu *u, __u64 now);
void breaks_tick(struct gpu *u, __u64 now);

/* lengths.c: how long turns last. */
void lengths_publish(struct gpu *u);
__u64 turn_ns(const struct gpu *u);
__u64 turn_due_ns(const struct gpu *u);
__u64 turn_end(const struct gpu *u);
bool turn_is_nearly_over(const struct gpu *u);
bool waits_for_long(const struct gpu *u, __u32 turn, __u64 now);

/* turns.c: one best-effort process at a time. */
void turns_publish(struct gpu *u, const struct ga_gpu *plan, const __u32 *pids, __u64 now);
void turns_clock(struct gpu *u, __u64 now);
void turns_tick(struct gpu *u, __u64 now);
void turns_pause(struct actuator *a, const struct gs_event *event, __u64 now);
__u64 turns_deadline(const struct gpu *u);
bool turns_allow(const struct gpu *u, const struct group *g);
bool has_paused(const struct group *g, __u64 now);

/* budget.c: the bound of reserved time. */
__s64 budget_left(struct gpu *u, __u64 now);
void budget_spend(struct gpu *u, __u64 spent_ns);

/* wanted.c: what groups should be, and what is to be done first. */
enum mode group_wanted(const struct actuator *a, const struct group *g);
enum mode way_to(const struct group *g, enum mode wanted);
bool needs_control(const struct actuator *a, const struct group *g, unsigned gpu);
struct group *most_urgent(struct actuator *a, unsigned gpu, __u64 now);
__u64 next_retry(const struct actuator *a, unsigned gpu);

/* worker.c: makes the driver agree with what should be. */
bool threads_at_least(struct actuator *a, unsigned count);
bool is_finished(const struct actuator *a);
bool serve(struct actuator *a); /* until all is undone: true, or not in time: false */
void gpu_settle(struct actuator *a, unsigned gpu, __u64 now);

/* awake.c: where to wait, so that the CPU is awake when an event comes. */
void awake_begin(struct actuator *a, bool is_first);
void awake_stay(struct actuator *a); /* before this thread waits for events */
void awake_roam(void);		     /* a new thread, which may be anywhere */
bool awake_is_shared(void);	     /* whether this thread waits beside a job's: controls are for others */

/* publish.c: taking over plans; 0 or -errno. */
int publish(struct actuator *a, __u64 now);
void process_exited(struct actuator *a, __u32 pid, __u64 now);

/* slots.c: descriptors. */
int slot_put(struct actuator *a, const struct ga_message *message, int fd);
void slot_drop(struct actuator *a, __u32 index);
void slots_sweep(struct actuator *a);

/* main.c */
void unwatch(int fd);
void lead(struct actuator *a);	/* waits for events once and handles them */
void rearm(struct actuator *a); /* deadlines have changed while another thread leads */

/* record.c */
void record_write(struct actuator *a, struct ga_record *record);
void count_control(struct actuator *a, unsigned gpu, int status);

/* hold.c */
struct gs_hold_page *hold_map(int fd);
void hold_unmap(struct gs_hold_page *page);
void hold_ring(struct actuator *a, struct plan *p);
void hold_release(struct actuator *a, struct plan *p);
void hold_leave(struct plan *p);
__u64 hold_launched_ns(struct actuator *a, const struct plan *p);

#endif
