// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Clients and their objects: the RM's own tree, so that the free of a parent takes its children along. Functions
 * without a lock of their own want gs_registry_lock, except gs_bury(), which must not have it.
 */
#include <linux/hashtable.h>

#include "registry.h"

DEFINE_SPINLOCK(gs_registry_lock);
atomic64_t gs_counters[GS_COUNTERS];

static DEFINE_HASHTABLE(clients_by_handle, 10);
static DEFINE_HASHTABLE(clients_by_file, 10);
static DEFINE_HASHTABLE(objects_by_handle, 12);

void *gs_alloc(size_t size, gfp_t gfp)
{
	void *memory = gs_test_fail_alloc() ? NULL : kzalloc(size, gfp | __GFP_NOWARN);

	if (memory)
		gs_count(GS_COUNT_ALLOCATED, 1);
	return memory;
}

void gs_free(void *memory)
{
	if (!memory)
		return;
	gs_count(GS_COUNT_ALLOCATED, -1);
	kfree(memory);
}

static u64 object_key(u32 client, u32 handle)
{
	return (u64)client << 32 | handle;
}

struct gs_client *gs_find_client(u32 handle)
{
	struct gs_client *client;

	hash_for_each_possible(clients_by_handle, client, by_handle, handle)
		if (client->handle == handle)
			return client;
	return NULL;
}

struct gs_object *gs_find_object(u32 client, u32 handle)
{
	struct gs_object *object;

	hash_for_each_possible(objects_by_handle, object, by_handle, object_key(client, handle))
		if (object->handle == handle && object->client->handle == client)
			return object;
	return NULL;
}

#ifdef GPSCHED_TEST
bool gs_object_believed(u32 client, u32 handle)
{
	struct gs_object *object;
	unsigned long flags;
	bool believed;

	spin_lock_irqsave(&gs_registry_lock, flags);
	object = gs_find_object(client, handle);
	believed = object && object->believed;
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	return believed;
}
#endif

/* Takes one object out of every index; its children are the caller's. */
static void unlink_object(struct gs_object *object, struct list_head *dead)
{
	struct gs_group *group = object->group;

	hash_del(&object->by_handle);
	list_del_init(&object->flat);
	list_move_tail(&object->sibling, dead);
	if (group) {
		list_del_init(&object->in_group);
		if (object->kind == GS_KIND_GROUP && list_empty(&group->names))
			gs_group_ends(group);
	}
	if (object->kind != GS_KIND_CLIENT) {
		object->client->objects--;
		gs_count(GS_COUNT_OBJECTS, -1);
	}
}

/* Takes an object and all below it: breadth first, the list itself is the queue. */
void gs_unlink_tree(struct gs_object *top, struct list_head *dead)
{
	struct gs_object *object = top, *child, *next;

	unlink_object(top, dead);
	list_for_each_entry_from(object, dead, sibling)
		list_for_each_entry_safe(child, next, &object->children, sibling)
			unlink_object(child, dead);
	if (top->kind == GS_KIND_CLIENT) {
		hash_del(&top->client->by_handle);
		hash_del(&top->client->by_file);
		gs_count(GS_COUNT_CLIENTS, -1);
	}
}

static void tell_removed(struct gs_group *group, u32 client, u32 handle)
{
	struct gpsched_group gone = {.id = group->id,
				     .pid = group->pid,
				     .client = client,
				     .handle = handle,
				     .engine = group->engine,
				     .device = group->device};

	gs_notify_group(GS_CMD_REMOVED, &gone);
	gpsched_on_group(&gone, 0);
}

/* Frees what was unlinked; children come after their parents in the list, so a client goes with its last object. */
void gs_bury(struct list_head *dead)
{
	struct gs_object *object, *next;
	bool woken = false;

	list_for_each_entry_safe_reverse(object, next, dead, sibling) {
		struct gs_client *client = object->client;

		if (object->kind == GS_KIND_GROUP && READ_ONCE(object->group->dead) && !object->group->told) {
			object->group->told = true;
			tell_removed(object->group, client->handle, object->handle);
			woken = true;
		}
		if (object->group)
			gs_group_put(object->group);
		if (object->kind == GS_KIND_CLIENT) {
			put_pid(client->pid);
			gs_free(client);
		}
		gs_free(object);
	}
	if (woken)
		gs_watchdog_kick(0);
}

struct gs_object *gs_object_new(u32 handle, u32 class_, enum gs_kind kind)
{
	struct gs_object *object = gs_alloc(sizeof(*object), GS_GFP);

	if (!object)
		return NULL;
	INIT_LIST_HEAD(&object->sibling);
	INIT_LIST_HEAD(&object->children);
	INIT_LIST_HEAD(&object->flat);
	INIT_LIST_HEAD(&object->in_group);
	object->handle = handle;
	object->class_ = class_;
	object->kind = kind;
	return object;
}

void gs_link_object(struct gs_object *object, struct gs_client *client, struct gs_object *parent)
{
	object->client = client;
	object->parent = parent;
	hash_add(objects_by_handle, &object->by_handle, object_key(client->handle, object->handle));
	list_add_tail(&object->flat, &client->flat);
	if (parent)
		list_add_tail(&object->sibling, &parent->children);
	if (object->kind != GS_KIND_CLIENT) {
		client->objects++;
		gs_count(GS_COUNT_OBJECTS, 1);
	}
}

void gs_link_client(struct gs_client *client)
{
	hash_add(clients_by_handle, &client->by_handle, client->handle);
	hash_add(clients_by_file, &client->by_file, (unsigned long)client->file);
	gs_link_object(client->root, client, NULL);
	gs_count(GS_COUNT_CLIENTS, 1);
}

/* Any client of an open file. */
struct gs_client *gs_client_of_file(const void *file)
{
	struct gs_client *client;

	hash_for_each_possible(clients_by_file, client, by_file, (unsigned long)file)
		if (client->file == file)
			return client;
	return NULL;
}

/* The driver unloads only when no file is open, the companion module at any time. */
void gs_registry_exit(void)
{
	struct gs_client *client;
	struct hlist_node *next;
	unsigned long flags;
	LIST_HEAD(dead);
	int bucket;

	spin_lock_irqsave(&gs_registry_lock, flags);
	hash_for_each_safe(clients_by_handle, bucket, next, client, by_handle)
		gs_unlink_tree(client->root, &dead);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	gs_bury(&dead);
	gs_groups_exit();
}
