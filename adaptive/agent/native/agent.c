/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libgpsched_agent.so: the CUDA driver loads it when a program named it in CUDA_INJECTION64_PATH calls cuInit.
 *
 * One thread waits on a page shared with the actuator and launches hold kernels in the program's own context. The
 * program must not notice: no output, no exit, no signal handler, no device memory but a few hundred bytes of code.
 * Whatever fails, the thread ends and the program runs as if there were none.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hold_page.h"
#include "holder.h"

#define MAX_FAILURES 3
#define FIRST_LOOK_NS 10000000ull /* for a context: the program is only in cuInit now */
#define LAST_LOOK_NS 1000000000ull
#define NEVER ((uint64_t) - 1)

static struct {
	struct gs_hold_page *page;
	struct holder holders[MAX_DEVICES];
	int devices;
	uint32_t launched, flag;	   /* the last hold launched, and released */
	uint32_t hurried_for;		   /* the last one launched before the last look */
	int nice;			   /* this thread's own */
	uint64_t deadline;		   /* of the hold that runs */
	uint64_t next_look, look_interval; /* for contexts that come and go */
} agent;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool reached(uint32_t sequence, uint32_t wanted)
{
	return (int32_t)(sequence - wanted) >= 0;
}

static uint32_t at_most(uint32_t value, uint32_t limit)
{
	return value < limit ? value : limit;
}

static struct gs_hold_page *make_page(void)
{
	int fd = memfd_create(GS_HOLD_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct gs_hold_page *page;

	if (fd < 0)
		return NULL;
	if (ftruncate(fd, GS_HOLD_BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return NULL;
	/* The descriptor stays open: it is how the daemon finds the page. */
	page = mmap(NULL, GS_HOLD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return NULL;
	page->version = GS_HOLD_VERSION;
	__atomic_store_n(&page->magic, GS_HOLD_MAGIC, __ATOMIC_RELEASE);
	return page;
}

static void note(CUresult result)
{
	if (!result)
		return;
	agent.page->last_error = (uint32_t)result;
	__atomic_add_fetch(&agent.page->failures, 1, __ATOMIC_RELAXED);
}

static void publish_ready(void)
{
	uint32_t ready = 0;

	for (int i = 0; i < agent.devices; i++)
		ready += agent.holders[i].ready;
	__atomic_store_n(&agent.page->ready, ready, __ATOMIC_RELEASE);
}

/*
 * The actuator has this thread run before others and on its own CPU, and may have died. One that works would have asked
 * for a hold meanwhile, or will do so again.
 */
static void run_as_others(void)
{
	bool hurried = agent.hurried_for != agent.launched;
	cpu_set_t own, cpus;

	agent.hurried_for = agent.launched;
	if (hurried || sched_getaffinity(0, sizeof(own), &own) || sched_getaffinity(getpid(), sizeof(cpus), &cpus))
		return;
	if (!CPU_EQUAL(&own, &cpus))
		sched_setaffinity(0, sizeof(cpus), &cpus);
	if (getpriority(PRIO_PROCESS, 0) != agent.nice)
		(void)!setpriority(PRIO_PROCESS, 0, agent.nice);
}

static void look_for_contexts(uint64_t now)
{
	run_as_others();
	/* In cuInit the count is not known yet. */
	if (!agent.devices && (cu.cuDeviceGetCount(&agent.devices) || agent.devices > MAX_DEVICES))
		agent.devices = 0;
	for (int i = 0; i < agent.devices; i++)
		note(holder_follow(&agent.holders[i], i));
	publish_ready();
	if (agent.look_interval < LAST_LOOK_NS)
		agent.look_interval *= 2;
	agent.next_look = now + agent.look_interval;
}

static void release(uint32_t sequence)
{
	for (int i = 0; i < agent.devices; i++)
		holder_release(&agent.holders[i], sequence);
	agent.flag = sequence;
	agent.deadline = NEVER;
}

static void launch(uint32_t sequence, uint64_t now)
{
	uint32_t kernels = at_most(agent.page->kernels, GS_HOLD_MAX_KERNELS);
	uint32_t limit_us = at_most(agent.page->limit_us, GS_HOLD_MAX_LIMIT_US);

	for (int i = 0; i < agent.devices; i++) {
		struct holder *h = &agent.holders[i];
		CUresult result = h->ready ? holder_launch(h, sequence, kernels, limit_us * 1000ull) : 0;

		note(result);
		if (result)
			h->ready = false;
	}
	publish_ready();
	agent.deadline = now + limit_us * 1000ull;
	agent.page->launched_ns = now_ns();
	__atomic_store_n(&agent.page->launched, sequence, __ATOMIC_RELEASE);
}

static void serve(uint64_t now)
{
	uint32_t wanted = __atomic_load_n(&agent.page->wanted, __ATOMIC_ACQUIRE);
	uint32_t released = __atomic_load_n(&agent.page->released, __ATOMIC_ACQUIRE);

	if (wanted != agent.launched) {
		agent.launched = wanted;
		if (!reached(released, wanted))
			launch(wanted, now);
	}
	if (agent.flag != agent.launched && (reached(released, agent.launched) || now >= agent.deadline))
		release(agent.launched);
}

static void wait_for_bell(uint32_t heard, uint64_t until)
{
	struct timespec time = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};

	/* Absolute, unlike FUTEX_WAIT. */
	syscall(SYS_futex, &agent.page->bell, FUTEX_WAIT_BITSET, heard, &time, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void *run(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), GS_HOLD_THREAD);
	agent.nice = getpriority(PRIO_PROCESS, 0);
	agent.look_interval = FIRST_LOOK_NS;
	agent.deadline = NEVER;
	agent.next_look = now_ns() + FIRST_LOOK_NS;
	if (!cuda_load())
		return NULL;
	agent.page = make_page();
	if (!agent.page)
		return NULL;
	while (agent.page->failures < MAX_FAILURES) {
		uint32_t heard = __atomic_load_n(&agent.page->bell, __ATOMIC_SEQ_CST);
		uint64_t now = now_ns();

		serve(now);
		if (now >= agent.next_look)
			look_for_contexts(now);
		wait_for_bell(heard, agent.deadline < agent.next_look ? agent.deadline : agent.next_look);
	}
	release(agent.launched);
	__atomic_store_n(&agent.page->ready, 0, __ATOMIC_RELEASE);
	return NULL;
}

/* Called by the CUDA driver inside cuInit. Anything but 1 would be an error to some versions. */
__attribute__((visibility("default"))) int InitializeInjection(void);

int InitializeInjection(void)
{
	sigset_t all, before;
	pthread_t thread;

	/* The program's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (!pthread_create(&thread, NULL, run, NULL))
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return 1;
}
