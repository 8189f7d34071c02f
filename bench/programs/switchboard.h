/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Switches that whoever runs a comparison turns while the programs run. A file of four words is shared by all of them:
 * the first is 1 while they are to use the GPU one after the other (SEQ), in the order in which they ask; two more are
 * theirs; the fourth is 1 while services are to announce their requests to gpsched.
 */
#ifndef GPSCHED_BENCH_SWITCHBOARD_H
#define GPSCHED_BENCH_SWITCHBOARD_H

#include <stdbool.h>

/* Maps the file; NULL: there is none. Returns 0, or -1 with errno. */
int switchboard_open(const char *file);

/* Waits for the turn. Returns whether it must be given back: 0 while SEQ is off. Ends the program with code 1 when
 * whoever has the turn does not give it back for 30 s. */
int seq_take(void);

/* Lets the next one have its turn; `taken` is what seq_take returned. */
void seq_give(int taken);

/* Whether a service is to announce its requests. */
bool hints_wanted(void);

/* Announces a burst in so many microseconds, if that is wanted (announce.c). */
void announce_if_wanted(double us);

#endif
