/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exit_codes.h"

void usage_error(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputs("; see --help\n", stderr);
	exit(EXIT_USAGE);
}

double option_number(const char *name, const char *text, double low, double high)
{
	char *end = NULL;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= low && value <= high))
		usage_error("%s: '%s' is not a number from %g to %g", name, text, low, high);
	return value;
}

long option_integer(const char *name, const char *text, long low, long high)
{
	char *end = NULL;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < low || value > high)
		usage_error("%s: '%s' is not an integer from %ld to %ld", name, text, low, high);
	return value;
}

int option_choice(const char *name, const char *text, const char *const *choices)
{
	char known[128] = "";

	for (int i = 0; choices[i]; i++) {
		if (!strcmp(text, choices[i]))
			return i;
		snprintf(known + strlen(known), sizeof(known) - strlen(known), " %s", choices[i]);
	}
	usage_error("%s: '%s' is none of:%s", name, text, known);
}
