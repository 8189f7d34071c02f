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
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "actuator.h"
#include "link.h"

#define EVENTS_AT_ONCE 256 /* then timers and messages have their turn, even in a storm */
#define MESSAGES_AT_ONCE 64
#define STOP_LIMIT_NS 2000000000ull
#define REALTIME_PRIORITY 10
#define SHORTEST_SLICE_NS 100000

/* What epoll reports: the index of a slot, or one of these. */
enum { FROM_LINK = GA_MAX_SLOTS, FROM_TIMER, FROM_SIGNAL, FROM_RING };

static struct actuator actuator = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .idle = PTHREAD_COND_INITIALIZER,
    .threads = 1,
};
static struct ring_buffer *ring;
static int epoll_fd, link_fd, timer_fd, signal_fd;
static unsigned events_left;
static __u64 armed = NEVER; /* what the timer is set to */

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

/* False when the daemon is gone. */
static bool receive_messages(void)
{
	struct ga_message message;
	int fd;

	for (int i = 0; i < MESSAGES_AT_ONCE; i++) {
		int got = link_receive(link_fd, &message, &fd);

		if (got <= 0)
			return !got;
		handle(&message, fd);
	}
	return true;
}

/* From here on only workers matter: nothing is reserved any more, no turn counts. */
static void stop(struct actuator *a)
{
	__u64 now = now_ns();

	if (a->stopping)
		return;
	a->stopping = true;
	a->stop_by = now + STOP_LIMIT_NS;
	unwatch(link_fd);
	unwatch(signal_fd);
	for_each_plan(a, p)
	{
		if (!p->used)
			continue;
		burst_end(a, p, GA_END_WITHDRAWN, now);
		hold_leave(p);
	}
}

static void dispatch(struct actuator *a, __u64 from)
{
	__u64 expirations;

	switch (from) {
	case FROM_LINK:
		if (!receive_messages())
			stop(a);
		break;
	case FROM_RING:
		events_left = EVENTS_AT_ONCE;
		ring_buffer__consume(ring);
		break;
	case FROM_TIMER:
		(void)!read(timer_fd, &expirations, sizeof(expirations));
		armed = NEVER;
		break;
	case FROM_SIGNAL:
		stop(a);
		break;
	default: /* the slot may have been closed in the same round */
		if (a->slots[from].kind == GA_SLOT_PIDFD)
			process_exited(a, a->slots[from].pid, now_ns());
	}
}

static __u64 next_deadline(const struct actuator *a)
{
	__u64 next = a->stopping ? a->stop_by : NEVER, now = now_ns();

	if (is_finished(a))
		return 1; /* at once: the leader sleeps, and another thread did the last of it */
	for_each_plan(a, p) if (p->used) next = earlier(next, burst_deadline(p, now));
	for_each_gpu(a, u)
	{
		if (!u->known)
			continue;
		if (!a->stopping)
			next = earlier(next, earlier(turns_deadline(u), u->break_at));
		if (!u->busy && !a->called) /* else its thread looks again by itself */
			next = earlier(next, next_retry(a, u->index));
	}
	return next;
}

void rearm(struct actuator *a)
{
	__u64 next = next_deadline(a);
	struct itimerspec timer = {0};

	if (next == armed)
		return;
	armed = next;
	if (next != NEVER) {
		timer.it_value.tv_sec = (time_t)(next / 1000000000);
		timer.it_value.tv_nsec = (long)(next % 1000000000) + !next; /* 0 would disarm */
	}
	timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

/* Stays awake until a reservation that is to begin at once does. */
static __u64 watch_out(struct actuator *a)
{
	__u64 now = now_ns(), until = burst_imminent(a, now);

	if (until == now)
		return now;
	pthread_mutex_unlock(&a->lock);
	while (now < until)
		now = now_ns();
	pthread_mutex_lock(&a->lock);
	return now;
}

/* Called with the lock, which is given up only while waiting. */
void lead(struct actuator *a)
{
	struct epoll_event ready[16];
	__u64 now;
	int count;

	a->led = true;
	awake_stay(a);
	rearm(a);
	pthread_mutex_unlock(&a->lock);
	count = epoll_wait(epoll_fd, ready, 16, -1);
	pthread_mutex_lock(&a->lock);
	for (int i = 0; i < count; i++)
		dispatch(a, ready[i].data.u64);
	now = watch_out(a);
	a->led = false;
	burst_tick(a, now);
	for_each_gpu(a, u)
	{
		if (!u->known || a->stopping)
			continue;
		turns_tick(u, now);
		breaks_tick(u, now);
	}
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

/* As for sched_setattr(2), which the C library does not know everywhere. */
struct first_attributes {
	__u32 size, policy;
	__u64 flags;
	__s32 nice;
	__u32 priority;
	__u64 runtime, deadline, period;
};

/*
 * Real time where allowed: all threads sleep nearly always, and must run at once when an event comes. Else the least
 * nice, and with the shortest slices, which since Linux 6.12 means that others keep none of theirs when we wake: true
 * if so, and with real time.
 */
static bool be_prompt(void)
{
	struct sched_param priority = {.sched_priority = REALTIME_PRIORITY};
	struct first_attributes first = {.size = sizeof(first), .nice = -20, .runtime = SHORTEST_SLICE_NS}, got = {0};

	if (!sched_setscheduler(0, SCHED_FIFO, &priority))
		return true;
	if (syscall(SYS_sched_setattr, 0, &first, 0))
		(void)!setpriority(PRIO_PROCESS, 0, -20);
	return !syscall(SYS_sched_getattr, 0, &got, sizeof(got), 0) && got.nice == first.nice &&
	       got.runtime == SHORTEST_SLICE_NS;
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
	signal_fd = signal_descriptor();
	if (epoll_fd < 0 || timer_fd < 0 || watch(link_fd, FROM_LINK) || watch(timer_fd, FROM_TIMER) ||
	    watch(signal_fd, FROM_SIGNAL))
		fail("cannot start");
	awake_begin(&actuator, be_prompt());
	return serve(&actuator) ? 0 : 1;
}
