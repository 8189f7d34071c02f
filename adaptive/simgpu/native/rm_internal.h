/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by rm.c (ioctls, objects) and rm_control.c (controls). */
#ifndef GPSCHED_RM_INTERNAL_H
#define GPSCHED_RM_INTERNAL_H

#include "rm.h"

enum {
	CLASS_CLIENT = 0x41,
	CLASS_DEVICE = 0x80,
	CLASS_SUBDEVICE = 0x2080,
	CLASS_GROUP = 0xa06c,
	CLASS_CHANNEL = 0xc86f,
	CLASS_COMPUTE = 0xcbc0,
	CLASS_COPY = 0xc8b5
};

/* What an object stands for; duplicates share it. */
struct resource {
	int refs, gpu, engine_id;
	uint32_t class_id;
};

struct object {
	struct object *next;
	uint32_t handle, parent;
	struct resource *resource;
};

struct client {
	struct client *next;
	uint32_t handle, next_object;
	uint64_t file;
	pid_t pid;
	struct object *objects;
};

struct rm {
	struct engine *engine;
	int gpus;
	struct client *clients;
};

/* NVOS54 */
struct nvos54 {
	uint32_t client, object, cmd, flags;
	uint64_t params;
	uint32_t params_size, status;
};

struct client *rm_client(const struct rm *rm, uint32_t handle);
struct object *client_object(const struct client *client, uint32_t handle);
bool caller_read(pid_t tid, uint64_t address, void *to, size_t size);
/* One number of /proc/TID/status by its scanf format; 0 when there is none. */
unsigned long long caller_status(pid_t tid, const char *format);
bool caller_write(pid_t tid, uint64_t address, const void *from, size_t size);
uint32_t rm_control(struct rm *rm, uint64_t file, pid_t tid, const struct nvos54 *call, uint64_t *reply_at);

#endif
