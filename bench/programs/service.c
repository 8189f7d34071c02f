/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "clock.h"
#include "exit_codes.h"

enum { OWNER, LISTENER, FIRST_CLIENT };

static volatile sig_atomic_t stopping;

static void stop(int signal_number)
{
	(void)signal_number;
	stopping = 1;
}

/* Blocks the signals that end the service but for the time it waits, so that none slips in just before waiting.
 * Returns the mask to wait with. */
static sigset_t catch_signals(void)
{
	struct sigaction action = {.sa_handler = stop};
	sigset_t caught, before;

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigemptyset(&caught);
	sigaddset(&caught, SIGTERM);
	sigaddset(&caught, SIGINT);
	sigprocmask(SIG_BLOCK, &caught, &before);
	return before;
}

int service_listen(int *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int yes = 1;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, MAX_CONNECTIONS) ||
	    getsockname(fd, (struct sockaddr *)&address, &size)) {
		fprintf(stderr, "cannot listen on 127.0.0.1:%d: %s; choose another --port\n", *port, strerror(errno));
		exit(EXIT_USAGE);
	}
	*port = ntohs(address.sin_port);
	return fd;
}

static void accept_client(int listener, struct pollfd *sockets, nfds_t *count)
{
	struct timeval limit = {.tv_sec = 1}; /* a client that sends half a request must not stop the others */
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	int yes = 1;

	if (fd < 0)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	sockets[(*count)++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* Returns 0 when the client is gone. */
static int serve_one(int fd, bool http, service_handler *handle, void *context)
{
	struct request request;
	struct reply reply = {0};

	if (!wire_receive_request(fd, &request, http))
		return 0;
	double received = clock_now_us();
	reply.sequence = request.sequence;
	handle(context, received, &reply);
	reply.server_us = clock_now_us() - received;
	return wire_send_reply(fd, &reply, http);
}

void service_run(int listener, int owner, bool http, service_handler *handle, void *context)
{
	struct pollfd sockets[FIRST_CLIENT + MAX_CONNECTIONS] = {
	    [OWNER] = {.fd = owner, .events = POLLIN},
	    [LISTENER] = {.fd = listener, .events = POLLIN},
	};
	nfds_t count = FIRST_CLIENT;
	sigset_t unblocked = catch_signals();

	while (!stopping) {
		/* The listener waits while there is no room for another connection. */
		sockets[LISTENER].fd = count < FIRST_CLIENT + MAX_CONNECTIONS ? listener : -1;
		if (ppoll(sockets, count, NULL, &unblocked) < 0)
			continue;
		if (sockets[OWNER].revents)
			return;
		for (nfds_t i = FIRST_CLIENT; i < count; i++) {
			if (!sockets[i].revents || serve_one(sockets[i].fd, http, handle, context))
				continue;
			close(sockets[i].fd);
			sockets[i--] = sockets[--count];
		}
		if (sockets[LISTENER].revents)
			accept_client(listener, sockets, &count);
	}
}
