/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

static char pending[COMMAND_BYTES];
static size_t length;

static int take_line(char line[COMMAND_BYTES])
{
	char *end = memchr(pending, '\n', length);
	size_t used;

	if (!end)
		return 0;
	*end = '\0';
	used = (size_t)(end - pending) + 1;
	memcpy(line, pending, used);
	memmove(pending, pending + used, length - used);
	length -= used;
	return 1;
}

int command_read(char line[COMMAND_BYTES], int timeout_ms)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	ssize_t got;

	if (take_line(line))
		return 1;
	if (poll(&input, 1, timeout_ms) <= 0)
		return 0;
	if (length == sizeof(pending)) /* a line that is too long is no command: drop it */
		length = 0;
	got = read(STDIN_FILENO, pending + length, sizeof(pending) - length);
	if (got <= 0)
		return -1;
	length += (size_t)got;
	return take_line(line);
}
