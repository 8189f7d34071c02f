/* SPDX-License-Identifier: Apache-2.0 */
#include "actuator.h"

#define BIT(call) (1u << (call))
#define LAUNCHES (BIT(GS_CALL_LAUNCH) | BIT(GS_CALL_GRAPH_LAUNCH))
#define QUERIES (BIT(GS_CALL_STREAM_QUERY) | BIT(GS_CALL_EVENT_QUERY))
#define AT_OTHERS_EXPENSE (GA_DISABLE | GA_DISABLE_SCHEDULING | GA_HOLD)
#define RATE_BURST_NS 1000000000ull /* max_per_second may be used up at once */
#define MAX_AHEAD_NS 10000000000ull /* an event further in the future is a fault, not a forecast */
#define ALERT_NS 150000ull	    /* less than a CPU that sleeps takes to fall fast asleep */
#define WATCH_NS 40000ull	    /* more than a timer is late after a nap */

bool gpu_is_reserved(const struct actuator *a, unsigned gpu)
{
	for_each_plan(a, p) if (p->used && p->phase == RESERVED && p->plan.gpu == gpu) return true;
	return false;
}

static bool is_in(const struct gs_event *event, __u32 calls)
{
	return event->call < GS_CALL_COUNT && calls & BIT(event->call);
}

static bool matches(const struct ga_trigger *t, const struct gs_event *event)
{
	return (!t->kind || t->kind == event->kind) && (!t->call || t->call == event->call) &&
	       (!t->tid || t->tid == event->tid) && (event->cuda.handle & t->handle_mask) == t->handle &&
	       (!t->bytes_max || (event->cuda.bytes >= t->bytes_min && event->cuda.bytes <= t->bytes_max));
}

static const struct ga_trigger *find_trigger(const struct plan *p, const struct gs_event *event)
{
	for (__u32 i = 0; i < p->plan.trigger_count; i++)
		if (matches(&p->plan.triggers[i], event))
			return &p->plan.triggers[i];
	return NULL;
}

static void forget_deadlines(struct plan *p)
{
	p->start_at = p->limit_at = p->launch_by = p->quiet_at = p->release_at = NEVER;
}

/* An LC that announces without end must not take the GPU from others: a leaky bucket of one second. */
static bool take_token(struct plan *p, __u64 now)
{
	if (!p->plan.max_per_second)
		return true;
	if (p->rate_ns < now)
		p->rate_ns = now;
	if (p->rate_ns - now >= RATE_BURST_NS)
		return false;
	p->rate_ns += RATE_BURST_NS / p->plan.max_per_second;
	return true;
}

static void expect_launch(struct plan *p, __u64 now)
{
	p->launched = p->announced_again = false;
	p->launch_by = p->plan.launch_within_us ? now + p->plan.launch_within_us * US : NEVER;
}

/* A reservation that leaves best-effort work alone is not at its expense. */
static __s64 budget_of(struct actuator *a, const struct plan *p, __u64 now)
{
	return p->plan.mechanism & AT_OTHERS_EXPENSE ? budget_left(&a->gpus[p->plan.gpu], now) : INT64_MAX;
}

static void reserve(struct actuator *a, struct plan *p, __u64 now)
{
	struct gpu *u = &a->gpus[p->plan.gpu];
	__s64 budget = budget_of(a, p, now);
	__u64 limit = p->plan.limit_us * US;

	p->budget_cut = budget < (__s64)limit;
	if (p->budget_cut)
		limit = budget > 0 ? (__u64)budget : 0;
	forget_deadlines(p);
	if (!p->launched)
		expect_launch(p, now);
	p->phase = RESERVED;
	p->reserved_at = now;
	p->limit_at = now + limit;
	p->extras_due = p->plan.mechanism & (GA_PREEMPT | GA_RESTART);
	a->shared->counters.reservations++;
	if (p->plan.mechanism & GA_HOLD)
		hold_ring(a, p);
	turns_clock(u, now);
	gpu_settle(a, p->plan.gpu, now);
}

static __u64 announced_in_us(const struct gs_event *event)
{
	return event->kind == GS_HINT ? earlier(event->hint.in_us, MAX_AHEAD_NS / US) : 0;
}

/* From its event to the start of a reservation. */
static __u64 delay_us(const struct ga_trigger *t, const struct gs_event *event)
{
	__u64 in_us = announced_in_us(event);

	return t->offset_us + (in_us > t->before_us ? in_us - t->before_us : 0);
}

static bool may_start(struct actuator *a, struct plan *p, const struct ga_trigger *t, const struct gs_event *event,
		      __u64 now)
{
	/* An event that waited for longer than its burst would be waited for announces one that is over. */
	__u64 within_us = delay_us(t, event) + (p->plan.launch_within_us ? p->plan.launch_within_us : p->plan.limit_us);
	bool stale = now > event->time_ns && now - event->time_ns > within_us * US;
	bool absurd = event->time_ns > now && event->time_ns - now > MAX_AHEAD_NS;

	return !stale && !absurd && budget_of(a, p, now) > 0 && take_token(p, now);
}

static void wait_for(struct actuator *a, struct plan *p, const struct ga_trigger *t, const struct gs_event *event,
		     __u64 now)
{
	p->record.trigger_ns = event->time_ns;
	p->record.trigger = (__u32)(t - p->plan.triggers);
	p->start_at = event->time_ns + delay_us(t, event) * US;
	p->due_at = due_at(p, event->time_ns + announced_in_us(event) * US);
	if (p->start_at <= now)
		reserve(a, p, now);
}

static void announce(struct actuator *a, struct plan *p, const struct ga_trigger *t, const struct gs_event *event,
		     __u64 now)
{
	if (p->phase != IDLE && event->time_ns > now) {
		p->ahead = *event; /* a forecast: its time comes when the present burst is over */
		return;
	}
	a->shared->counters.triggers++;
	if (p->phase == WAITING || p->phase == RESERVED) {
		p->record.merged++;
		/* A call inside the burst belongs to it; a request that arrives meanwhile will be another one. */
		p->announced_again = event->kind != GS_CUDA_ENTER && event->kind != GS_CUDA_RETURN;
		/* What was expected later (by the clock) comes now. */
		if (p->phase == WAITING && event->time_ns + delay_us(t, event) * US < p->start_at)
			wait_for(a, p, t, event, now);
		return;
	}
	if (!p->plan.mechanism)
		return;
	if (!may_start(a, p, t, event, now)) {
		a->shared->counters.throttled++;
		return;
	}
	if (p->phase == CLOSING)
		burst_finish(a, p, 0);
	p->record = (struct ga_record){.pid = p->plan.pid, .gpu = p->plan.gpu};
	p->launched = p->announced_again = false;
	forget_deadlines(p);
	p->phase = WAITING;
	wait_for(a, p, t, event, now);
}

static void end_or_wait(struct actuator *a, struct plan *p, __u64 now)
{
	if (p->phase != RESERVED || !p->launched || p->syncs_inside)
		return;
	/* A hold that was released does not come back: the next burst needs a trigger of its own, at its own time. */
	if (p->announced_again && !(p->plan.mechanism & (GA_HOLD | GA_WHEN_IDLE)))
		expect_launch(p, now); /* the next burst is announced already */
	else if (p->plan.quiet_us)
		p->quiet_at = now + p->plan.quiet_us * US;
	else
		burst_end(a, p, GA_END_SYNC, now);
}

static void on_launch(struct actuator *a, struct plan *p, const struct gs_event *event, __u64 now)
{
	if (p->phase != WAITING && p->phase != RESERVED)
		return;
	if (!p->record.launch_ns) {
		p->record.launch_ns = event->time_ns;
		rhythm_launch(p, event->time_ns);
	}
	p->launched = true;
	p->announced_again = false;
	p->launch_by = NEVER;
	if (p->phase == RESERVED)
		return;
	if (p->plan.mechanism & GA_START_ON_LAUNCH)
		reserve(a, p, now);
	else
		burst_end(a, p, GA_END_MISSED, now);
}

/* Whoever enters a synchronisation after a launch has queued all it had. A context's waits for the hold itself. */
static bool ends_hold(const struct plan *p, const struct gs_event *event)
{
	return event->call == GS_CALL_CTX_SYNC ||
	       (p->launched && (event->call == GS_CALL_STREAM_SYNC || event->call == GS_CALL_EVENT_SYNC));
}

static void on_enter(struct actuator *a, struct plan *p, const struct gs_event *event, bool sync, __u64 now)
{
	p->quiet_at = p->release_at = NEVER;
	if (p->launched && event->call == GS_CALL_COPY_D2H) /* it may wait for the burst inside */
		p->release_at = event->time_ns + p->plan.release_us * US;
	if (sync)
		p->syncs_inside++;
	if (ends_hold(p, event))
		hold_release(a, p);
	if (is_in(event, LAUNCHES))
		on_launch(a, p, event, now);
}

static void on_return(struct actuator *a, struct plan *p, const struct gs_event *event, bool sync, __u64 now)
{
	/* Not every program is seen to wait: one that calls nothing more has queued all, and so has one that polls. */
	if (is_in(event, LAUNCHES))
		p->release_at = event->time_ns + p->plan.release_us * US;
	else if (is_in(event, QUERIES) && p->launched)
		hold_release(a, p);
	if (sync) {
		if (!is_in(event, QUERIES) && p->syncs_inside) /* a query has no entry */
			p->syncs_inside--;
		end_or_wait(a, p, now);
	} else if (!p->plan.end_calls && p->phase == RESERVED && p->launched) {
		p->quiet_at = now + p->plan.quiet_us * US;
	}
}

/* The program takes its announcement back; a burst that has begun goes on. */
static void cancel(struct actuator *a, struct plan *p, __u64 now)
{
	p->ahead.kind = 0;
	rhythm_end(p);
	if (!p->launched)
		burst_end(a, p, GA_END_WITHDRAWN, now);
}

static void foretold(struct actuator *a, struct plan *p, const struct ga_trigger *t, const struct gs_event *event,
		     __u64 now)
{
	rhythm_begin(p, event);
	announce(a, p, t, event, now);
}

static void plan_event(struct actuator *a, struct plan *p, const struct gs_event *event, __u64 now)
{
	const struct ga_trigger *trigger = find_trigger(p, event);
	bool sync = is_in(event, p->plan.end_calls) && !(event->flags & GS_FLAG_ASYNC);

	if (event->kind == GS_HINT && event->call == GS_HINT_CANCEL)
		cancel(a, p, now);
	else if (trigger && event->kind == GS_HINT)
		foretold(a, p, trigger, event, now);
	else if (trigger)
		announce(a, p, trigger, event, now);
	if (event->kind == GS_CUDA_ENTER)
		on_enter(a, p, event, sync, now);
	else if (event->kind == GS_CUDA_RETURN)
		on_return(a, p, event, sync, now);
}

void burst_event(struct actuator *a, const struct gs_event *event, __u64 now)
{
	a->shared->counters.events++;
	if (a->stopping)
		return;
	if (event->kind == GS_PAUSE) {
		turns_pause(a, event, now);
		return;
	}
	for_each_plan(a, p)
	{
		if (p->used && !p->leaving && p->plan.pid == event->pid &&
		    (!p->plan.agent_tid || p->plan.agent_tid != event->tid))
			plan_event(a, p, event, now);
	}
}

void burst_end(struct actuator *a, struct plan *p, __u32 reason, __u64 now)
{
	struct gpu *u = &a->gpus[p->plan.gpu];
	bool reserved = p->phase == RESERVED;

	if (p->phase != WAITING && !reserved)
		return;
	hold_release(a, p);
	forget_deadlines(p);
	if (reason == GA_END_LIMIT)
		p->syncs_inside = 0; /* perhaps a return was lost */
	p->record.end_ns = now;
	p->record.reason = reason;
	p->phase = CLOSING;
	if (!reserved) {
		burst_finish(a, p, now);
		return;
	}
	if (p->plan.mechanism & AT_OTHERS_EXPENSE)
		budget_spend(u, now - p->reserved_at);
	turns_clock(u, now);
	gpu_settle(a, p->plan.gpu, now);
}

void burst_finish(struct actuator *a, struct plan *p, __u64 now)
{
	p->record.undone_ns = now;
	if (p->plan.mechanism & GA_HOLD && p->record.begin_ns)
		p->record.ready_ns = p->hold_asked ? hold_launched_ns(a, p) : 0;
	record_write(a, &p->record);
	p->phase = IDLE;
	rhythm_next(p, now);
	if (p->leaving)
		p->used = p->leaving = false;
}

static bool has_forecast(const struct plan *p)
{
	return p->phase == IDLE && p->ahead.kind;
}

static void take_forecast(struct actuator *a, struct plan *p, __u64 now)
{
	struct gs_event event = p->ahead;
	const struct ga_trigger *trigger = find_trigger(p, &event);

	p->ahead.kind = 0;
	if (trigger)
		announce(a, p, trigger, &event, now);
}

static void plan_tick(struct actuator *a, struct plan *p, __u64 now)
{
	if (has_forecast(p))
		take_forecast(a, p, now);
	if (p->phase == WAITING && now >= p->start_at)
		reserve(a, p, now);
	if (p->phase != RESERVED)
		return;
	if (now >= p->release_at) {
		p->release_at = NEVER;
		hold_release(a, p);
	}
	if (now >= p->limit_at)
		burst_end(a, p, p->budget_cut ? GA_END_BUDGET : GA_END_LIMIT, now);
	else if (now >= p->launch_by)
		burst_end(a, p, GA_END_NO_LAUNCH, now);
	else if (now >= p->quiet_at)
		burst_end(a, p, GA_END_QUIET, now);
}

void burst_tick(struct actuator *a, __u64 now)
{
	for_each_plan(a, p) if (p->used && !a->stopping) plan_tick(a, p, now);
}

/*
 * A timer is late by 60 to 200 us where the CPU has slept for long, by 20 to 30 after a nap. So the wait for a
 * reservation ends with a nap, and the rest of that is waited out awake.
 */
static __u64 wake_for(__u64 start, __u64 now)
{
	return now + ALERT_NS < start ? start - ALERT_NS : start - WATCH_NS;
}

__u64 burst_imminent(const struct actuator *a, __u64 now)
{
	__u64 start = NEVER;

	for_each_plan(a, p) if (p->used && p->phase == WAITING) start = earlier(start, p->start_at);
	return start > now && start - now <= WATCH_NS ? start : now;
}

__u64 burst_deadline(const struct plan *p, __u64 now)
{
	if (has_forecast(p))
		return 0;
	if (p->phase == WAITING)
		return wake_for(p->start_at, now);
	if (p->phase != RESERVED)
		return NEVER;
	return earlier(earlier(p->limit_at, p->launch_by), earlier(p->quiet_at, p->release_at));
}
