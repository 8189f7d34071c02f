/* SPDX-License-Identifier: Apache-2.0 */
/* What the embedded GPU did, by its own clock, as one JSON packet. */
#include "simgpud.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void print_launches(FILE *out, const struct session *s)
{
	uint64_t first = s->launches > LAUNCHES ? s->launches - LAUNCHES : 0;

	fprintf(out, "\"launches\":[");
	for (uint64_t i = first; i < s->launches; i++) {
		const struct launch *l = &s->launch[i % LAUNCHES];

		fprintf(out, "%s[%.3f,%.3f,%.3f]", i > first ? "," : "", (double)l->submit / 1e3,
			(double)l->start / 1e3, (double)l->finish / 1e3);
	}
	fprintf(out, "]");
}

static void print_session(FILE *out, const struct session *s)
{
	struct engine_stats sum = {0};
	bool seen[ENGINE_MAX_GROUPS] = {false};

	for (int i = 0; i < SIM_STREAMS; i++) {
		struct engine_stats one;
		int group = s->stream[i].engine_stream >= 0 ? s->stream[i].group : -1;

		if (group < 0 || seen[group])
			continue;
		seen[group] = true;
		engine_group_stats(s->server->engine, group, &one);
		sum.gpu_ns += one.gpu_ns;
		sum.kernels += one.kernels;
		sum.switches += one.switches;
	}
	fprintf(out, "{\"pid\":%d,\"gpu_us\":%.3f,\"kernels\":%llu,\"switches\":%llu,", (int)s->pid,
		(double)sum.gpu_ns / 1e3, (unsigned long long)sum.kernels, (unsigned long long)sum.switches);
	print_launches(out, s);
	fprintf(out, "}");
}

void stats_send(struct server *server, int socket)
{
	char *text = NULL;
	size_t size = 0;
	const char *separator = "";
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return;
	fprintf(out, "{\"now_us\":%.3f,\"scale\":%g,\"gpus\":%d,\"processes\":[",
		(double)engine_now(server->engine) / 1e3, server->scale, server->gpus);
	for (struct session *s = server->sessions; s; s = s->next) {
		if (!s->shared)
			continue;
		fputs(separator, out);
		print_session(out, s);
		separator = ",";
	}
	fprintf(out, "]}");
	fclose(out);
	send(socket, text, size, MSG_NOSIGNAL | MSG_DONTWAIT);
	free(text);
}
