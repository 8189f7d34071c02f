/* SPDX-License-Identifier: Apache-2.0 */
#include "actuator.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../agent/native/hold_page.h"

#define FIRST_NICE (-20)
#define STAYS_NS 500000000ull /* an agent that has launched nothing for a second goes back by itself */

/* The file belongs to a program that is not trusted: without the seal it could shrink it and kill us by SIGBUS. */
struct gs_hold_page *hold_map(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat file;
	struct gs_hold_page *page;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &file) || file.st_size < GS_HOLD_BYTES)
		return NULL;
	page = mmap(NULL, GS_HOLD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return NULL;
	if (page->magic != GS_HOLD_MAGIC || page->version != GS_HOLD_VERSION) {
		munmap(page, GS_HOLD_BYTES);
		return NULL;
	}
	return page;
}

void hold_unmap(struct gs_hold_page *page)
{
	munmap(page, GS_HOLD_BYTES);
}

static struct gs_hold_page *page_of(struct actuator *a, const struct plan *p)
{
	return p->plan.agent_slot == GA_NO_INDEX ? NULL : a->slots[p->plan.agent_slot].page;
}

/* Its tid may be another's by now, if the program has just ended. */
static bool is_there(const struct plan *p)
{
	return p->plan.agent_tid && !syscall(SYS_tgkill, p->plan.pid, p->plan.agent_tid, 0);
}

/* Where its program may run; none if that has just ended. */
static cpu_set_t program_cpus(const struct plan *p)
{
	cpu_set_t cpus;

	if (sched_getaffinity((pid_t)p->plan.pid, sizeof(cpus), &cpus))
		CPU_ZERO(&cpus);
	return cpus;
}

/* A process on two GPUs has two plans and one agent: what another plan gave its thread is not its own. */
static int own_nice(struct actuator *a, __u32 tid)
{
	for_each_plan(a, other) if (other->placed_tid == tid) return other->own_nice;
	return getpriority(PRIO_PROCESS, (id_t)tid);
}

/*
 * The agent's thread is to run where we do and before any other: this CPU is awake, and free as soon as we wait again;
 * others have probably slept since the last burst and take 30 to 200 us to wake. It stays there from hold to hold,
 * since moving it costs 20 us, and runs for no more than that. It is no real-time thread: places that run programs in
 * containers allow none, and one that waits, awake, for a lock would do so for ever. But it is not to wait for a
 * control that we are about to issue here.
 */
static void place_agent(struct actuator *a, struct plan *p)
{
	pid_t tid = (pid_t)p->plan.agent_tid;
	__u64 now = now_ns(), until = p->placed_until;
	int cpu = sched_getcpu();
	cpu_set_t here;

	if (!awake_is_shared() && next_retry(a, p->plan.gpu) <= now) {
		hold_leave(p);
		return;
	}
	p->placed_until = now + STAYS_NS;
	if (p->placed_tid == p->plan.agent_tid && p->placed_cpu == cpu && now < until)
		return;
	if (cpu < 0 || cpu >= CPU_SETSIZE || !is_there(p))
		return;
	if (!p->placed_tid)
		p->own_nice = own_nice(a, p->plan.agent_tid);
	CPU_ZERO(&here);
	CPU_SET(cpu, &here);
	(void)!setpriority(PRIO_PROCESS, (id_t)tid, FIRST_NICE);
	sched_setaffinity(tid, sizeof(here), &here); /* not where its program may not */
	p->placed_tid = p->plan.agent_tid;
	p->placed_cpu = cpu;
}

/* As it was before. */
void hold_leave(struct plan *p)
{
	pid_t tid = (pid_t)p->placed_tid;
	cpu_set_t cpus;

	if (!p->placed_tid)
		return;
	cpus = program_cpus(p);
	if (p->placed_tid == p->plan.agent_tid && is_there(p)) {
		(void)!setpriority(PRIO_PROCESS, (id_t)tid, p->own_nice);
		sched_setaffinity(tid, sizeof(cpus), &cpus);
	}
	p->placed_tid = 0;
}

static bool has_launched(const struct gs_hold_page *page, __u32 hold)
{
	return __atomic_load_n(&page->launched, __ATOMIC_ACQUIRE) == hold;
}

static void ring(struct gs_hold_page *page)
{
	__atomic_add_fetch(&page->bell, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &page->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void hold_ring(struct actuator *a, struct plan *p)
{
	struct gs_hold_page *page = page_of(a, p);

	p->hold_asked = 0;
	if (!page || !__atomic_load_n(&page->ready, __ATOMIC_ACQUIRE))
		return;
	p->hold = page->wanted + 1;
	if (!p->hold)
		p->hold = 1; /* 0 says "none" */
	p->hold_asked = p->hold;
	page->kernels = p->plan.hold_kernels;
	page->limit_us = (__u32)((p->limit_at - p->reserved_at) / US);
	place_agent(a, p);
	__atomic_store_n(&page->wanted, p->hold, __ATOMIC_RELEASE);
	p->record.begin_ns = now_ns();
	ring(page);
}

void hold_release(struct actuator *a, struct plan *p)
{
	struct gs_hold_page *page = page_of(a, p);

	if (page && p->hold) {
		__atomic_store_n(&page->released, p->hold, __ATOMIC_RELEASE);
		ring(page);
	}
	p->hold = 0;
}

/* The hold has the GPU a switch later; 0 when its kernels were never launched. */
__u64 hold_launched_ns(struct actuator *a, const struct plan *p)
{
	const struct gs_hold_page *page = page_of(a, p);

	if (!page || !has_launched(page, p->hold_asked))
		return 0;
	return page->launched_ns;
}
