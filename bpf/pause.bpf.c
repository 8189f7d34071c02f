/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
 *
 * When a best-effort job that takes turns has nothing to do, so that the actuator passes its turn on.
 *
 * Nobody but the job knows: the driver tells nobody's GPU time, and a launch never enters the kernel. So its calls tell
 * (cuda.bpf.c). A pause begins where a synchronisation returns, no other thread waits in one, and nothing was launched
 * after it was entered; any call that gives the GPU work, or waits for it, ends it. Not every pause is worth two
 * events: only those of jobs whose pauses are long, by a moving mean, are told.
 *
 * The state is changed by several threads without a lock: what comes of a race is a pause told too early or too late,
 * which costs the job a turn at most. The actuator does not believe in a pause for ever.
 */

#define LONG_PAUSE_NS 500000ull	     /* passing a turn on costs two controls */
#define LONGEST_PAUSE_NS 50000000ull /* that counts: one night must not hide a day's short ones */
#define PAUSE_SHIFT 2		     /* of the mean: a quarter is the last pause */

struct pause {
	u64 since;   /* when the present pause began; 0: it works */
	u64 usual;   /* moving mean of its pauses */
	u32 waiting; /* threads inside of a synchronisation */
	u32 queued;  /* something was launched since a synchronisation was entered */
	u32 told;    /* the actuator knows of the present pause */
	u32 pad;
};

BPF_TABLE("lru_hash", u32, struct pause, pauses, GS_MAX_PROCESSES);

static __always_inline struct pause *pause_of(u32 pid, const struct gs_managed *process)
{
	struct pause zero = {};

	if (!process || process->class_ != GS_CLASS_BE || !(process->flags & GS_MANAGED_FAST))
		return 0;
	return pauses.lookup_or_try_init(&pid, &zero);
}

static __always_inline void tell_pause(u64 now, bool pausing)
{
	u64 id = bpf_get_current_pid_tgid();
	struct gs_event event = {.time_ns = now, .pid = id >> 32, .tid = id, .kind = GS_PAUSE, .result = pausing};

	if (fast.ringbuf_output(&event, sizeof(event), 0))
		count_lost(GS_LOST_FAST);
}

static __always_inline void end_pause(struct pause *pause)
{
	u64 now = bpf_ktime_get_ns(), length = now - pause->since;

	if (length > LONGEST_PAUSE_NS)
		length = LONGEST_PAUSE_NS;
	pause->usual += (length >> PAUSE_SHIFT) - (pause->usual >> PAUSE_SHIFT);
	pause->since = 0;
	if (pause->told)
		tell_pause(now, false);
	pause->told = 0;
}

static __always_inline bool waits_for_work(u32 call, u32 flags)
{
	return !(flags & GS_FLAG_ASYNC) &&
	       (call == GS_CALL_STREAM_SYNC || call == GS_CALL_EVENT_SYNC || call == GS_CALL_CTX_SYNC ||
		call == GS_CALL_COPY_D2H || call == GS_CALL_COPY_ANY);
}

/* Returns whether the call's return must be seen. */
static __always_inline bool pause_enter(struct pause *pause, u32 call, u32 flags)
{
	if (pause->since)
		end_pause(pause);
	if (!waits_for_work(call, flags)) {
		pause->queued = 1;
		return false;
	}
	pause->queued = 0;
	__sync_fetch_and_add(&pause->waiting, 1);
	return true;
}

static __always_inline void begin_pause(struct pause *pause)
{
	if (pause->waiting || pause->queued || pause->since)
		return;
	pause->since = bpf_ktime_get_ns();
	pause->told = pause->usual >= LONG_PAUSE_NS;
	if (pause->told)
		tell_pause(pause->since, true);
}

static __always_inline void pause_return(struct pause *pause, u32 call, u32 flags)
{
	if (!waits_for_work(call, flags))
		return;
	if (pause->waiting)
		__sync_fetch_and_add(&pause->waiting, -1);
	begin_pause(pause);
}

/* A query that finds the work done is the end of a wait that nobody saw begin. */
static __always_inline void pause_found_done(struct pause *pause)
{
	pause->queued = 0;
	begin_pause(pause);
}
