/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The turns of one GPU (turns.c) and what tells of its jobs' pauses (bpf/pause.bpf.c), as a library in virtual time:
 * a test says what the time is and what the jobs call. Job i is process i + 1, and turn i is its.
 */
#include "actuator.h"

#include <string.h>

/* What pause.bpf.c needs of BPF and of the other programs. */
typedef __u64 u64;
typedef __u32 u32;
typedef __s32 s32;
#define BPF_TABLE(kind, key, value, name, size)                                                                        \
	static value name##_of[GA_MAX_TURNS + 1];                                                                      \
	static value *name##_get(u32 *pid, value *zero)                                                                \
	{                                                                                                              \
		(void)zero;                                                                                            \
		return &name##_of[*pid];                                                                               \
	}                                                                                                              \
	static struct {                                                                                                \
		value *(*lookup_or_try_init)(u32 *, value *);                                                          \
	} name = {name##_get}

static struct actuator actuator;
static struct ga_shared shared;
static struct gpu *const gpu = &actuator.gpus[0];
static u64 virtual_ns;
static u32 calling; /* process */
static bool reserved;

static int to_actuator(struct gs_event *event, u64 size, u64 flags)
{
	(void)size, (void)flags;
	turns_pause(&actuator, event, virtual_ns);
	return 0;
}

static struct {
	int (*ringbuf_output)(struct gs_event *, u64, u64);
} fast = {to_actuator};

static u64 bpf_get_current_pid_tgid(void)
{
	return (u64)calling << 32 | calling;
}

static u64 bpf_ktime_get_ns(void)
{
	return virtual_ns;
}

static void count_lost(u32 what)
{
	(void)what;
}

#include "../../../bpf/pause.bpf.c"

/* What turns.c needs of the rest of the actuator. */
bool gpu_is_reserved(const struct actuator *a, unsigned index)
{
	(void)a, (void)index;
	return reserved;
}

void gpu_settle(struct actuator *a, unsigned index, __u64 now)
{
	(void)a, (void)index, (void)now;
}

/* What a test calls. */
static void set_clock(__u64 now)
{
	virtual_ns = now;
}

void bed_begin(const struct ga_gpu *plan, __u64 now)
{
	__u32 pids[GA_MAX_TURNS] = {0};

	memset(&actuator, 0, sizeof(actuator));
	memset(&shared, 0, sizeof(shared));
	memset(pauses_of, 0, sizeof(pauses_of));
	reserved = false;
	actuator.shared = &shared;
	gpu->actuator = &actuator;
	gpu->turn_since = now;
	set_clock(now);
	for (__u32 i = 0; i < plan->turn_count; i++) {
		pids[i] = i + 1;
		actuator.groups[i] =
		    (struct group){.used = true, .plan = {.pid = pids[i], .turn = i, .role = GA_ROLE_BE}};
	}
	actuator.group_top = plan->turn_count;
	turns_publish(gpu, plan, pids, now);
}

static struct pause *state_of(__u32 job)
{
	struct gs_managed process = {.class_ = GS_CLASS_BE, .flags = GS_MANAGED_FAST};

	calling = job + 1;
	return pause_of(calling, &process);
}

/* The job launches a unit and waits for it. */
void bed_works(__u32 job, __u64 now)
{
	struct pause *pause = state_of(job);

	set_clock(now);
	pause_enter(pause, GS_CALL_GRAPH_LAUNCH, GS_FLAG_ASYNC);
	pause_enter(pause, GS_CALL_EVENT_SYNC, 0);
}

/* The unit is done. */
void bed_waits(__u32 job, __u64 now)
{
	struct pause *pause = state_of(job);

	set_clock(now);
	pause_return(pause, GS_CALL_EVENT_SYNC, 0);
	pause_found_done(pause);
}

void bed_reserve(bool begins, __u64 now)
{
	set_clock(now);
	reserved = begins;
	turns_clock(gpu, now);
}

/* Returns whose turn it is. */
__u32 bed_tick(__u64 now)
{
	set_clock(now);
	turns_tick(gpu, now);
	return gpu->turn;
}

__u64 bed_deadline(void)
{
	return turns_deadline(gpu);
}

__u64 bed_had_ns(__u32 turn)
{
	return shared.turns[0].had_ns[turn];
}
