/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the driver agree with what should be: compares what each group should be with what it is, and issues the
 * control that is most urgent, until nothing differs.
 *
 * Leader and followers: one thread waits for events. If an event asks for a control, that very thread issues it, since
 * waking another one first would cost as much again, and a follower takes the lead meanwhile. There is one thread more
 * than GPUs (the driver takes one control of a GPU at a time anyway), so somebody is always free to lead. Only where
 * the leader waits beside a job's thread (awake.c) a follower issues the control.
 */
#include "actuator.h"

#define FIRST_RETRY_NS 1000000ull
#define MAX_RETRY_SHIFT 8 /* 256 ms */

static void mark_begun(struct actuator *a, unsigned gpu, __u64 now)
{
	for_each_plan(a, p)
	{
		if (p->used && p->phase == RESERVED && p->plan.gpu == gpu && !p->record.begin_ns)
			p->record.begin_ns = now;
	}
}

/* Issues one control without the lock: plans may change meanwhile, so it works on a copy. */
static int unlocked(struct actuator *a, struct group *g, int (*control)(int, const struct ga_group *, __u64),
		    __u64 value)
{
	struct ga_group copy = g->plan;
	struct slot *slot = &a->slots[copy.slot];
	int fd = slot->fd, status;

	g->busy = true;
	slot->users++;
	mark_begun(a, copy.gpu, now_ns());
	pthread_mutex_unlock(&a->lock);
	status = control(fd, &copy, value);
	pthread_mutex_lock(&a->lock);
	g->busy = false;
	slot->users--;
	count_control(a, copy.gpu, status);
	if (rm_is_gone(status))
		g->dead = true;
	return status;
}

static int do_switch(int fd, const struct ga_group *group, __u64 mode)
{
	return rm_switch(fd, group, (enum mode)mode);
}

static int do_preempt(int fd, const struct ga_group *group, __u64 unused)
{
	(void)unused;
	return rm_preempt(fd, group);
}

static int do_restart(int fd, const struct ga_group *group, __u64 unused)
{
	(void)unused;
	return rm_restart_runlist(fd, group);
}

static void make_as_wanted(struct actuator *a, struct group *g)
{
	enum mode wanted = group_wanted(a, g), mode = way_to(g, wanted);
	int status;

	if (wanted != g->target)
		g->attempts = 0;
	g->target = wanted;
	if (wanted != MODE_ENABLED) { /* known as off before the call: one that fails half-way may have done it */
		g->actual = MODE_UNKNOWN;
		g->off_by = mode;
	}
	status = unlocked(a, g, do_switch, mode);
	if (!status) {
		g->attempts = 0;
		g->retry_ns = 0;
		g->actual = g->changed ? MODE_UNKNOWN : mode;
		if (g->actual == MODE_ENABLED)
			g->off_by = MODE_ENABLED;
	} else {
		unsigned shift = g->attempts < MAX_RETRY_SHIFT ? g->attempts : MAX_RETRY_SHIFT;

		g->attempts++;
		g->retry_ns = now_ns() + (FIRST_RETRY_NS << shift);
	}
	g->changed = false;
}

static struct plan *with_extras(struct actuator *a, unsigned gpu)
{
	for_each_plan(a, p)
	{
		if (p->used && p->phase == RESERVED && p->plan.gpu == gpu && p->extras_due)
			return p;
	}
	return NULL;
}

static void preempt_best_effort(struct actuator *a, const struct plan *p)
{
	for_each_group(a, g)
	{
		if (g->used && !g->dead && g->plan.role == GA_ROLE_BE && g->plan.gpu == p->plan.gpu &&
		    g->actual != MODE_DISABLED && p->phase == RESERVED)
			unlocked(a, g, do_preempt, 0);
	}
}

static void do_extras(struct actuator *a, struct plan *p)
{
	p->extras_due = false;
	if (p->plan.mechanism & GA_PREEMPT)
		preempt_best_effort(a, p);
	if (p->plan.mechanism & GA_RESTART && p->phase == RESERVED && p->own && !p->own->dead)
		unlocked(a, p->own, do_restart, 0);
}

static void note_ready(struct plan *p, __u64 now)
{
	if (!p->record.begin_ns)
		p->record.begin_ns = now;
	if (!p->record.ready_ns)
		p->record.ready_ns = now > p->record.begin_ns ? now : p->record.begin_ns;
}

static void sweep_groups(struct actuator *a)
{
	__u64 disabled = 0;

	for_each_group(a, g)
	{
		if (g->used && !g->busy && (g->dead || (g->leaving && g->actual == MODE_ENABLED)))
			g->used = false;
		disabled += g->used && g->actual != MODE_ENABLED;
	}
	a->shared->counters.disabled = disabled;
	slots_sweep(a);
}

/* Notes in the reservations what is done. */
void gpu_settle(struct actuator *a, unsigned gpu, __u64 now)
{
	bool busy = false;

	sweep_groups(a);
	for_each_group(a, g) busy |= g->used && g->plan.gpu == gpu && (g->busy || needs_control(a, g, gpu));
	if (busy || with_extras(a, gpu))
		return;
	for_each_plan(a, p)
	{
		if (!p->used || p->plan.gpu != gpu)
			continue;
		if (p->phase == RESERVED)
			note_ready(p, now);
		else if (p->phase == CLOSING)
			burst_finish(a, p, now);
	}
}

static void step(struct actuator *a, unsigned gpu)
{
	struct group *g = most_urgent(a, gpu, now_ns());
	struct plan *p = g ? NULL : with_extras(a, gpu);

	if (g)
		make_as_wanted(a, g);
	else if (p)
		do_extras(a, p);
	gpu_settle(a, gpu, now_ns());
}

static void restore_slices(struct actuator *a, struct gpu *u)
{
	for_each_group(a, g)
	{
		if (g->used && !g->dead && g->plan.gpu == u->index && g->plan.original_us)
			unlocked(a, g, rm_set_timeslice, g->plan.original_us);
	}
	u->restored = true;
}

/* Last of all, once its groups are enabled. */
static bool should_restore(const struct actuator *a, const struct gpu *u)
{
	return a->stopping && u->known && !u->restored && next_retry(a, u->index) == NEVER;
}

static struct gpu *gpu_to_serve(struct actuator *a)
{
	for_each_gpu(a, u)
	{
		if (!u->busy &&
		    (most_urgent(a, u->index, now_ns()) || with_extras(a, u->index) || should_restore(a, u)))
			return u;
	}
	return NULL;
}

/* If nobody waits for events now, or for another GPU's driver, another thread does while this one is in the driver. */
static void serve_gpu(struct actuator *a, struct gpu *u)
{
	u->busy = true;
	if (!a->led || gpu_to_serve(a))
		pthread_cond_signal(&a->idle);
	rearm(a); /* for the other GPUs, whose times were not awaited while this thread was called */
	if (should_restore(a, u))
		restore_slices(a, u);
	else
		step(a, u->index);
	u->busy = false;
}

bool is_finished(const struct actuator *a)
{
	bool left = false;

	for_each_gpu(a, u) left |= u->known && !u->restored;
	return a->stopping && (!left || now_ns() >= a->stop_by);
}

/* If there is nothing to do any more, the leader has to wait for whatever it did not wait for meanwhile. */
static void wait_to_be_called(struct actuator *a)
{
	a->called = false;
	rearm(a);
	pthread_cond_wait(&a->idle, &a->lock);
}

bool serve(struct actuator *a)
{
	pthread_mutex_lock(&a->lock);
	while (!is_finished(a)) {
		struct gpu *u = gpu_to_serve(a);

		if (u && awake_is_shared()) {
			a->called = true;
			pthread_cond_signal(&a->idle);
			lead(a);
		} else if (u) {
			a->called = false;
			serve_gpu(a, u);
			rearm(a);
		} else if (!a->led)
			lead(a);
		else
			wait_to_be_called(a);
	}
	pthread_cond_broadcast(&a->idle);
	pthread_mutex_unlock(&a->lock);
	return now_ns() < a->stop_by;
}

static void *follow(void *argument)
{
	awake_roam();
	serve(argument);
	return NULL;
}

bool threads_at_least(struct actuator *a, unsigned count)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&small, 128 << 10);
	while (a->threads < count && !pthread_create(&thread, &small, follow, a))
		a->threads++;
	return a->threads >= count;
}
