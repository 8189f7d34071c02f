/* SPDX-License-Identifier: Apache-2.0 */
/* The socket to the daemon. */
#ifndef GPSCHED_LINK_H
#define GPSCHED_LINK_H

#include "plan.h"

/* Receives one message and at most one descriptor (-1 without). Returns 1, 0 when there is none now, -1 when the daemon
 * is gone. */
int link_receive(int fd, struct ga_message *message, int *descriptor);

void link_answer(int fd, const struct ga_message *message, int error);

#endif
