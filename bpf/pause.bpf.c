/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
 *
 * When a best-effort job that takes turns has nothing to do, so that the actuator passes its turn on.
 *
 * Nobody but the job knows: the driver tells nobody's GPU time, and a launch never enters the kernel. So its calls tell
 * (cuda.bpf.c). A pause begins where a synchronisation returns, no other thread waits in one, and nothing was launched
 * after it was entered; any call that gives the GPU work, or waits for it, ends it. Not every pause is worth two
 * events: only those of jobs whose pauses are long, by a moving mean, or whose work between them is, are told.
 *
 * Whether the one that begins is long, the work before it tells: a job at a rhythm that waited for its turn is behind,
 * and goes on at once; one that was done in time waits for its next beat. So a pause is sure to be worth passing the
 * turn on after less than the longest work that such a pause followed; after more it is in doubt, and the actuator
 * waits a little.
 *
 * The state is changed by several threads without a lock: what comes of a race is a pause told too early or too late,
 * which costs the job a turn at most. The actuator does not believe in a pause for ever.
 */

#define LONG_PAUSE_NS 500000ull	     /* passing a turn on costs two controls */
#define LONG_WORK_NS 4000000ull	     /* 250 pauses a second, if there is nothing in between */
#define LONGEST_PAUSE_NS 50000000ull /* that counts: one night must not hide a day's short ones */
#define PAUSE_SHIFT 2		     /* of the mean: a quarter is the last pause */

struct pause {
	u64 since;   /* when the present pause began; 0: it works */
	u64 usual;   /* moving mean of its pauses */
	u64 begun;   /* when the last pause was over */
	u64 in_time; /* the longest work that a pause worth a turn followed */
	u32 waiting; /* threads inside of a synchronisation */
	u32 queued;  /* something was launched since a synchronisation was entered */
	u32 told;    /* the actuator knows of the present pause */
	u32 whole;   /* and when the work before it began */
};

BPF_TABLE("lru_hash", u32, struct pause, pauses, GS_MAX_PROCESSES);

static __always_inline struct pause *pause_of(u32 pid, const struct gs_managed *process)
{
	struct pause zero = {};

	if (!process || process->class_ != GS_CLASS_BE || !(process->flags & GS_MANAGED_FAST))
		return 0;
	return pauses.lookup_or_try_init(&pid, &zero);
}

static __always_inline void tell_pause(u64 now, u32 pausing, u32 flags)
{
	u64 id = bpf_get_current_pid_tgid();
	struct gs_event event = {.time_ns = now, .pid = id >> 32, .tid = id, .kind = GS_PAUSE};

	event.result = pausing;
	event.flags = flags;
	if (fast.ringbuf_output(&event, sizeof(event), 0))
		count_lost(GS_LOST_FAST);
}

static __always_inline u64 work_before(const struct pause *pause)
{
	return pause->since - pause->begun;
}

static __always_inline void learn_rhythm(struct pause *pause, u64 length)
{
	u64 work = work_before(pause);

	if (length >= LONG_PAUSE_NS ? work > pause->in_time : work < pause->in_time)
		pause->in_time = work;
}

static __always_inline void end_pause(struct pause *pause)
{
	u64 now = bpf_ktime_get_ns(), length = now - pause->since;

	learn_rhythm(pause, length);
	if (length > LONGEST_PAUSE_NS)
		length = LONGEST_PAUSE_NS;
	pause->usual += (length >> PAUSE_SHIFT) - (pause->usual >> PAUSE_SHIFT);
	pause->since = 0;
	pause->begun = now;
	if (pause->told)
		tell_pause(now, GS_PAUSE_OVER, 0);
	pause->whole = pause->told;
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
	else if (!pause->begun)
		pause->begun = bpf_ktime_get_ns();
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
	pause->told = pause->usual >= LONG_PAUSE_NS || work_before(pause) >= LONG_WORK_NS;
	if (pause->told)
		tell_pause(pause->since, work_before(pause) < pause->in_time ? GS_PAUSE_SURE : GS_PAUSE_IN_DOUBT,
			   pause->whole ? GS_FLAG_WHOLE : 0);
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
