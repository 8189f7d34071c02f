/* SPDX-License-Identifier: Apache-2.0 */
/* RM ioctls of nvidiactl: allocation, freeing, duplication and ownership of objects. */
#define _GNU_SOURCE
#include "rm_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define CLIENT_BASE 0xc1d00000u
#define OBJECT_BASE 0x5c000000u
#define MAX_CLIENTS 4096
#define MAX_OBJECTS 4096 /* of one client */

/* linux ioctl numbers: direction, size, magic 'F', number */
enum {
	ESC_FREE = 0xc0104629,
	ESC_CONTROL = 0xc020462a,
	ESC_ALLOC21 = 0xc020462b,
	ESC_ALLOC64 = 0xc030462b,
	ESC_DUP = 0xc01c4634,
	ESC_XFER = 0xc01046d3
};

struct nvos00 {
	uint32_t root, parent, object, status;
};

struct nvos21 {
	uint32_t root, parent, object, class_id;
	uint64_t params;
	uint32_t params_size, status;
};

struct nvos64 {
	uint32_t root, parent, object, class_id;
	uint64_t params, rights;
	uint32_t params_size, flags, status, pad;
};

struct nvos55 {
	uint32_t client, parent, object, source_client, source_object, flags, status;
};

struct xfer {
	uint32_t cmd, size;
	uint64_t ptr;
};

struct rm *rm_new(struct engine *engine, int gpus)
{
	struct rm *rm = calloc(1, sizeof(*rm));

	if (rm) {
		rm->engine = engine;
		rm->gpus = gpus;
	}
	return rm;
}

bool caller_read(pid_t tid, uint64_t address, void *to, size_t size)
{
	struct iovec local = {to, size}, remote = {(void *)(uintptr_t)address, size};

	return size == 0 || process_vm_readv(tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

bool caller_write(pid_t tid, uint64_t address, const void *from, size_t size)
{
	struct iovec local = {(void *)(uintptr_t)from, size}, remote = {(void *)(uintptr_t)address, size};

	return process_vm_writev(tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

unsigned long long caller_status(pid_t tid, const char *format)
{
	char path[64], line[256];
	unsigned long long value = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	FILE *file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, format, &value) == 1)
			break;
	fclose(file);
	return value;
}

struct client *rm_client(const struct rm *rm, uint32_t handle)
{
	for (struct client *c = rm->clients; c; c = c->next)
		if (c->handle == handle)
			return c;
	return NULL;
}

struct object *client_object(const struct client *client, uint32_t handle)
{
	for (struct object *o = client->objects; o; o = o->next)
		if (o->handle == handle)
			return o;
	return NULL;
}

/* rmclientValidate_IMPL: the open file decides, not the process and not its privilege. */
static struct client *owned_client(const struct rm *rm, uint64_t file, uint32_t handle)
{
	struct client *client = rm_client(rm, handle);

	return client && client->file == file ? client : NULL;
}

static void resource_put(struct rm *rm, struct resource *resource)
{
	if (--resource->refs > 0)
		return;
	if (resource->class_id == CLASS_GROUP)
		engine_group_free(rm->engine, resource->engine_id);
	if (resource->class_id == CLASS_CHANNEL)
		engine_channel_free(rm->engine, resource->engine_id);
	free(resource);
}

/* Children go first, as in the driver. */
static void object_free(struct rm *rm, struct client *client, uint32_t handle)
{
	for (bool again = true; again;) {
		again = false;
		for (struct object *o = client->objects; o; o = o->next) {
			if (o->parent == handle && o->handle != handle) {
				object_free(rm, client, o->handle);
				again = true;
				break;
			}
		}
	}
	for (struct object **link = &client->objects; *link; link = &(*link)->next) {
		if ((*link)->handle == handle) {
			struct object *gone = *link;

			*link = gone->next;
			resource_put(rm, gone->resource);
			free(gone);
			return;
		}
	}
}

static void client_free(struct rm *rm, struct client *client)
{
	struct client **link = &rm->clients;

	while (client->objects)
		object_free(rm, client, client->objects->handle);
	while (*link != client)
		link = &(*link)->next;
	*link = client->next;
	free(client);
}

void rm_release(struct rm *rm, uint64_t file)
{
	struct client *client = rm->clients;

	while (client) {
		struct client *next = client->next;

		if (client->file == file)
			client_free(rm, client);
		client = next;
	}
}

void rm_free(struct rm *rm)
{
	while (rm && rm->clients)
		client_free(rm, rm->clients);
	free(rm);
}

static uint32_t client_alloc(struct rm *rm, uint64_t file, pid_t tid, struct nvos64 *a)
{
	uint32_t handle = CLIENT_BASE;

	while (handle < CLIENT_BASE + MAX_CLIENTS && rm_client(rm, handle))
		handle++;
	struct client *client = handle < CLIENT_BASE + MAX_CLIENTS ? calloc(1, sizeof(*client)) : NULL;
	if (!client)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	/* FUSE names the thread that called. */
	pid_t pid = (pid_t)caller_status(tid, "Tgid: %llu");
	*client = (struct client){
	    .next = rm->clients, .handle = handle, .next_object = OBJECT_BASE, .file = file, .pid = pid};
	rm->clients = client;
	a->object = handle;
	return NV_OK;
}

static uint32_t device_instance(const struct rm *rm, pid_t tid, const struct nvos64 *a, int *gpu)
{
	uint32_t instance = 0;

	if (a->params && !caller_read(tid, a->params, &instance, sizeof(instance)))
		return NV_ERR_INVALID_POINTER;
	if (instance >= (uint32_t)rm->gpus)
		return NV_ERR_INVALID_DEVICE;
	*gpu = (int)instance;
	return NV_OK;
}

/* The class that the parent of a class must have. */
static uint32_t parent_class(uint32_t class_id)
{
	switch (class_id) {
	case CLASS_SUBDEVICE:
	case CLASS_GROUP:
		return CLASS_DEVICE;
	case CLASS_CHANNEL:
		return CLASS_GROUP;
	case CLASS_COMPUTE:
	case CLASS_COPY:
		return CLASS_CHANNEL;
	default:
		return CLASS_CLIENT;
	}
}

static uint32_t resource_fill(struct rm *rm, const struct client *client, pid_t tid, const struct nvos64 *a,
			      struct resource *r)
{
	const struct object *parent = client_object(client, a->parent);

	r->refs = 1;
	r->class_id = a->class_id;
	r->engine_id = -1;
	if (a->class_id == CLASS_DEVICE)
		return a->parent == client->handle ? device_instance(rm, tid, a, &r->gpu)
						   : NV_ERR_INVALID_OBJECT_PARENT;
	if (parent_class(a->class_id) == CLASS_CLIENT)
		return NV_ERR_INVALID_CLASS;
	if (!parent || parent->resource->class_id != parent_class(a->class_id))
		return NV_ERR_INVALID_OBJECT_PARENT;
	r->gpu = parent->resource->gpu;
	if (a->class_id == CLASS_GROUP)
		r->engine_id = engine_group_new(rm->engine, r->gpu, client->pid);
	else if (a->class_id == CLASS_CHANNEL)
		r->engine_id = engine_channel_new(rm->engine, parent->resource->engine_id);
	else
		return NV_OK;
	return r->engine_id < 0 ? NV_ERR_INSUFFICIENT_RESOURCES : NV_OK;
}

static uint32_t handle_new(struct client *client, uint32_t *handle)
{
	uint32_t count = 0;

	for (struct object *o = client->objects; o; o = o->next)
		count++;
	if (count >= MAX_OBJECTS)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	if (*handle)
		return *handle == client->handle || client_object(client, *handle) ? NV_ERR_INSERT_DUPLICATE_NAME
										   : NV_OK;
	while (client_object(client, client->next_object))
		client->next_object++;
	*handle = client->next_object++;
	return NV_OK;
}

static uint32_t object_add(struct client *client, uint32_t parent, uint32_t handle, struct resource *resource)
{
	struct object *object = calloc(1, sizeof(*object));

	if (!object)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	*object = (struct object){client->objects, handle, parent, resource};
	client->objects = object;
	return NV_OK;
}

static uint32_t rm_alloc(struct rm *rm, uint64_t file, pid_t tid, struct nvos64 *a)
{
	if (a->class_id == CLASS_CLIENT || a->class_id <= 1)
		return client_alloc(rm, file, tid, a);
	struct client *client = owned_client(rm, file, a->root);
	if (!client)
		return NV_ERR_INVALID_CLIENT;
	uint32_t status = handle_new(client, &a->object);
	if (status)
		return status;
	struct resource *resource = calloc(1, sizeof(*resource));
	if (!resource)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	status = resource_fill(rm, client, tid, a, resource);
	if (status) {
		free(resource);
		return status;
	}
	status = object_add(client, a->parent, a->object, resource);
	if (status)
		resource_put(rm, resource);
	return status;
}

static uint32_t rm_free_object(struct rm *rm, uint64_t file, const struct nvos00 *a)
{
	struct client *client = owned_client(rm, file, a->root ? a->root : a->object);

	if (!client)
		return NV_ERR_INVALID_CLIENT;
	if (a->object == client->handle) {
		client_free(rm, client);
		return NV_OK;
	}
	if (!client_object(client, a->object))
		return NV_ERR_OBJECT_NOT_FOUND;
	object_free(rm, client, a->object);
	return NV_OK;
}

static uint32_t rm_dup(struct rm *rm, uint64_t file, struct nvos55 *a)
{
	struct client *client = owned_client(rm, file, a->client);
	struct client *source = owned_client(rm, file, a->source_client);

	if (!client || !source)
		return NV_ERR_INVALID_CLIENT;
	struct object *from = client_object(source, a->source_object);
	if (!from)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (a->parent != client->handle && !client_object(client, a->parent))
		return NV_ERR_INVALID_OBJECT_PARENT;
	uint32_t status = handle_new(client, &a->object);
	if (!status)
		status = object_add(client, a->parent, a->object, from->resource);
	if (!status)
		from->resource->refs++;
	return status;
}

static void alloc21(struct rm *rm, uint64_t file, pid_t tid, struct nvos21 *a)
{
	struct nvos64 wide = {.root = a->root,
			      .parent = a->parent,
			      .object = a->object,
			      .class_id = a->class_id,
			      .params = a->params,
			      .params_size = a->params_size};

	a->status = rm_alloc(rm, file, tid, &wide);
	a->object = wide.object;
}

static int escape(struct rm *rm, uint64_t file, pid_t tid, unsigned int cmd, void *arg, uint64_t *reply_at);

/* A large ioctl wrapped in another: the inner structure stays in the caller's memory. */
static int rm_xfer(struct rm *rm, uint64_t file, pid_t tid, const struct xfer *x, uint64_t *reply_at)
{
	union {
		uint64_t align;
		uint8_t bytes[64];
	} inner;
	unsigned int cmd = 0xc0004600u | x->size << 16 | (x->cmd & 0xff);

	if (x->size > sizeof(inner) || cmd == ESC_XFER)
		return EINVAL;
	if (!caller_read(tid, x->ptr, &inner, x->size))
		return EFAULT;
	int error = escape(rm, file, tid, cmd, &inner, reply_at);
	if (!error && !caller_write(tid, x->ptr, &inner, x->size))
		error = EFAULT;
	return error;
}

static int escape(struct rm *rm, uint64_t file, pid_t tid, unsigned int cmd, void *arg, uint64_t *reply_at)
{
	switch (cmd) {
	case ESC_FREE:
		((struct nvos00 *)arg)->status = rm_free_object(rm, file, arg);
		return 0;
	case ESC_CONTROL:
		((struct nvos54 *)arg)->status = rm_control(rm, file, tid, arg, reply_at);
		return 0;
	case ESC_ALLOC21:
		alloc21(rm, file, tid, arg);
		return 0;
	case ESC_ALLOC64:
		((struct nvos64 *)arg)->status = rm_alloc(rm, file, tid, arg);
		return 0;
	case ESC_DUP:
		((struct nvos55 *)arg)->status = rm_dup(rm, file, arg);
		return 0;
	default:
		return EINVAL;
	}
}

int rm_ioctl(struct rm *rm, uint64_t file, pid_t tid, unsigned int cmd, void *arg, size_t size, uint64_t *reply_at)
{
	*reply_at = engine_now(rm->engine);
	if (size != (cmd >> 16 & 0x3fff))
		return EINVAL;
	if (cmd == ESC_XFER)
		return rm_xfer(rm, file, tid, arg, reply_at);
	return escape(rm, file, tid, cmd, arg, reply_at);
}

bool rm_find_channel(const struct rm *rm, pid_t pid, uint32_t client, uint32_t handle, int *group, int *channel)
{
	struct client *c = rm_client(rm, client);
	struct object *o = c && c->pid == pid ? client_object(c, handle) : NULL;
	struct object *parent = o && o->resource->class_id == CLASS_CHANNEL ? client_object(c, o->parent) : NULL;

	if (!parent)
		return false;
	*group = parent->resource->engine_id;
	*channel = o->resource->engine_id;
	return true;
}
