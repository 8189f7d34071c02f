/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that does what its standard input says, one command a line, and answers each with one line.
 *   load PATH | call NAME ARGS... | repeat COUNT NAME ARGS... | alternate COUNT NAME (launches into two streams)
 *   open PATH | ioctl FD NUMBER HEX [OFFSET HEX]...   (each HEX is a buffer; OFFSET is where the previous one points to
 * it) fork CODE | hold | exec | leave (the main thread ends, another goes on) | exit CODE
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int entry_point(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			uint64_t, uint64_t);

static char *self;
static void *library;

static uint64_t number(char **rest)
{
	char *word = strtok_r(NULL, " \n", rest);

	if (word && *word == '@') /* the address of one of the library's objects */
		return (uintptr_t)dlsym(library, word + 1);
	return word ? strtoull(word, NULL, 0) : 0;
}

static int repeat(uint64_t count, char **rest)
{
	entry_point *function = (entry_point *)dlsym(library, strtok_r(NULL, " \n", rest));
	uint64_t a[11];
	int result = -1;

	for (int i = 0; i < 11; i++)
		a[i] = number(rest);
	while (function && count--)
		result = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
	return result;
}

static int alternate(uint64_t count, char **rest)
{
	entry_point *launch = (entry_point *)dlsym(library, strtok_r(NULL, " \n", rest));
	int result = -1;

	while (launch && count--)
		result = launch(0, 1, 1, 1, 1, 1, 1, 0, 1 + count % 2, 0, 0);
	return result;
}

static void unhex(const char *hex, unsigned char *out)
{
	for (; hex && hex[0] && hex[1]; hex += 2)
		sscanf(hex, "%2hhx", out++);
}

static int do_ioctl(char **rest)
{
	static unsigned char buffers[4][4096];
	int fd = number(rest);
	unsigned long command = number(rest);
	char *word;

	unhex(strtok_r(NULL, " \n", rest), buffers[0]);
	for (int i = 1; i < 4 && (word = strtok_r(NULL, " \n", rest)); i++) {
		uint64_t address = (uintptr_t)buffers[i];

		memcpy(buffers[i - 1] + strtoul(word, NULL, 0), &address, sizeof(address));
		unhex(strtok_r(NULL, " \n", rest), buffers[i]);
	}
	return ioctl(fd, command, buffers[0]);
}

static int do_fork(int code)
{
	pid_t child = fork();

	if (child == 0)
		_exit(code);
	waitpid(child, NULL, 0);
	return child;
}

static int do_hold(void)
{
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(STDOUT_FILENO); /* whoever reads our answers must see the end of them */
		pause();
		_exit(0);
	}
	return child;
}

static void *serve(void *unused)
{
	char line[16384];

	(void)unused;
	while (fgets(line, sizeof(line), stdin)) {
		char *rest, *verb = strtok_r(line, " \n", &rest);
		long answer = 0;
		pthread_t thread;

		if (!strcmp(verb, "load"))
			answer = (library = dlopen(strtok_r(NULL, " \n", &rest), RTLD_NOW)) != NULL;
		else if (!strcmp(verb, "call"))
			answer = repeat(1, &rest);
		else if (!strcmp(verb, "repeat"))
			answer = repeat(number(&rest), &rest);
		else if (!strcmp(verb, "alternate"))
			answer = alternate(number(&rest), &rest);
		else if (!strcmp(verb, "open"))
			answer = open(strtok_r(NULL, " \n", &rest), O_RDWR | O_CLOEXEC);
		else if (!strcmp(verb, "ioctl"))
			answer = do_ioctl(&rest);
		else if (!strcmp(verb, "fork"))
			answer = do_fork(number(&rest));
		else if (!strcmp(verb, "hold"))
			answer = do_hold();
		else if (!strcmp(verb, "exec"))
			execl(self, "again", NULL);
		else if (!strcmp(verb, "leave")) {
			pthread_create(&thread, NULL, serve, NULL);
			pthread_exit(NULL);
		} else if (!strcmp(verb, "exit"))
			_exit(number(&rest));
		printf("%ld\n", answer);
		fflush(stdout);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	(void)argc;
	self = realpath("/proc/self/exe", NULL);
	setvbuf(stdin, NULL, _IONBF, 0);
	(void)argv;
	puts("ready");
	fflush(stdout);
	serve(NULL);
	return 0;
}
