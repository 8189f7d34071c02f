// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Channel groups: found by number, by process, described. They are what controls act on; the registry makes and ends
 * them as the objects that name them come and go. Functions without a lock of their own want gs_registry_lock.
 */
#include <linux/cgroup.h>
#include <linux/hashtable.h>
#include <linux/sched/signal.h>
#include <linux/xarray.h>

#include "internal.h"

static DEFINE_HASHTABLE(groups_by_pid, 10); /* RCU */
static DEFINE_XARRAY_FLAGS(groups_by_id, XA_FLAGS_LOCK_IRQ);
static LIST_HEAD(attention);
static u64 last_id;

static void group_free(struct rcu_head *rcu)
{
	gs_free(container_of(rcu, struct gs_group, rcu));
}

void gs_group_put(struct gs_group *group)
{
	if (group && refcount_dec_and_test(&group->refs))
		call_rcu(&group->rcu, group_free);
}

struct gs_group *gs_group_get(u64 id)
{
	struct gs_group *group;

	rcu_read_lock();
	group = xa_load(&groups_by_id, id);
	if (group && !refcount_inc_not_zero(&group->refs))
		group = NULL;
	rcu_read_unlock();
	return group;
}

struct gs_group *gs_group_next(u64 after)
{
	unsigned long index = after + 1;
	struct gs_group *group;

	rcu_read_lock();
	do
		group = xa_find(&groups_by_id, &index, ULONG_MAX, XA_PRESENT);
	while (group && !refcount_inc_not_zero(&group->refs) && ++index);
	rcu_read_unlock();
	return group;
}

struct gs_group *gs_group_new(gfp_t gfp)
{
	struct gs_group *group = gs_alloc(sizeof(*group), gfp);
	int field;

	if (!group)
		return NULL;
	refcount_set(&group->refs, 1);
	INIT_LIST_HEAD(&group->names);
	INIT_LIST_HEAD(&group->channels);
	INIT_LIST_HEAD(&group->dirty);
	INIT_LIST_HEAD(&group->attention);
	for (field = 0; field < GS_FIELDS; field++)
		INIT_LIST_HEAD(&group->setting[field].holds);
	return group;
}

void gs_attend(struct gs_group *group)
{
	if (!list_empty(&group->attention))
		return;
	refcount_inc(&group->refs);
	list_add_tail(&group->attention, &attention);
}

void gs_want_attention(struct gs_group *group)
{
	unsigned long flags;

	spin_lock_irqsave(&gs_registry_lock, flags);
	gs_attend(group);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
}

/* Returns with a reference, or NULL when no group needs the watchdog. */
struct gs_group *gs_next_attention(void)
{
	struct gs_group *group;
	unsigned long flags;

	spin_lock_irqsave(&gs_registry_lock, flags);
	group = list_first_entry_or_null(&attention, struct gs_group, attention);
	if (group)
		list_del_init(&group->attention);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	return group;
}

/* What happened to a group since the last look; true when it has new channels. */
bool gs_group_changed(struct gs_group *group, u32 *owner_timeslice)
{
	unsigned long flags;
	bool changed;

	spin_lock_irqsave(&gs_registry_lock, flags);
	changed = group->channels_changed;
	*owner_timeslice = group->owner_timeslice;
	group->channels_changed = false;
	group->owner_timeslice = 0;
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	return changed;
}

struct gs_object *gs_group_device(struct gs_object *name)
{
	while (name && name->kind != GS_KIND_DEVICE)
		name = name->parent;
	return name;
}

static struct gs_object *group_subdevice(struct gs_object *name)
{
	struct gs_object *child, *device = gs_group_device(name);

	if (device)
		list_for_each_entry(child, &device->children, sibling)
			if (child->kind == GS_KIND_SUBDEVICE)
				return child;
	return NULL;
}

struct gs_object *gs_first_name(struct gs_group *group)
{
	return list_first_entry_or_null(&group->names, struct gs_object, in_group);
}

/* Fills names with up to 64 channels from first_channel on; false when the group is gone. */
bool gs_group_names(struct gs_group *group, u32 first_channel, struct gs_names *names)
{
	struct gs_object *name, *channel, *subdevice;
	unsigned long flags;
	u32 index = 0;

	memset(names, 0, sizeof(*names));
	spin_lock_irqsave(&gs_registry_lock, flags);
	name = gs_first_name(group);
	if (name) {
		names->client = name->client->handle;
		names->handle = name->handle;
		names->believed = name->believed;
		subdevice = group_subdevice(name);
		if (subdevice) {
			names->subdevice_client = subdevice->client->handle;
			names->subdevice = subdevice->handle;
		}
		list_for_each_entry(channel, &group->channels, in_group) {
			if (index++ < first_channel)
				continue;
			if (names->channels == ARRAY_SIZE(names->channel))
				break;
			names->channel_client[names->channels] = channel->client->handle;
			names->channel[names->channels++] = channel->handle;
		}
	}
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	return name != NULL;
}

static u64 cgroup_of(struct pid *pid)
{
	struct task_struct *task;
	u64 id = 0;

	rcu_read_lock();
	task = pid_task(pid, PIDTYPE_TGID);
	if (task)
		id = cgroup_id(task_dfl_cgroup(task));
	rcu_read_unlock();
	return id;
}

void gs_describe(struct gs_group *group, struct gs_object *name, struct gpsched_group *out)
{
	struct gs_object *subdevice = group_subdevice(name), *channel;

	memset(out, 0, sizeof(*out));
	out->id = group->id;
	out->client = name->client->handle;
	out->handle = name->handle;
	out->pid = pid_nr(name->client->pid);
	out->uid = from_kuid(&init_user_ns, name->client->uid);
	out->cgroup = cgroup_of(name->client->pid);
	out->engine = group->engine;
	out->device = group->device;
	out->gpu = subdevice ? subdevice->device : 0;
	out->subdevice = subdevice ? subdevice->handle : 0;
	out->disabled = READ_ONCE(group->setting[GS_FIELD_DISABLED].applied);
	list_for_each_entry(channel, &group->channels, in_group)
		out->channels++;
}

/* False when the group is gone. With `owner`, the caller gets a reference to the owner's pid. */
bool gs_group_describe(struct gs_group *group, struct gpsched_group *out, struct pid **owner)
{
	struct gs_object *name;
	unsigned long flags;

	spin_lock_irqsave(&gs_registry_lock, flags);
	name = gs_first_name(group);
	if (name)
		gs_describe(group, name, out);
	if (name && owner)
		*owner = get_pid(name->client->pid);
	spin_unlock_irqrestore(&gs_registry_lock, flags);
	return name != NULL;
}

void gs_group_set_gpu(struct gs_group *group, u32 gpu)
{
	struct gs_object *subdevice;
	unsigned long flags;

	spin_lock_irqsave(&gs_registry_lock, flags);
	subdevice = group_subdevice(gs_first_name(group));
	if (subdevice)
		subdevice->device = gpu;
	spin_unlock_irqrestore(&gs_registry_lock, flags);
}

/*
 * For BPF programs, in any context: the group of a process with the strongest claim to the engine. Only what never
 * changes, or changes as one word, is filled in.
 */
bool gs_group_of_pid(u32 pid, u32 engine, struct gpsched_group *out)
{
	struct gs_group *group;
	bool found = false;

	rcu_read_lock();
	hash_for_each_possible_rcu(groups_by_pid, group, by_pid, pid) {
		if (READ_ONCE(group->pid) != pid || READ_ONCE(group->dead))
			continue;
		if (engine && READ_ONCE(group->engine) != engine)
			continue;
		memset(out, 0, sizeof(*out));
		out->id = group->id;
		out->pid = pid;
		out->engine = READ_ONCE(group->engine);
		out->device = group->device;
		out->disabled = READ_ONCE(group->setting[GS_FIELD_DISABLED].applied);
		found = true;
		break;
	}
	rcu_read_unlock();
	return found;
}

bool gs_group_begins(struct gs_group *group, struct gs_object *name)
{
	struct gs_object *device = gs_group_device(name);

	group->id = ++last_id;
	group->pid = pid_nr(name->client->pid);
	group->device = device ? device->device : 0;
	if (xa_err(xa_store(&groups_by_id, group->id, group, GFP_ATOMIC)))
		return false;
	hash_add_rcu(groups_by_pid, &group->by_pid, group->pid);
	gs_count(GS_COUNT_GROUPS, 1);
	return true;
}

void gs_group_ends(struct gs_group *group)
{
	WRITE_ONCE(group->dead, true);
	xa_erase(&groups_by_id, group->id);
	hash_del_rcu(&group->by_pid);
	gs_count(GS_COUNT_GROUPS, -1);
	gs_attend(group);
}

/* A forked child took the client over. */
void gs_group_moves(struct gs_group *group, u32 pid)
{
	if (group->dead)
		return;
	hash_del_rcu(&group->by_pid);
	WRITE_ONCE(group->pid, pid);
	hash_add_rcu(groups_by_pid, &group->by_pid, pid);
}

/* At the end of the module, when no group is left. */
void gs_groups_exit(void)
{
	struct gs_group *group;

	while ((group = gs_next_attention()))
		gs_group_put(group);
	rcu_barrier();
	xa_destroy(&groups_by_id);
}
