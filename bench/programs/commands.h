/* SPDX-License-Identifier: Apache-2.0 */
/* Commands from standard input, a line each, read without ever waiting longer than asked. */
#ifndef GPSCHED_BENCH_COMMANDS_H
#define GPSCHED_BENCH_COMMANDS_H

#define COMMAND_BYTES 256

/* Copies the next line to `line`, without its end. Waits `timeout_ms` at most (-1 = for ever).
 * Returns 1 with a line, 0 without one (yet, or interrupted by a signal), -1 at the end of input. */
int command_read(char line[COMMAND_BYTES], int timeout_ms);

#endif
