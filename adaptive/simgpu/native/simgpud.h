/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by the server's files: simgpud.c (loop), device.c (nvidiactl by FUSE), session.c (processes), stats.c.
 */
#ifndef GPSCHED_SIMGPUD_H
#define GPSCHED_SIMGPUD_H

#include "engine.h"
#include "protocol.h"
#include "rm.h"

#include <stdbool.h>
#include <stdio.h>

#define LAUNCHES 256 /* remembered of each process */

struct launch {
	uint64_t submit, start, finish; /* virtual ns */
};

struct session_stream {
	int engine_stream; /* -1: closed */
	int group;
	uint32_t base; /* the client numbers the operations of all streams that ever had this id */
	uint32_t submitted;
};

/* A connected process. */
struct session {
	struct session *next;
	struct server *server;
	int socket;
	pid_t pid;
	struct sim_shared *shared;
	struct session_stream stream[SIM_STREAMS];
	struct launch launch[LAUNCHES];
	uint64_t launches;
	bool dead;
};

struct server {
	struct engine *engine;
	struct rm *rm;
	struct session *sessions;
	struct session_stream_owner {
		struct session *session;
		uint32_t id;
	} *owners; /* by engine stream */
	double scale;
	int gpus, epoll, timer, listener;
	const char *directory;
};

/* simgpud.c */
uint64_t server_now(const struct server *server);
void watch(struct server *server, int fd);

/* session.c */
void session_accept(struct server *server);
void sessions_read(struct server *server, uint64_t now);
void session_done(void *user, const struct engine_done *done);
int session_released(void *user, int owner, uint64_t flag, uint32_t seq);
void session_stream_gone(void *user, int stream);
void sessions_close(struct server *server);

/* device.c */
struct fuse_session *device_mount(struct server *server, const char *directory);
void device_read(struct server *server, struct fuse_session *fuse);
/* Answers every ioctl whose time has come; returns the time of the next one. */
uint64_t device_reply_due(struct server *server, uint64_t now);
void device_unmount(struct fuse_session *fuse);

/* stats.c */
void stats_send(struct server *server, int socket);

#endif
