/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line values: a wrong one ends the program with one line and EXIT_USAGE. */
#ifndef GPSCHED_BENCH_OPTIONS_H
#define GPSCHED_BENCH_OPTIONS_H

/* Prints one line, printf-like, and exits with EXIT_USAGE. */
__attribute__((noreturn, format(printf, 1, 2))) void usage_error(const char *format, ...);

/* The number in `text`, from `low` to `high`. `name` is the option, for the message. */
double option_number(const char *name, const char *text, double low, double high);

/* The same, without a fraction. */
long option_integer(const char *name, const char *text, long low, long high);

/* The position of `text` in the NULL-ended list `choices`. */
int option_choice(const char *name, const char *text, const char *const *choices);

#endif
