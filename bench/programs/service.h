/* SPDX-License-Identifier: Apache-2.0 */
/* The front end of a service: a listening socket on loopback and one thread that serves its connections in turn. */
#ifndef GPSCHED_BENCH_SERVICE_H
#define GPSCHED_BENCH_SERVICE_H

#include "loadgen.h"
#include "wire.h"

/* Handles one request that arrived at program time `received_us`; fills the reply. */
typedef void service_handler(void *context, double received_us, struct reply *reply);

/* Listens on 127.0.0.1:`port` (0 = any free one, written back). Returns the descriptor; ends the program on an error.
 */
int service_listen(int *port);

/* Serves, plainly or over `http`, until SIGTERM or SIGINT, or until `owner` (a descriptor, -1 = none) becomes readable
 * or is closed. */
void service_run(int listener, int owner, bool http, service_handler *handle, void *context);

#endif
