/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into the actuator: answers its RM controls and writes each one down in a file that the test maps. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RM_CONTROL 0xc020462aul
#define ENTRIES 8192

struct entry {
	uint64_t begin_ns, end_ns, value;
	uint32_t client, object, command, size, status, count, channel, only_scheduling;
};

struct log {
	uint32_t cost_us;
	uint32_t fail_command; /* 0: every command */
	uint32_t fail_disable; /* 0: enabling fails, 1: disabling, else both */
	uint32_t fail_status;  /* NV_STATUS; above 0x10000: an errno */
	uint32_t fail_channel; /* only controls that name this channel; 0: any */
	uint32_t fail_count;   /* how many more times */
	uint32_t count, pad;
	struct entry entries[ENTRIES];
};

struct nvos54 {
	uint32_t client, object, command, flags;
	uint64_t parameters;
	uint32_t size, status;
};

struct disable {
	uint8_t disable, pad[3];
	uint32_t count;
	uint8_t only_scheduling, rewind, pad2[6];
	uint64_t event;
	uint32_t clients[64], channels[64];
};

static struct log *map_log(void)
{
	static struct log *log;
	int fd;

	if (log)
		return log;
	fd = open(getenv("FAKE_RM_LOG"), O_RDWR | O_CLOEXEC);
	log = mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return log;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int names_channel(const struct nvos54 *call, uint32_t channel)
{
	const struct disable *disable = (void *)call->parameters;

	if (!channel)
		return 1;
	for (uint32_t i = 0; call->size == sizeof(*disable) && i < disable->count; i++)
		if (disable->channels[i] == channel)
			return 1;
	return 0;
}

static uint32_t answer(struct log *log, const struct nvos54 *call)
{
	const struct disable *disable = (void *)call->parameters;
	int is_disable = call->size == sizeof(*disable);

	if (!log->fail_count || (log->fail_command && log->fail_command != call->command) ||
	    !names_channel(call, log->fail_channel) ||
	    (is_disable && log->fail_disable < 2 && disable->disable != log->fail_disable))
		return 0;
	log->fail_count--;
	return log->fail_status;
}

static void describe(struct entry *entry, const struct nvos54 *call)
{
	const struct disable *disable = (void *)call->parameters;

	entry->client = call->client;
	entry->object = call->object;
	entry->command = call->command;
	entry->size = call->size;
	if (call->size == sizeof(*disable)) {
		entry->value = disable->disable;
		entry->count = disable->count;
		entry->channel = disable->channels[0];
		entry->only_scheduling = disable->only_scheduling;
	} else {
		memcpy(&entry->value, (void *)call->parameters, call->size < 8 ? call->size : 8);
	}
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (request != RM_CONTROL)
		return (int)syscall(SYS_ioctl, fd, request, argument);
	struct nvos54 *call = argument;
	struct log *log = map_log();
	uint32_t index = __atomic_fetch_add(&log->count, 1, __ATOMIC_SEQ_CST);
	struct entry *entry = &log->entries[index % ENTRIES];

	describe(entry, call);
	entry->begin_ns = now_ns();
	if (log->cost_us)
		usleep(log->cost_us);
	call->status = entry->status = answer(log, call);
	entry->end_ns = now_ns();
	if (call->status > 0x10000) {
		errno = (int)(call->status - 0x10000);
		return -1;
	}
	return 0;
}
