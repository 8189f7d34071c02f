/* SPDX-License-Identifier: Apache-2.0 */
#include "loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "commands.h"
#include "exit_codes.h"
#include "options.h"
#include "wire.h"

/* A service that does not answer for this long (real time) is lost; gpsched never holds one back for a second. */
#define REPLY_TIMEOUT_MS 30000

#define BURST_REQUESTS 5  /* a bursty arrival process sends this many... */
#define BURST_SPACING 0.1 /* ... this share of the mean period apart */
#define MAX_REQUESTS 1000000
#define PATIENCE_US 1e6 /* beyond twice the planned time */

const char *const arrival_names[] = {"constant", "poisson", "bursty", "jitter", NULL, NULL};

struct sample {
	double due, sent, latency, server, gpu;
};

/* Connection i carries request busy[i], or none (-1). */
static struct pollfd sockets[MAX_CONNECTIONS];
static long busy[MAX_CONNECTIONS];
static int connections;
static bool over_http;

static __attribute__((noreturn)) void lost(const char *why)
{
	fprintf(stderr, "load generator: %s; see the service's own messages\n", why);
	exit(EXIT_LOAD);
}

void loadgen_connect(int port, int count, bool http)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int yes = 1;

	over_http = http;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (connections = 0; connections < count; connections++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
			lost("cannot connect to the service");
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
		sockets[connections] = (struct pollfd){.fd = fd, .events = POLLIN};
		busy[connections] = -1;
	}
}

static double exponential(unsigned short state[3])
{
	return -log(1.0 - erand48(state));
}

/* Periods between two arrivals, in units of the mean period. All processes have mean 1. */
static double next_gap(enum arrival arrival, long index, unsigned short state[3])
{
	const double pause = BURST_REQUESTS - (BURST_REQUESTS - 1) * BURST_SPACING;

	switch (arrival) {
	case ARRIVAL_POISSON:
		return exponential(state);
	case ARRIVAL_BURSTY:
		return index % BURST_REQUESTS ? BURST_SPACING : pause * exponential(state);
	case ARRIVAL_JITTER:
		return 0.5 + erand48(state);
	case ARRIVAL_CONSTANT:
	case ARRIVAL_TRACE:
		break;
	}
	return 1.0;
}

/* When the first period begins: now, or at the next point of a grid that all programs share. */
static double first_period_us(const struct load *load)
{
	double now = clock_now_us(), period = 1e6 / load->rate, start;

	if (load->arrival != ARRIVAL_CONSTANT || load->phase < 0)
		return now;
	start = (floor(now / period) + load->phase) * period;
	return start < now ? start + period : start;
}

static struct sample *schedule(const struct load *load)
{
	struct sample *samples = calloc((size_t)load->requests, sizeof(*samples));
	unsigned short state[3] = {0x330e, (unsigned short)load->seed, (unsigned short)(load->seed >> 16)};
	double due = first_period_us(load);

	if (!samples)
		lost("no memory for the samples");
	for (long i = 0; i < load->requests; i++) {
		due += next_gap(load->arrival, i, state) * 1e6 / load->rate;
		samples[i].due = due;
	}
	return samples;
}

/* Arrival times of `file`, from now on. Returns NULL when it holds none, or anything but rising numbers. */
static struct sample *schedule_trace(const char *name, long *requests)
{
	FILE *file = fopen(name, "r");
	struct sample *samples = NULL;
	double start = clock_now_us(), us = 0, last = 0;
	long count = 0, room = 0;
	int got = EOF;

	while (file && (got = fscanf(file, "%lf", &us)) == 1 && us >= last && count < MAX_REQUESTS) {
		if (count == room && !(samples = realloc(samples, (size_t)(room += 1024) * sizeof(*samples))))
			lost("no memory for the samples");
		samples[count++] = (struct sample){.due = start + us};
		last = us;
	}
	if (file)
		fclose(file);
	*requests = count;
	if (got == EOF && count)
		return samples;
	free(samples);
	return NULL;
}

static bool send_on_free(struct sample *samples, long index)
{
	struct request request = {.sequence = (uint64_t)index};

	for (int i = 0; i < connections; i++) {
		if (busy[i] >= 0)
			continue;
		samples[index].sent = clock_now_us();
		if (!wire_send_request(sockets[i].fd, &request, over_http))
			lost("the service closed the connection");
		busy[i] = index;
		return true;
	}
	return false;
}

static void receive(struct sample *samples, int connection)
{
	struct reply reply;
	struct sample *sample = &samples[busy[connection]];

	if (!wire_receive_reply(sockets[connection].fd, &reply, over_http))
		lost("the service closed the connection, or answered in another language");
	if (reply.sequence != (uint64_t)busy[connection])
		lost("the service answered another request than the one sent");
	sample->latency = clock_now_us() - sample->sent;
	sample->server = reply.server_us;
	sample->gpu = reply.gpu_us;
	busy[connection] = -1;
}

/* Waits for replies, until program time `until_us` at most (0 = as long as a service may take). Returns the replies
 * got. */
static int await_replies(struct sample *samples, double until_us)
{
	struct timespec limit = {.tv_sec = REPLY_TIMEOUT_MS / 1000};
	int ready, got = 0;

	if (until_us > 0)
		limit = clock_real(until_us - clock_now_us());
	ready = ppoll(sockets, (nfds_t)connections, &limit, NULL);
	if (ready < 0)
		lost("interrupted");
	if (ready == 0 && until_us <= 0)
		lost("no reply for 30 s");
	for (int i = 0; i < connections; i++) {
		if (!sockets[i].revents)
			continue;
		if (busy[i] < 0)
			lost("the service closed the connection");
		receive(samples, i);
		got++;
	}
	return got;
}

/* When no more is sent to a service that falls behind: the load would never end. */
static double patience(const struct sample *samples, long requests)
{
	double last = samples[requests - 1].due;

	return last + (last - samples[0].due) + PATIENCE_US;
}

/* Returns how many were sent, and answered. */
static long send_all(struct sample *samples, long requests)
{
	double until = patience(samples, requests);
	long sent = 0, answered = 0;

	while (answered < requests) {
		bool due = sent < requests && clock_now_us() >= samples[sent].due;

		if (sent && sent < requests && clock_now_us() >= until) {
			requests = sent;
			continue;
		}

		if (due && send_on_free(samples, sent)) {
			sent++;
			continue;
		}
		/* Nothing to send now: the next arrival ends the wait, unless it could not be sent anyway. */
		answered += await_replies(samples, sent < requests && !due ? samples[sent].due : 0);
	}
	return requests;
}

static void print_array(const char *name, const struct sample *samples, long requests,
			double (*value)(const struct sample *))
{
	printf(",\"%s\":[", name);
	for (long i = 0; i < requests; i++)
		printf(i ? ",%.1f" : "%.1f", value(&samples[i]));
	printf("]");
}

static double latency(const struct sample *sample)
{
	return sample->latency;
}

static double scheduled(const struct sample *sample)
{
	return sample->sent + sample->latency - sample->due;
}

static double server(const struct sample *sample)
{
	return sample->server;
}

static double gpu(const struct sample *sample)
{
	return sample->gpu;
}

static int by_latency(const void *left, const void *right)
{
	double a = ((const struct sample *)left)->latency, b = ((const struct sample *)right)->latency;

	return (a > b) - (a < b);
}

/* Sorts the samples. */
static void print_summary(struct sample *samples, long requests)
{
	double sum = 0;

	qsort(samples, (size_t)requests, sizeof(*samples), by_latency);
	for (long i = 0; i < requests; i++)
		sum += samples[i].latency;
	printf(",\"mean_us\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}\n", sum / (double)requests,
	       samples[requests / 2].latency, samples[requests - 1 - requests / 100].latency,
	       samples[requests - 1].latency);
}

static void run(const struct load *load, struct sample *samples)
{
	double start = samples[0].due;
	long requests = send_all(samples, load->requests);

	printf("{\"event\":\"run\",\"requests\":%ld,\"rate\":%g,\"arrival\":\"%s\",\"seed\":%ld,\"start_us\":%.1f,"
	       "\"end_us\":%.1f",
	       requests, load->rate, load->arrival == ARRIVAL_TRACE ? "trace" : arrival_names[load->arrival],
	       load->seed, start, clock_now_us());
	print_array("latency_us", samples, requests, latency);
	print_array("scheduled_us", samples, requests, scheduled);
	print_array("server_us", samples, requests, server);
	print_array("gpu_us", samples, requests, gpu);
	print_summary(samples, requests);
	free(samples);
}

void loadgen_run(const struct load *load)
{
	run(load, schedule(load));
}

static int arrival_index(const char *name)
{
	for (int i = 0; arrival_names[i]; i++)
		if (!strcmp(name, arrival_names[i]))
			return i;
	return -1;
}

static bool obey_run(const char *line)
{
	struct load load = {.seed = 1, .phase = -1};
	char name[16] = "constant";
	int given = sscanf(line, "run %ld %lf %15s %ld %lf", &load.requests, &load.rate, name, &load.seed, &load.phase);
	int arrival = arrival_index(name);

	if (given < 2 || load.requests < 1 || load.requests > MAX_REQUESTS || !(load.rate > 0) || arrival < 0 ||
	    !(load.phase < 1))
		return false;
	load.arrival = (enum arrival)arrival;
	loadgen_run(&load);
	return true;
}

static bool obey_replay(const char *line)
{
	struct load load = {.arrival = ARRIVAL_TRACE};
	struct sample *samples;
	char file[COMMAND_BYTES];

	if (sscanf(line, "replay %255[^\n]", file) != 1 || !(samples = schedule_trace(file, &load.requests)))
		return false;
	load.rate = (double)load.requests * 1e6 / (samples[load.requests - 1].due - samples[0].due + 1);
	run(&load, samples);
	return true;
}

void loadgen_obey(void)
{
	char line[COMMAND_BYTES];
	int got;

	while ((got = command_read(line, -1)) >= 0) {
		if (got == 0)
			continue;
		if (!strcmp(line, "quit"))
			return;
		if (!obey_run(line) && !obey_replay(line))
			printf("{\"event\":\"error\",\"message\":\"expected: run REQUESTS RATE "
			       "[constant|poisson|bursty|jitter [SEED [PHASE]]], replay FILE, or quit\"}\n");
	}
}
