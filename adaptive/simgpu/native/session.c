/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that use the simulated libcuda: their packets, their streams, their completions. */
#define _GNU_SOURCE
#include "simgpud.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define LONGEST (1ull << 38) /* ns of a kernel, bytes of a copy */
#define BATCH 64	     /* packets taken in one round */

struct packet {
	struct session *session;
	uint64_t arrival; /* keeps the order of equal times */
	struct sim_message message;
};

void session_accept(struct server *server)
{
	struct ucred credentials;
	socklen_t size = sizeof(credentials);
	int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	struct session *session = calloc(1, sizeof(*session));
	if (!session || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size)) {
		close(fd);
		free(session);
		return;
	}
	session->server = server;
	session->socket = fd;
	session->pid = credentials.pid;
	for (int i = 0; i < SIM_STREAMS; i++)
		session->stream[i].engine_stream = -1;
	session->next = server->sessions;
	server->sessions = session;
	watch(server, fd);
}

static void wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void announce(struct session *session, uint32_t id, uint32_t done)
{
	struct sim_stream_state *state = &session->shared->stream[id];

	atomic_store(&state->done, done);
	if (atomic_load(&state->waiters))
		wake(&state->done);
}

static void stream_close(struct session *session, uint32_t id)
{
	if (id >= SIM_STREAMS || session->stream[id].engine_stream < 0)
		return;
	engine_stream_free(session->server->engine, session->stream[id].engine_stream);
}

void session_stream_gone(void *user, int stream)
{
	struct session_stream_owner *owner = &((struct server *)user)->owners[stream];

	if (!owner->session)
		return;
	struct session_stream *s = &owner->session->stream[owner->id];
	s->engine_stream = -1;
	announce(owner->session, owner->id, s->base + s->submitted);
	owner->session = NULL;
}

static void session_free(struct session *session)
{
	for (uint32_t i = 0; i < SIM_STREAMS; i++)
		stream_close(session, i);
	if (session->shared)
		munmap(session->shared, sizeof(*session->shared));
	close(session->socket);
	free(session);
}

/* Memory that cannot shrink under us, of the right size. */
static void session_hello(struct session *session, int fd)
{
	struct stat st;
	bool sealed = fd >= 0 && fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK;

	if (session->shared || !sealed || fstat(fd, &st) || st.st_size < (off_t)sizeof(*session->shared))
		return;
	void *memory = mmap(NULL, sizeof(*session->shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory != MAP_FAILED)
		session->shared = memory;
}

static void stream_open(struct session *session, const struct sim_message *m)
{
	struct server *server = session->server;
	int group, channel;

	if (m->id >= SIM_STREAMS || !session->shared)
		return;
	stream_close(session, m->id);
	if (!rm_find_channel(server->rm, session->pid, m->client, m->handle, &group, &channel))
		return;
	int stream = engine_stream_new(server->engine, group, channel);
	session->stream[m->id] = (struct session_stream){stream, group, m->base, 0};
	if (stream >= 0)
		server->owners[stream] = (struct session_stream_owner){session, m->id};
}

/* From the process's numbers to the engine's. */
static void translate_wait(const struct session *session, struct sim_op *op)
{
	const struct session_stream *on = op->value < SIM_STREAMS ? &session->stream[op->value] : NULL;

	op->value = on ? (uint64_t)on->engine_stream : UINT64_MAX;
	if (on)
		op->arg = (uint32_t)((uint32_t)op->arg - on->base);
}

static void submit(struct session *session, const struct sim_message *m)
{
	struct engine *engine = session->server->engine;
	if (m->id >= SIM_STREAMS || !session->shared)
		return;
	struct session_stream *s = &session->stream[m->id];
	for (uint32_t i = 0; i < m->count; i++) {
		struct sim_op op = m->ops[i];

		if (op.kind == OP_WAIT)
			translate_wait(session, &op);
		if ((op.kind == OP_KERNEL || op.kind == OP_COPY) && op.arg > LONGEST)
			op.arg = LONGEST;
		s->submitted++;
		if (s->engine_stream >= 0)
			engine_submit(engine, s->engine_stream, op.kind <= OP_MARK ? op.kind : OP_MARK, op.arg,
				      op.value);
	}
	if (s->engine_stream >= 0)
		return;
	/* Nobody may wait for a stream that is not there. */
	atomic_store(&session->shared->stream[m->id].failed, 1);
	announce(session, m->id, s->base + s->submitted);
}

static void handle(struct session *session, const struct sim_message *m)
{
	switch (m->type) {
	case SIM_STREAM_OPEN:
		stream_open(session, m);
		break;
	case SIM_STREAM_CLOSE:
		stream_close(session, m->id);
		break;
	case SIM_SUBMIT:
		submit(session, m);
		break;
	case SIM_STATS:
		stats_send(session->server, session->socket);
		break;
	default:
		break;
	}
}

static int take_descriptor(struct msghdr *header)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(header);
	int fd = -1;

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

/* One packet; false when there is none (or the process is gone). */
static bool receive(struct session *session, struct packet *packet)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {&packet->message, sizeof(packet->message)};
	struct msghdr header = {
	    .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(session->socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n <= 0) {
		session->dead |= n == 0 || (errno != EAGAIN && errno != EINTR);
		return false;
	}
	int fd = take_descriptor(&header);
	struct sim_message *m = &packet->message;
	if ((size_t)n < offsetof(struct sim_message, ops) ||
	    (m->type == SIM_SUBMIT && (m->count > SIM_OPS || (size_t)n < SIM_MESSAGE_SIZE(m->count))))
		session->dead = true;
	else if (m->type == SIM_HELLO)
		session_hello(session, fd);
	if (fd >= 0)
		close(fd);
	packet->session = session;
	return true;
}

static int by_time(const void *a, const void *b)
{
	const struct packet *const *x = a, *const *y = b;
	uint64_t s = (*x)->message.time_ns, t = (*y)->message.time_ns;

	if (s != t)
		return s < t ? -1 : 1;
	return (*x)->arrival < (*y)->arrival ? -1 : 1;
}

static void reap(struct server *server)
{
	struct session **link = &server->sessions;

	while (*link) {
		struct session *session = *link;

		if (session->dead) {
			*link = session->next;
			session_free(session);
		} else {
			link = &session->next;
		}
	}
}

static void apply(struct server *server, struct packet **order, int count, uint64_t now)
{
	qsort(order, (size_t)count, sizeof(order[0]), by_time);
	for (int i = 0; i < count; i++) {
		uint64_t time = order[i]->message.time_ns;

		if (!order[i]->session->dead) {
			engine_advance(server->engine, time < now ? time : now);
			handle(order[i]->session, &order[i]->message);
		}
	}
}

/* Takes what every process has sent, in the order of their own timestamps: the virtual order is exact. */
void sessions_read(struct server *server, uint64_t now)
{
	static struct packet packets[BATCH];
	struct packet *order[BATCH];
	int count;

	do {
		count = 0;
		for (struct session *s = server->sessions; s; s = s->next)
			while (count < BATCH && !s->dead && receive(s, &packets[count])) {
				packets[count].arrival = (uint64_t)count;
				order[count] = &packets[count];
				count++;
			}
		apply(server, order, count, now);
	} while (count == BATCH);
	reap(server);
}

/* A stream's write, or the flag that a hold kernel raises itself when its time is up. */
static void write_value(const struct session *session, const struct engine_done *done)
{
	uint32_t value = (uint32_t)done->value;
	struct iovec local = {&value, sizeof(value)}, remote = {(void *)(uintptr_t)done->arg, sizeof(value)};

	process_vm_writev(session->pid, &local, 1, &remote, 1, 0);
}

void session_done(void *user, const struct engine_done *done)
{
	struct server *server = user;
	struct session *session = server->owners[done->stream].session;

	if (!session)
		return;
	uint32_t id = server->owners[done->stream].id;

	if (done->kind == OP_KERNEL)
		session->launch[session->launches++ % LAUNCHES] =
		    (struct launch){done->submit, done->start, done->finish};
	if (done->kind == OP_MARK && done->arg < SIM_EVENTS)
		atomic_store(&session->shared->event_ns[done->arg], done->finish);
	bool gave_up = done->kind == OP_HOLD && done->value >> 32 &&
		       !session_released(user, session->pid, done->arg, (uint32_t)done->value);
	if (done->kind == OP_WRITE || gave_up)
		write_value(session, done);
	announce(session, id, session->stream[id].base + (uint32_t)done->seq);
}

int session_released(void *user, int owner, uint64_t flag, uint32_t seq)
{
	uint32_t value = 0;
	struct iovec local = {&value, sizeof(value)}, remote = {(void *)(uintptr_t)flag, sizeof(value)};

	(void)user;
	/* A process that is gone or an address that is not its own: nothing to hold for. */
	if (process_vm_readv(owner, &local, 1, &remote, 1, 0) != sizeof(value))
		return 1;
	return (int32_t)(value - seq) >= 0;
}

void sessions_close(struct server *server)
{
	for (struct session *s = server->sessions; s; s = s->next)
		s->dead = true;
	reap(server);
}
