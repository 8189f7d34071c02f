/* SPDX-License-Identifier: Apache-2.0 */
#include "switchboard.h"

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

struct switchboard {
	atomic_uint seq, next, serving, hints;
};

static struct switchboard *board;

int switchboard_open(const char *file)
{
	int fd;
	void *map;

	if (!file)
		return 0;
	fd = open(file, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	map = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return -1;
	board = map;
	return 0;
}

int seq_take(void)
{
	struct timespec second = {.tv_sec = 1};
	unsigned int ticket, serving;

	if (!board || !atomic_load(&board->seq))
		return 0;
	ticket = atomic_fetch_add(&board->next, 1);
	for (int waits = 0; (serving = atomic_load(&board->serving)) != ticket;) {
		if (waits >= WAITS) {
			fputs("switchboard: the turn was not given back for 30 s; another program hangs\n", stderr);
			exit(EXIT_FAILURE);
		}
		/* Returns -1 at once when the word has changed, after a second when nobody woke us. */
		if (syscall(SYS_futex, &board->serving, FUTEX_WAIT, serving, &second, NULL, 0) &&
		    atomic_load(&board->serving) == serving)
			waits++;
	}
	return 1;
}

void seq_give(int taken)
{
	if (!taken)
		return;
	atomic_fetch_add(&board->serving, 1);
	syscall(SYS_futex, &board->serving, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

bool hints_wanted(void)
{
	return board && atomic_load(&board->hints);
}
