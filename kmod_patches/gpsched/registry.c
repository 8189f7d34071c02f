// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The registry is told of every successful RM_ALLOC, RM_FREE, DUP_OBJECT and close. Whatever it may miss (an object
 * freed because another one that it depends on was) shows when a control answers "no such object"; nothing here relies
 * on it.
 */
#include <linux/cred.h>
#include <linux/sched/signal.h>

#include "registry.h"

struct news { /* gathered under the lock, told after it */
	struct list_head dead;
	struct gpsched_group group;
	bool tell, kick;
};

static enum gs_kind kind_of(u32 class_, bool *tracked)
{
	*tracked = true;
	if (class_ <= 1 || class_ == 0x41)
		return GS_KIND_CLIENT;
	if (class_ == GS_CLASS_DEVICE)
		return GS_KIND_DEVICE;
	if (class_ == GS_CLASS_SUBDEVICE)
		return GS_KIND_SUBDEVICE;
	if (class_ == GS_CLASS_GROUP)
		return GS_KIND_GROUP;
	*tracked = class_ >= 0xb000 && (class_ & 0xff) == 0x6f;
	return GS_KIND_CHANNEL;
}

static u32 engine_of(u32 class_)
{
	if (class_ >= 0xb000 && (class_ & 0xff) == 0xc0)
		return GS_ENGINE_COMPUTE;
	if (class_ >= 0xb000 && (class_ & 0xff) == 0xb5)
		return GS_ENGINE_COPY;
	return GS_ENGINE_OTHER;
}

static void add_client(const void *file, u32 handle)
{
	struct gs_client *client = gs_alloc(sizeof(*client), GS_GFP), *old;
	struct gs_object *root = gs_object_new(handle, 0x41, GS_KIND_CLIENT);
	unsigned long flags;
	LIST_HEAD(dead);

	if (!client || !root || atomic64_read(&gs_counters[GS_COUNT_CLIENTS]) >= GS_MAX_TOTAL) {
		gs_free(client);
		gs_free(root);
		gs_count(GS_COUNT_LOST, 1);
		return;
	}
	INIT_LIST_HEAD(&client->flat);
	client->handle = handle;
	client->file = file;
	client->root = root;
	client->uid = current_euid();
	client->pid = get_pid(task_tgid(current));
	spin_lock_irqsave(&gs_registry_lock, flags);
	old = gs_find_client(handle);
	if (old)
		gs_unlink_tree(old->root, &dead);
	gs_link_client(client);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	gs_bury(&dead);
}

/* A forked child goes on with its dead parent's descriptor: from now on the client is the child's. */
static void adopt(struct gs_client *client)
{
	struct gs_object *object;
	struct pid *old = client->pid;

	if (pid_has_task(old, PIDTYPE_TGID))
		return;
	client->pid = get_pid(task_tgid(current));
	client->uid = current_euid();
	put_pid(old);
	list_for_each_entry(object, &client->flat, flat)
		if (object->kind == GS_KIND_GROUP)
			gs_group_moves(object->group, pid_nr(client->pid));
}

static void join_group(struct gs_object *object, struct gs_group *group, struct news *news)
{
	refcount_inc(&group->refs);
	object->group = group;
	if (object->kind == GS_KIND_GROUP) {
		list_add_tail(&object->in_group, &group->names);
		return;
	}
	list_add_tail(&object->in_group, &group->channels);
	group->channels_changed = true;
	if (READ_ONCE(group->setting[GS_FIELD_DISABLED].applied)) {
		gs_attend(group);
		news->kick = true;
	}
}

/* An object on a channel says which engine the channel's group is for; the strongest wins. */
static void engine_known(struct gs_object *channel, u32 class_, struct news *news)
{
	struct gs_group *group = channel->group;
	struct gs_object *name;

	if (!group || engine_of(class_) <= group->engine)
		return;
	WRITE_ONCE(group->engine, engine_of(class_));
	name = gs_first_name(group);
	if (name) {
		gs_describe(group, name, &news->group);
		news->tell = true;
	}
}

/* Links a fresh object; false: it cannot be remembered. */
static bool enter(struct gs_client *client, struct gs_object *object, u32 parent, struct gs_group *group,
		  struct news *news)
{
	struct gs_object *old = gs_find_object(client->handle, object->handle), *above;

	if (old && old->kind == GS_KIND_CLIENT)
		return false;
	if (old)
		gs_unlink_tree(old, &news->dead);
	if (client->objects >= GS_MAX_OBJECTS)
		return false;
	adopt(client);
	above = gs_find_object(client->handle, parent) ?: client->root;
	gs_link_object(object, client, above);
	if (object->kind == GS_KIND_GROUP && !group->id && !gs_group_begins(group, object)) {
		gs_unlink_tree(object, &news->dead);
		list_del_init(&object->sibling);
		return false;
	}
	if (object->kind == GS_KIND_GROUP)
		join_group(object, group, news);
	else if (object->kind == GS_KIND_CHANNEL && (group ?: above->group))
		join_group(object, group ?: above->group, news);
	if (object->kind == GS_KIND_GROUP) {
		gs_describe(object->group, object, &news->group);
		news->tell = true;
	}
	return true;
}

static void tell(struct news *news)
{
	gs_bury(&news->dead);
	if (news->kick)
		gs_watchdog_kick(0);
	if (!news->tell)
		return;
	gs_notify_group(GS_CMD_ADDED, &news->group);
	gpsched_on_group(&news->group, 1);
}

static void note_engine(u32 client, u32 parent, u32 class_)
{
	struct news news = {.dead = LIST_HEAD_INIT(news.dead)};
	struct gs_object *channel;
	unsigned long flags;

	spin_lock_irqsave(&gs_registry_lock, flags);
	channel = gs_find_object(client, parent);
	if (channel && channel->kind == GS_KIND_CHANNEL)
		engine_known(channel, class_, &news);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	tell(&news);
}

void gs_object_added(const void *file, u32 client_handle, u32 parent, u32 handle, u32 class_, u32 value, bool believed)
{
	struct news news = {.dead = LIST_HEAD_INIT(news.dead)};
	struct gs_group *group = NULL;
	struct gs_client *client;
	struct gs_object *object;
	unsigned long flags;
	enum gs_kind kind;
	bool tracked, entered = false;

	kind = kind_of(class_, &tracked);
	if (!tracked) {
		note_engine(client_handle, parent, class_);
		return;
	}
	if (kind == GS_KIND_CLIENT) {
		add_client(file, handle);
		return;
	}
	object = gs_object_new(handle, class_, kind);
	if (object && kind == GS_KIND_GROUP)
		group = gs_group_new(GS_GFP);
	if (object && (kind != GS_KIND_GROUP || group)) {
		object->device = kind == GS_KIND_DEVICE ? value : 0;
		object->believed = believed;
		spin_lock_irqsave(&gs_registry_lock, flags);
		client = gs_find_client(client_handle);
		/* The RM lets only the client's own file allocate, so another one here means that we missed a close. */
		if (client && client->file == file)
			entered = enter(client, object, parent, group, &news);
		spin_unlock_irqrestore(&gs_registry_lock, flags);
	}
	if (!entered) {
		gs_count(GS_COUNT_LOST, 1);
		gs_free(object);
	}
	gs_group_put(group);
	tell(&news);
}

void gs_object_duplicated(const struct gs_nvos55 *dup)
{
	struct news news = {.dead = LIST_HEAD_INIT(news.dead)};
	struct gs_object *source, *object = gs_object_new(dup->object, 0, GS_KIND_CHANNEL);
	struct gs_client *client;
	unsigned long flags;
	bool entered = false, wanted;

	spin_lock_irqsave(&gs_registry_lock, flags);
	client = gs_find_client(dup->client);
	source = gs_find_object(dup->source_client, dup->source_object);
	wanted = client && source && source->kind != GS_KIND_CLIENT;
	if (wanted && object) {
		object->class_ = source->class_;
		object->kind = source->kind;
		object->device = source->device;
		object->believed = source->believed;
		entered = enter(client, object, dup->parent, source->group, &news);
	}
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	if (!entered)
		gs_free(object);
	if (wanted && !entered)
		gs_count(GS_COUNT_LOST, 1);
	news.tell = false; /* the same group under one more name */
	tell(&news);
}

void gs_object_freed(u32 client, u32 handle)
{
	struct gs_object *object;
	unsigned long flags;
	LIST_HEAD(dead);

	spin_lock_irqsave(&gs_registry_lock, flags);
	object = gs_find_object(client, handle);
	if (object)
		gs_unlink_tree(object, &dead);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	gs_bury(&dead);
}

/* The RM no longer knows the group: we missed its end. */
void gs_group_forget(struct gs_group *group)
{
	struct gs_object *name;
	unsigned long flags;
	LIST_HEAD(dead);

	spin_lock_irqsave(&gs_registry_lock, flags);
	while ((name = gs_first_name(group)))
		gs_unlink_tree(name, &dead);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	gs_bury(&dead);
}

void gs_owner_set_timeslice(u32 client, u32 handle, u32 us)
{
	struct gs_object *object;
	unsigned long flags;
	bool held = false;

	spin_lock_irqsave(&gs_registry_lock, flags);
	object = gs_find_object(client, handle);
	if (object && object->kind == GS_KIND_GROUP && READ_ONCE(object->group->setting[GS_FIELD_TIMESLICE].known)) {
		object->group->owner_timeslice = us;
		gs_attend(object->group);
		held = true;
	}
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	if (held)
		gs_watchdog_kick(0);
}

/* Only the client's own file may end it: nobody can make us forget another's. True when there was one. */
bool gs_client_ends(const void *file, u32 handle)
{
	struct gs_client *client;
	unsigned long flags;
	LIST_HEAD(dead);

	spin_lock_irqsave(&gs_registry_lock, flags);
	client = gs_find_client(handle);
	if (client && client->file == file)
		gs_unlink_tree(client->root, &dead);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	if (list_empty(&dead))
		return false;
	gs_bury(&dead);
	return true;
}

/* True when the file had clients. */
bool gs_file_closed(const void *file)
{
	struct gs_client *client;
	unsigned long flags;
	LIST_HEAD(dead);

	spin_lock_irqsave(&gs_registry_lock, flags);
	while ((client = gs_client_of_file(file)))
		gs_unlink_tree(client->root, &dead);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	if (list_empty(&dead))
		return false;
	gs_bury(&dead);
	return true;
}
