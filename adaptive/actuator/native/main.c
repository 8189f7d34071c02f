/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpsched-actuator SOCKET_FD MEMORY_FD: started by the daemon with both descriptors inherited. It ends, and undoes all
 * it did before, when the daemon's end of the socket closes or on SIGTERM and SIGINT.
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "actuator.h"
#include "link.h"

#define EVENTS_AT_ONCE 256 /* then timers and messages have their turn, even in a storm */
#define MESSAGES_AT_ONCE 64
#define STOP_LIMIT_S 2
#define REALTIME_PRIORITY 10

/* What epoll reports: the index of a slot, or one of these. */
enum { FROM_LINK = GA_MAX_SLOTS, FROM_TIMER, FROM_SIGNAL, FROM_RING };

static struct actuator actuator = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct ring_buffer *ring;
static int epoll_fd, link_fd, timer_fd;
static unsigned events_left;

__u64 now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (__u64)now.tv_sec * 1000000000 + (__u64)now.tv_nsec;
}

static void fail(const char *what)
{
	fprintf(stderr, "gpsched-actuator: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int watch(int fd, __u64 from)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = from};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void unwatch(int fd)
{
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static int on_event(void *context, void *data, size_t size)
{
	(void)context;
	if (size >= sizeof(struct gs_event))
		burst_event(&actuator, data, now_ns());
	return --events_left ? 0 : -EAGAIN;
}

static int open_ring(int map)
{
	if (ring)
		return -EEXIST;
	ring = ring_buffer__new(map, on_event, NULL, NULL);
	return ring ? watch(ring_buffer__epoll_fd(ring), FROM_RING) : -errno;
}

static int add_slot(const struct ga_message *message, int fd)
{
	int error;

	if (fd < 0)
		return -EBADF;
	error = slot_put(&actuator, message, fd);
	if (!error && message->kind == GA_SLOT_RING)
		error = open_ring(fd);
	else if (!error && message->kind == GA_SLOT_PIDFD)
		error = watch(fd, message->slot);
	return error;
}

static void handle(const struct ga_message *message, int fd)
{
	int error;

	switch (message->type) {
	case GA_MSG_SLOT:
		error = add_slot(message, fd);
		if (error)
			link_answer(link_fd, message, error);
		return;
	case GA_MSG_DROP:
		slot_drop(&actuator, message->slot);
		break;
	case GA_MSG_PUBLISH:
		link_answer(link_fd, message, publish(&actuator, now_ns()));
		break;
	case GA_MSG_EVENT:
		burst_event(&actuator, (const struct gs_event *)message->event, now_ns());
		break;
	}
	if (fd >= 0)
		close(fd);
}

static void receive_messages(void)
{
	struct ga_message message;
	int fd;

	for (int i = 0; i < MESSAGES_AT_ONCE; i++) {
		int got = link_receive(link_fd, &message, &fd);

		if (got < 0)
			actuator.stopping = true;
		if (got <= 0)
			return;
		handle(&message, fd);
	}
}

static void dispatch(__u64 from)
{
	__u64 expirations;

	switch (from) {
	case FROM_LINK:
		receive_messages();
		break;
	case FROM_RING:
		events_left = EVENTS_AT_ONCE;
		ring_buffer__consume(ring);
		break;
	case FROM_TIMER:
		(void)!read(timer_fd, &expirations, sizeof(expirations));
		break;
	case FROM_SIGNAL:
		actuator.stopping = true;
		break;
	default: /* the slot may have been closed in the same round */
		if (actuator.slots[from].kind == GA_SLOT_PIDFD)
			process_exited(&actuator, actuator.slots[from].pid, now_ns());
	}
}

static void tick(void)
{
	__u64 now = now_ns(), next = NEVER;
	struct itimerspec timer = {0};

	burst_tick(&actuator, now);
	for_each_gpu(&actuator, u) if (u->running) turns_tick(u, now);
	for_each_plan(&actuator, p) if (p->used) next = earlier(next, burst_deadline(p));
	for_each_gpu(&actuator, u) if (u->running) next = earlier(next, turns_deadline(u));
	if (next != NEVER) {
		timer.it_value.tv_sec = (time_t)(next / 1000000000);
		timer.it_value.tv_nsec = (long)(next % 1000000000);
	}
	timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

static void loop(void)
{
	struct epoll_event ready[16];

	while (!actuator.stopping) {
		int count = epoll_wait(epoll_fd, ready, 16, -1);

		pthread_mutex_lock(&actuator.lock);
		for (int i = 0; i < count; i++)
			dispatch(ready[i].data.u64);
		tick();
		pthread_mutex_unlock(&actuator.lock);
	}
}

/* Nothing is reserved any more and no turn counts: workers enable all, restore the slices and end. */
static int stop(void)
{
	struct timespec limit;
	int left = 0;

	pthread_mutex_lock(&actuator.lock);
	for_each_plan(&actuator, p) if (p->used) burst_end(&actuator, p, GA_END_WITHDRAWN, now_ns());
	for_each_gpu(&actuator, u) if (u->running) pthread_cond_signal(&u->work);
	pthread_mutex_unlock(&actuator.lock);
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += STOP_LIMIT_S;
	for_each_gpu(&actuator, u) if (u->running) left +=
	    pthread_clockjoin_np(u->thread, NULL, CLOCK_MONOTONIC, &limit) != 0;
	return left ? 1 : 0;
}

static struct ga_shared *map_shared(int fd)
{
	struct ga_shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (shared == MAP_FAILED)
		fail("cannot map the plans");
	if (shared->magic != GA_MAGIC || shared->version != GA_ABI_VERSION || shared->size != sizeof(*shared)) {
		fprintf(stderr,
			"gpsched-actuator: the daemon speaks another version of plan.h; rebuild: make native\n");
		exit(1);
	}
	return shared;
}

static int signal_descriptor(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Real time where allowed: both threads sleep nearly always, and must run at once when an event comes. */
static void be_prompt(void)
{
	struct sched_param priority = {.sched_priority = REALTIME_PRIORITY};

	if (sched_setscheduler(0, SCHED_FIFO, &priority))
		(void)!setpriority(PRIO_PROCESS, 0, -20);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: gpsched-actuator SOCKET_FD MEMORY_FD (started by gpsched daemon)\n");
		return 2;
	}
	link_fd = atoi(argv[1]);
	actuator.shared = map_shared(atoi(argv[2]));
	for_each_slot(&actuator, s) s->fd = -1;
	for_each_gpu(&actuator, u)
	{
		u->actuator = &actuator;
		u->index = (unsigned)(u - actuator.gpus);
	}
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (epoll_fd < 0 || timer_fd < 0 || watch(link_fd, FROM_LINK) || watch(timer_fd, FROM_TIMER) ||
	    watch(signal_descriptor(), FROM_SIGNAL))
		fail("cannot start");
	be_prompt();
	loop();
	return stop();
}
