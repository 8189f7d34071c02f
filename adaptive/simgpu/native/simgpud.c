/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedded GPU's server: nvidiactl by FUSE, a socket for the simulated libcuda, the engine by the clock.
 *
 * One thread, no spinning: it sleeps until a packet, an ioctl or the engine's next event. The engine runs in virtual
 * time (CLOCK_MONOTONIC / scale) and computes exact times however late this thread wakes.
 *
 * Usage: simgpud DIRECTORY GPUS SCALE     (ends at SIGTERM, SIGINT or when its standard input closes)
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 35
#include "simgpud.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define HOLD_POLL_NS 10000    /* virtual: how often the flag of a running hold kernel is read */
#define HOLD_POLL_FLOOR 30000 /* real ns: never more often than this */

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t server_now(const struct server *server)
{
	return (uint64_t)((double)clock_ns() / server->scale);
}

void watch(struct server *server, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int listen_on(const char *directory)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", directory, SIM_SOCKET);

	if (length >= (int)sizeof(address.sun_path)) {
		fprintf(stderr, "simgpud: %s: the path is too long for a socket; use a shorter directory\n", directory);
		return -1;
	}
	unlink(address.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 64)) {
		fprintf(stderr, "simgpud: cannot listen on %s: %s\n", address.sun_path, strerror(errno));
		return -1;
	}
	chmod(address.sun_path, 0666);
	return fd;
}

/* A server that was killed leaves a mount that answers ENOTCONN. */
static bool clean_mount_point(const char *path)
{
	struct stat st;

	if (stat(path, &st) && errno == ENOTCONN)
		umount2(path, MNT_DETACH);
	return !mkdir(path, 0755) || errno == EEXIST;
}

static void arm_timer(struct server *server, uint64_t when)
{
	struct itimerspec spec = {0};

	if (when != ENGINE_NEVER) {
		/* One ns late at most, never early: an early wake would find nothing to do. */
		uint64_t real = (uint64_t)((double)when * server->scale) + (uint64_t)server->scale + 1;

		spec.it_value.tv_sec = (time_t)(real / 1000000000ull);
		spec.it_value.tv_nsec = (long)(real % 1000000000ull);
	}
	timerfd_settime(server->timer, TFD_TIMER_ABSTIME, &spec, NULL);
}

static uint64_t next_wake(struct server *server, uint64_t now, uint64_t reply)
{
	uint64_t next = engine_next(server->engine);
	uint64_t poll = HOLD_POLL_NS;

	if (poll * server->scale < HOLD_POLL_FLOOR)
		poll = (uint64_t)(HOLD_POLL_FLOOR / server->scale);
	if (reply < next)
		next = reply;
	if (engine_poll_holds(server->engine) && now + poll < next)
		next = now + poll;
	uint64_t after = engine_next(server->engine);
	return after < next ? after : next;
}

/* Everything that is due, in virtual order: packets by their own times, then the engine, then ioctls. */
static void serve(struct server *server, struct fuse_session *fuse)
{
	uint64_t now = server_now(server);

	sessions_read(server, now);
	engine_advance(server->engine, now);
	device_read(server, fuse);
	uint64_t reply = device_reply_due(server, now);
	arm_timer(server, next_wake(server, now, reply));
}

static void loop(struct server *server, struct fuse_session *fuse, int signals)
{
	struct epoll_event events[32];
	uint64_t expirations;

	while (!fuse_session_exited(fuse)) {
		int n = epoll_wait(server->epoll, events, 32, -1);

		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;

			if (fd == signals || (fd == STDIN_FILENO && events[i].events & (EPOLLHUP | EPOLLERR)))
				return;
			if (fd == STDIN_FILENO && read(fd, &expirations, sizeof(expirations)) <= 0)
				return;
			if (fd == server->timer && read(fd, &expirations, sizeof(expirations)) < 0)
				continue;
			if (fd == server->listener)
				session_accept(server);
		}
		serve(server, fuse);
	}
}

static int watch_signals(struct server *server)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	int fd = signalfd(-1, &set, SFD_CLOEXEC);
	watch(server, fd);
	return fd;
}

static bool setup(struct server *server)
{
	struct engine_callbacks callbacks = {server, session_done, session_released, session_stream_gone};

	server->engine = engine_new(server->gpus, NULL, &callbacks);
	server->owners = calloc(ENGINE_MAX_STREAMS, sizeof(*server->owners));
	server->rm = server->engine ? rm_new(server->engine, server->gpus) : NULL;
	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	server->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	server->listener = listen_on(server->directory);
	if (!server->rm || !server->owners || server->listener < 0)
		return false;
	watch(server, server->timer);
	watch(server, server->listener);
	watch(server, STDIN_FILENO);
	engine_advance(server->engine, server_now(server));
	return true;
}

int main(int argc, char **argv)
{
	struct server server = {0};
	char mount_point[4096];

	if (argc != 4 || (server.gpus = atoi(argv[2])) < 1 || (server.scale = atof(argv[3])) <= 0) {
		fprintf(stderr, "usage: simgpud DIRECTORY GPUS SCALE\n");
		return 2;
	}
	server.directory = argv[1];
	snprintf(mount_point, sizeof(mount_point), "%s/dev", argv[1]);
	if (!clean_mount_point(mount_point)) {
		fprintf(stderr, "simgpud: cannot create %s: %s\n", mount_point, strerror(errno));
		return 1;
	}
	if (!setup(&server))
		return 1;
	int signals = watch_signals(&server);
	struct fuse_session *fuse = device_mount(&server, mount_point);
	if (!fuse)
		return 1;
	watch(&server, fuse_session_fd(fuse));
	printf("READY\n");
	fflush(stdout);
	loop(&server, fuse, signals);
	sessions_close(&server);
	device_unmount(fuse);
	rm_free(server.rm);
	engine_free(server.engine);
	free(server.owners);
	return 0;
}
