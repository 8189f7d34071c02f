/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where to wait for events: on a CPU that does not sleep meanwhile.
 *
 * A CPU that has slept takes 30 to 300 us to wake, in virtual machines above all, and a hold that is asked for by an
 * event is late by as much. But best-effort programs wait for the GPU awake, as CUDA does unless told otherwise:
 * whoever has a nice value of -20 and waits on such a thread's CPU is there within 10 us, for some 20 us of that
 * thread's time a burst. So while holds are planned the thread that leads waits there, and follows when the other one
 * moves. Controls, which take hundreds of microseconds, are left to another thread.
 */
#include "actuator.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLLOW_NS 10000000ull	/* how often is looked where the thread is */
#define JUDGE_NS 400000000ull	/* over how long its busy time is taken */
#define SEARCH_NS 1000000000ull /* between two searches in vain */
#define CALM_NS 1000000ull	/* enough to look, and for what a rhythm foretells */
#define LEAST_BUSY 2		/* half of the time */
#define MOST_THREADS 64		/* of a process are looked at */
#define ANYWHERE (-1)

struct look {
	char state;
	unsigned long busy_ticks;
	int nice, cpu;
	unsigned policy;
};

static cpu_set_t own; /* where the actuator may run */
static bool first;    /* whoever else runs there makes way at once */
static __thread int here = ANYWHERE;

void awake_begin(struct actuator *a, bool is_first)
{
	a->awake.cpu = ANYWHERE;
	first = is_first;
	if (sched_getaffinity(0, sizeof(own), &own))
		CPU_ZERO(&own);
}

/* Fields of /proc/PID/task/TID/stat, see proc(5); the name before them may hold anything, also a parenthesis. */
static bool look_at(pid_t pid, pid_t tid, struct look *look)
{
	char path[64], text[512], *fields;
	unsigned long user, system;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[length > 0 ? length : 0] = 0;
	fields = strrchr(text, ')');
	if (!fields || sscanf(fields + 1,
			      " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %d %*d %*d %*u %*u %*d"
			      " %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d %d %*u %u",
			      &look->state, &user, &system, &look->nice, &look->cpu, &look->policy) != 6)
		return false;
	look->busy_ticks = user + system;
	return true;
}

/* One that runs before us, or where we may not, is no company. */
static bool is_suitable(const struct look *look)
{
	return look->nice >= 0 && look->policy != SCHED_FIFO && look->policy != SCHED_RR &&
	       look->policy != SCHED_DEADLINE && look->cpu >= 0 && look->cpu < CPU_SETSIZE &&
	       CPU_ISSET((size_t)look->cpu, &own);
}

static void try_thread(struct actuator *a, pid_t pid, pid_t tid, __u64 now)
{
	struct look look;

	if (!look_at(pid, tid, &look) || look.state != 'R' || !is_suitable(&look))
		return;
	a->awake = (struct awake){.pid = pid,
				  .tid = tid,
				  .cpu = ANYWHERE,
				  .busy_ticks = look.busy_ticks,
				  .since = now,
				  .at = a->awake.at,
				  .next = a->awake.next};
}

/* Its first thread, most often; else the first one that runs right now. */
static void search_process(struct actuator *a, pid_t pid, __u64 now)
{
	char path[32];
	struct dirent *entry;
	DIR *threads;

	try_thread(a, pid, pid, now);
	if (a->awake.tid)
		return;
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	for (int i = 0; threads && !a->awake.tid && i < MOST_THREADS && (entry = readdir(threads)); i++) {
		if (entry->d_name[0] != '.')
			try_thread(a, pid, atoi(entry->d_name), now);
	}
	if (threads)
		closedir(threads);
}

static bool is_job(const struct group *g)
{
	return g->used && !g->leaving && !g->dead && g->plan.role == GA_ROLE_BE;
}

/* One process each time: events wait meanwhile. One whose thread was not busy enough is not asked again at once. */
static void search(struct actuator *a, __u64 now)
{
	unsigned *next = &a->awake.next;

	a->awake.at = now + FOLLOW_NS;
	while (*next < a->group_top && !is_job(&a->groups[*next]))
		++*next;
	if (*next < a->group_top)
		search_process(a, (pid_t)a->groups[(*next)++].plan.pid, now);
	if (*next < a->group_top)
		return;
	*next = 0;
	if (!a->awake.tid)
		a->awake.at = now + SEARCH_NS;
}

static void forget(struct actuator *a)
{
	a->awake.tid = a->awake.pid = 0;
	a->awake.cpu = ANYWHERE;
}

/* Where it runs by now, if it is still busy enough. */
static void follow(struct actuator *a, __u64 now)
{
	static unsigned long ticks_per_s;
	struct awake *w = &a->awake;
	struct look look;

	if (!ticks_per_s)
		ticks_per_s = (unsigned long)sysconf(_SC_CLK_TCK);
	w->at = now + FOLLOW_NS;
	if (!look_at(w->pid, w->tid, &look) || !is_suitable(&look)) {
		forget(a);
		return;
	}
	if (now - w->since >= JUDGE_NS) {
		__u64 busy_ns = (look.busy_ticks - w->busy_ticks) * (1000000000ull / ticks_per_s);

		if (busy_ns * LEAST_BUSY < now - w->since) {
			forget(a);
			return;
		}
		w->busy_ticks = look.busy_ticks;
		w->since = now;
	} else if (w->cpu == ANYWHERE) {
		return; /* it is not known yet whether it is busy enough */
	}
	w->cpu = look.cpu;
}

static bool is_soon(const struct plan *p, __u64 now)
{
	return p->phase != IDLE && !(p->phase == WAITING && p->start_at > now + CALM_NS);
}

/* Nothing is reserved, or about to be, or left to be done. */
static bool is_calm(const struct actuator *a, __u64 now)
{
	for_each_plan(a, p) if (p->used && is_soon(p, now)) return false;
	return !a->called;
}

static bool has_holds(const struct actuator *a)
{
	for_each_plan(a, p) if (p->used && !p->leaving && p->plan.mechanism & GA_HOLD) return true;
	return false;
}

static void look_around(struct actuator *a, __u64 now)
{
	if (!first || !has_holds(a) || a->stopping)
		forget(a);
	else if (now < a->awake.at || !is_calm(a, now))
		return;
	else if (a->awake.tid)
		follow(a, now);
	else
		search(a, now);
	a->shared->counters.beside = a->awake.cpu == ANYWHERE ? 0 : (__u64)a->awake.pid;
}

static bool move(const cpu_set_t *cpus)
{
	return !sched_setaffinity(0, sizeof(*cpus), cpus);
}

void awake_stay(struct actuator *a)
{
	cpu_set_t there;

	look_around(a, now_ns());
	if (here == a->awake.cpu)
		return;
	here = a->awake.cpu;
	if (here != ANYWHERE) {
		CPU_ZERO(&there);
		CPU_SET((size_t)here, &there);
		if (move(&there))
			return;
		forget(a); /* it was taken from us meanwhile */
		a->shared->counters.beside = 0;
		here = ANYWHERE;
	}
	move(&own);
}

bool awake_is_shared(void)
{
	return here >= 0;
}

void awake_roam(void)
{
	here = ANYWHERE;
	move(&own);
}
