/* SPDX-License-Identifier: Apache-2.0
 *
 * Comes back from waiting in the way that its argument names, once for each line on its standard input.
 * Prints "FD TID" for each (0 where there is no descriptor, tenths of ns for time_*). The lines come from a pipe.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../adaptive/hints/include/gpsched_hint.h"

static char buffer[4096];
static uint32_t word;
static int pair[2]; /* socket pair: [0] is read */
static int duct[2]; /* pipe */
static int counter, timer, epoll, listener;
static struct sockaddr_in address;
static const struct timespec soon = {.tv_nsec = 2000000};

static void fill(int fd, int size)
{
	if (write(fd, buffer, size) != size)
		abort();
}

static int read_socket(void)
{
	fill(pair[1], 300);
	return read(pair[0], buffer, 300) == 300 ? pair[0] : -1;
}

static int readv_socket(void)
{
	struct iovec parts[2] = {{buffer, 100}, {buffer + 100, 200}};

	fill(pair[1], 300);
	return readv(pair[0], parts, 2) == 300 ? pair[0] : -1;
}

static int recv_socket(void)
{
	fill(pair[1], 300);
	return recv(pair[0], buffer, 300, 0) == 300 ? pair[0] : -1;
}

static int recvmsg_socket(void)
{
	struct iovec part = {buffer, 300};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	fill(pair[1], 300);
	return recvmsg(pair[0], &message, 0) == 300 ? pair[0] : -1;
}

static int recvmmsg_socket(void)
{
	struct iovec part = {buffer, 300};
	struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};

	fill(pair[1], 300);
	return recvmmsg(pair[0], &message, 1, 0, NULL) == 1 ? pair[0] : -1;
}

static int read_pipe(void)
{
	fill(duct[1], 77);
	return read(duct[0], buffer, 77) == 77 ? duct[0] : -1;
}

static int read_eventfd(void)
{
	return eventfd_write(counter, 3) || read(counter, buffer, 8) != 8 ? -1 : counter;
}

static int read_timerfd(void)
{
	struct itimerspec once = {.it_value = soon};

	return timerfd_settime(timer, 0, &once, NULL) || read(timer, buffer, 8) != 8 ? -1 : timer;
}

static int do_accept(bool four)
{
	int client = socket(AF_INET, SOCK_STREAM, 0);
	int made, failed = connect(client, (struct sockaddr *)&address, sizeof(address));

	made = four ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : accept(listener, NULL, NULL);
	close(made);
	close(client);
	return failed || made < 0 ? -1 : listener;
}

static int accept_plain(void)
{
	return do_accept(false);
}

static int accept_four(void)
{
	return do_accept(true);
}

static int wait_epoll(void)
{
	struct epoll_event ready;

	eventfd_write(counter, 1);
	return epoll_wait(epoll, &ready, 1, -1) == 1 ? epoll : -1;
}

static int wait_epoll_pwait2(void)
{
	struct epoll_event ready;

	eventfd_write(counter, 1);
	return epoll_pwait2(epoll, &ready, 1, &soon, NULL) == 1 ? epoll : -1;
}

static int time_out_epoll(void)
{
	struct epoll_event ready;

	eventfd_write(counter, 1);
	if (read(counter, buffer, 8) != 8)
		return -1;
	return epoll_wait(epoll, &ready, 1, 2) == 0 ? epoll : -1;
}

static int look_at_epoll(void)
{
	struct epoll_event ready;

	return epoll_wait(epoll, &ready, 1, 0) == 0 ? epoll : -1;
}

static int wait_poll(void)
{
	struct pollfd one = {.fd = duct[1], .events = POLLOUT};

	return poll(&one, 1, -1) == 1 ? 0 : -1;
}

static int wait_ppoll(void)
{
	struct pollfd one = {.fd = duct[1], .events = POLLOUT};

	return ppoll(&one, 1, NULL, NULL) == 1 ? 0 : -1;
}

static int time_out_poll(void)
{
	return poll(NULL, 0, 2) == 0 ? 0 : -1;
}

static int wait_select(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(duct[1], &set);
	return select(duct[1] + 1, NULL, &set, NULL, NULL) == 1 ? 0 : -1;
}

static int sleep_nano(void)
{
	return syscall(SYS_nanosleep, &soon, NULL);
}

static int sleep_clock(void)
{
	return clock_nanosleep(CLOCK_MONOTONIC, 0, &soon, NULL) ? -1 : 0;
}

static void *wake_up(void *unused)
{
	(void)unused;
	nanosleep(&soon, NULL);
	while (syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) != 1)
		nanosleep(&soon, NULL);
	return NULL;
}

static int wait_futex(void)
{
	pthread_t other;
	long result;

	pthread_create(&other, NULL, wake_up, NULL);
	result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	while (pthread_tryjoin_np(other, NULL)) /* pthread_join waits on a futex itself */
		sched_yield();
	return result ? -1 : 0;
}

static int time_out_futex(void)
{
	return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &soon, NULL, 0) < 0 && errno == ETIMEDOUT ? 0 : -1;
}

/* A descriptor number that was a pipe becomes a socket, then a file. */
static int reuse(void)
{
	int number = dup(duct[0]);

	fill(duct[1], 5);
	if (read(number, buffer, 5) != 5 || dup2(pair[0], number) != number)
		return -1;
	fill(pair[1], 6);
	if (read(number, buffer, 6) != 6)
		return -1;
	close(number);
	FILE *file = fopen("/proc/self/exe", "r");

	if (fileno(file) != number || read(number, buffer, 7) != 7)
		return -1;
	fclose(file);
	return number;
}

static int storm(void)
{
	for (int i = 0; i < 10000; i++)
		read_eventfd();
	return counter;
}

#include "waker_costs.h"

static int crowd(void)
{
	for (int i = 0; i < 100; i++)
		time_out_futex();
	return 0;
}

static int hint(void)
{
	gpsched_reserve_now();
	gpsched_reserve_in(800);
	gpsched_cancel();
	return 0;
}

static int hint_storm(void)
{
	for (int i = 0; i < 5000; i++)
		gpsched_reserve_in(i);
	return 0;
}

static int read_file(void)
{
	FILE *file = fopen("/proc/self/exe", "r"), *zero = fopen("/dev/zero", "r");

	if (read(fileno(file), buffer, 100) != 100 || read(fileno(zero), buffer, 100) != 100)
		return -1;
	fclose(file);
	fclose(zero);
	return 0;
}

static int nothing_there(void)
{
	return recv(pair[0], buffer, 300, MSG_DONTWAIT) < 0 && errno == EAGAIN ? pair[0] : -1;
}

static int at_end(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || close(ends[1]) || read(ends[0], buffer, 1) != 0)
		return -1;
	close(ends[0]);
	return 0;
}

static const struct {
	const char *name;
	int (*act)(void);
} acts[] = {
    {"read", read_socket},
    {"readv", readv_socket},
    {"recv", recv_socket},
    {"recvmsg", recvmsg_socket},
    {"recvmmsg", recvmmsg_socket},
    {"pipe", read_pipe},
    {"eventfd", read_eventfd},
    {"timerfd", read_timerfd},
    {"accept", accept_plain},
    {"accept4", accept_four},
    {"epoll", wait_epoll},
    {"epoll_pwait2", wait_epoll_pwait2},
    {"epoll_timeout", time_out_epoll},
    {"epoll_look", look_at_epoll},
    {"poll", wait_poll},
    {"ppoll", wait_ppoll},
    {"poll_timeout", time_out_poll},
    {"select", wait_select},
    {"nanosleep", sleep_nano},
    {"clock_nanosleep", sleep_clock},
    {"futex", wait_futex},
    {"futex_timeout", time_out_futex},
    {"reuse", reuse},
    {"storm", storm},
    {"crowd", crowd},
    {"time_read", time_read},
    {"time_other", time_other},
    {"time_counter", time_counter},
    {"time_sent", time_sent},
    {"time_woken", time_woken},
    {"hint", hint},
    {"hint_storm", hint_storm},
    {"file", read_file},
    {"nothing", nothing_there},
    {"end", at_end},
};

static void set_up(void)
{
	socklen_t size = sizeof(address);
	struct epoll_event in = {.events = EPOLLIN};

	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	counter = eventfd(0, 0);
	timer = timerfd_create(CLOCK_MONOTONIC, 0);
	epoll = epoll_create1(0);
	if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 8) ||
	    getsockname(listener, (struct sockaddr *)&address, &size) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
	    pipe(duct) || epoll_ctl(epoll, EPOLL_CTL_ADD, counter, &in))
		abort();
}

static int act(const char *name)
{
	for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++)
		if (!strcmp(acts[i].name, name))
			return acts[i].act();
	return -2;
}

/* In a thread, so that a thread's id is not the process's. */
static void *serve(void *unused)
{
	char line[64];

	(void)unused;
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		printf("%d %ld\n", act(line), syscall(SYS_gettid));
		fflush(stdout);
	}
	_exit(0);
}

int main(void)
{
	pthread_t thread;

	setvbuf(stdin, NULL, _IONBF, 0);
	set_up();
	puts("ready");
	fflush(stdout); /* before the thread, or they wait for each other's locks: futex wakes that nobody asked for */
	pthread_create(&thread, NULL, serve, NULL);
	for (;;)
		pause();
}
