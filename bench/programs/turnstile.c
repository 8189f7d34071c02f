/* SPDX-License-Identifier: Apache-2.0 */
#include "turnstile.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAITS 30 /* of one second each */

struct turnstile {
	atomic_uint enabled, next, serving;
};

static struct turnstile *turnstile;

int turnstile_open(const char *file)
{
	int fd;
	void *map;

	if (!file)
		return 0;
	fd = open(file, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	map = mmap(NULL, sizeof(*turnstile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return -1;
	turnstile = map;
	return 0;
}

int turnstile_take(void)
{
	struct timespec second = {.tv_sec = 1};
	unsigned int ticket, serving;

	if (!turnstile || !atomic_load(&turnstile->enabled))
		return 0;
	ticket = atomic_fetch_add(&turnstile->next, 1);
	for (int waits = 0; (serving = atomic_load(&turnstile->serving)) != ticket;) {
		if (waits >= WAITS) {
			fputs("turnstile: the turn was not given back for 30 s; another program hangs\n", stderr);
			exit(EXIT_FAILURE);
		}
		/* Returns -1 at once when the word has changed, after a second when nobody woke us. */
		if (syscall(SYS_futex, &turnstile->serving, FUTEX_WAIT, serving, &second, NULL, 0) &&
		    atomic_load(&turnstile->serving) == serving)
			waits++;
	}
	return 1;
}

void turnstile_give(int taken)
{
	if (!taken)
		return;
	atomic_fetch_add(&turnstile->serving, 1);
	syscall(SYS_futex, &turnstile->serving, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
