/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets programs use the GPU one after the other (SEQ), in the order in which they ask. A file of three words is shared
 * by all of them: who runs the comparison writes 1 into the first to switch it on, 0 to switch it off again.
 */
#ifndef GPSCHED_BENCH_TURNSTILE_H
#define GPSCHED_BENCH_TURNSTILE_H

/* Maps the file; NULL: there is no turnstile. Returns 0, or -1 with errno. */
int turnstile_open(const char *file);

/* Waits for the turn. Returns whether it must be given back: 0 while switched off. Ends the program with code 1 when
 * whoever has the turn does not give it back for 30 s. */
int turnstile_take(void);

/* Lets the next one have its turn; `taken` is what turnstile_take returned. */
void turnstile_give(int taken);

#endif
