/* SPDX-License-Identifier: Apache-2.0
 *
 * Of waker.c: what calls and wake-ups cost, for tests/bpf/bench.py.
 */

/* Processor time of one read of /dev/zero and of one of an eventfd, in tenths of ns; getppid stands for all other
 * calls. */
static long per_call(int kind, int count)
{
	int zero = open("/dev/zero", O_RDONLY);
	struct timespec before, after;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	for (int i = 0; i < count; i++) {
		if (kind == 0 && read(zero, buffer, 1) != 1)
			return -1;
		if (kind == 1)
			syscall(SYS_getppid);
		if (kind == 2 && read(counter, buffer, 8) != 8)
			return -1;
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
	close(zero);
	return ((after.tv_sec - before.tv_sec) * 1000000000l + after.tv_nsec - before.tv_nsec) * 10 / count;
}

static int time_read(void)
{
	return per_call(0, 100000);
}

static int time_other(void)
{
	return per_call(1, 100000);
}

static int time_counter(void)
{
	static int many;

	if (!many++) { /* a semaphore, so that every read finds something */
		close(counter);
		counter = eventfd(0, EFD_SEMAPHORE);
	}
	eventfd_write(counter, 1000000);
	return per_call(2, 100000);
}

/* Few enough, after a while of rest, that every one is sent. */
static int time_sent(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 250000000}, NULL);
	return per_call(2, 150);
}

static void *echo(void *ends)
{
	const int *end = ends;
	char byte;

	while (read(end[0], &byte, 1) == 1 && write(end[1], &byte, 1) == 1)
		;
	return NULL;
}

/* Processor time of a wake-up, in tenths of ns, with the write and the read around it: a byte goes to and fro. */
static int time_woken(void)
{
	enum { ROUNDS = 20000 };
	struct timespec before, after;
	int there[2], back[2], ends[2];
	cpu_set_t all, one;
	pthread_t other;
	char byte = 0;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (pipe(there) || pipe(back) || sched_getaffinity(0, sizeof(all), &all) ||
	    sched_setaffinity(0, sizeof(one), &one)) /* inherited: no other processor is woken */
		abort();
	ends[0] = there[0], ends[1] = back[1];
	pthread_create(&other, NULL, echo, ends);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	for (int i = 0; i < ROUNDS; i++)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			abort();
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	close(there[1]);
	pthread_join(other, NULL);
	close(there[0]), close(back[0]), close(back[1]);
	sched_setaffinity(0, sizeof(all), &all);
	return ((after.tv_sec - before.tv_sec) * 1000000000l + after.tv_nsec - before.tv_nsec) * 5 / ROUNDS;
}
