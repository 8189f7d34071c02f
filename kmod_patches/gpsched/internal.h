/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Shared by the parts of gpsched in the kernel.
 *
 * Locks, outermost first:
 *   gs_control_mutex   holds, plans, what was applied to a group; owned while RM controls are issued
 *   gs_registry_lock   clients, objects, groups, controllers; a spinlock with interrupts off, because the
 *                      companion module fills the registry from a kretprobe. Never owned across an RM call.
 * Readers in BPF programs, in any context, take neither: groups are found under RCU.
 * The driver's ioctl and close paths take only gs_registry_lock: they hold the power-management lock for reading,
 * and whoever owns gs_control_mutex may want it.
 */
#ifndef GPSCHED_INTERNAL_H
#define GPSCHED_INTERNAL_H

#include <linux/atomic.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/version.h>
#include <linux/workqueue.h>

#include "rmabi.h"
#include "uapi.h"

#undef pr_fmt
#define pr_fmt(fmt) "gpsched: " fmt

/* ---- the registry ---- */
#define GS_MAX_OBJECTS 8192 /* of one client; CUDA needs under a hundred */
#define GS_MAX_TOTAL (1 << 20)

enum gs_kind {
	GS_KIND_CLIENT,
	GS_KIND_DEVICE,
	GS_KIND_SUBDEVICE,
	GS_KIND_GROUP,
	GS_KIND_CHANNEL,
};

struct gs_client {
	struct hlist_node by_handle, by_file;
	struct gs_object *root;
	struct list_head flat;
	const void *file;
	struct pid *pid;
	kuid_t uid;
	u32 handle, objects;
};

/* One handle of one client. A group that was duplicated has several objects, and one gs_group. */
struct gs_object {
	struct hlist_node by_handle;
	struct list_head sibling, children; /* children end with their parent */
	struct list_head flat;		    /* all of the client's */
	struct list_head in_group;
	struct gs_object *parent;
	struct gs_client *client;
	struct gs_group *group;
	u32 handle, class_;
	u32 device; /* GS_KIND_DEVICE: instance; GS_KIND_SUBDEVICE: GPU id, or 0 */
	enum gs_kind kind;
	bool believed; /* test builds: the RM does not know it */
};

enum gs_field { GS_FIELD_TIMESLICE, GS_FIELD_INTERLEAVE, GS_FIELD_DISABLED, GS_FIELDS };

struct gs_setting {
	struct list_head holds; /* newest first: it wins */
	u32 original;		/* what the driver had before the first hold */
	u32 applied;
	u32 status; /* of the last control */
	bool known; /* original and applied are valid */
	bool stale; /* the owner changed it, or added a channel: apply again */
};

struct gs_group {
	struct hlist_node by_pid; /* RCU */
	struct rcu_head rcu;
	refcount_t refs;
	u64 id;
	struct list_head names, channels; /* gs_object, under gs_registry_lock */
	u32 pid;			  /* thread group, initial namespace */
	u32 device, engine;
	bool dead, told;
	/* under gs_control_mutex */
	struct gs_setting setting[GS_FIELDS];
	struct list_head dirty;
	u32 dirty_fields;
	bool in_batch;
	/* under gs_registry_lock */
	struct list_head attention;
	u32 owner_timeslice; /* set by the process itself since the last look; 0 if not */
	bool channels_changed;
};

/* A copy of what a control needs, so that no lock is owned while it runs. */
struct gs_names {
	u32 client, handle, subdevice_client, subdevice, channels;
	bool believed;
	u32 channel_client[64], channel[64];
};

/* The companion module's hooks run in atomic context. */
#ifdef GPSCHED_COMPANION
#define GS_GFP GFP_ATOMIC
#else
#define GS_GFP GFP_KERNEL_ACCOUNT
#endif

void *gs_alloc(size_t size, gfp_t gfp);
void gs_free(void *memory);
extern spinlock_t gs_registry_lock;
extern atomic64_t gs_counters[GS_COUNTERS];

void gs_registry_exit(void);
struct gs_group *gs_group_get(u64 id);
void gs_group_put(struct gs_group *group);
bool gs_group_changed(struct gs_group *group, u32 *owner_timeslice);
bool gs_group_names(struct gs_group *group, u32 first_channel, struct gs_names *names);
struct gs_group *gs_group_next(u64 after);
struct gs_group *gs_next_attention(void);
void gs_want_attention(struct gs_group *group);

/* with gs_registry_lock */
struct gpsched_group;
struct gs_group *gs_group_new(gfp_t gfp);
bool gs_group_begins(struct gs_group *group, struct gs_object *name);
void gs_group_ends(struct gs_group *group);
void gs_group_moves(struct gs_group *group, u32 pid);
void gs_attend(struct gs_group *group);
struct gs_object *gs_first_name(struct gs_group *group);
struct gs_object *gs_group_device(struct gs_object *name);
void gs_describe(struct gs_group *group, struct gs_object *name, struct gpsched_group *out);
void gs_groups_exit(void);

/* A snapshot for netlink and BPF. */
struct gpsched_group {
	__u64 id;
	__u64 cgroup;
	__u32 client, handle;
	__u32 pid, uid;
	__u32 engine, device;
	__u32 gpu, subdevice;
	__u32 channels, disabled;
};
bool gs_group_of_pid(u32 pid, u32 engine, struct gpsched_group *out);
bool gs_group_describe(struct gs_group *group, struct gpsched_group *out, struct pid **owner);

void gs_group_forget(struct gs_group *group);
void gs_group_set_gpu(struct gs_group *group, u32 gpu);
void gs_object_added(const void *file, u32 client, u32 parent, u32 handle, u32 class_, u32 value, bool believed);
void gs_object_freed(u32 client, u32 handle);
void gs_object_duplicated(const struct gs_nvos55 *dup);
void gs_owner_set_timeslice(u32 client, u32 handle, u32 us);
bool gs_client_ends(const void *file, u32 handle);
bool gs_file_closed(const void *file);

/* ---- control.c, settle.c, disable.c, watchdog.c: what is held, making it so, and undoing it ---- */
struct gs_controller {
	struct list_head all;
	struct list_head holds;
	refcount_t refs;
	u32 portid;
	bool closed;
	u32 n_holds, n_plans;
	atomic_t queued;
	u64 tokens_at; /* ns: when the bucket was last filled */
	u32 tokens;
};

struct gs_hold {
	struct list_head in_setting, in_owner;
	struct gs_group *group;
	struct gs_controller *owner;
	struct gs_plan *plan;
	enum gs_field field;
	u32 value;
	unsigned long expires;
};

struct gs_plan {
	struct rcu_head rcu;
	struct gs_controller *owner;
	u32 id, lease_ms, n;
	atomic_t request; /* 0, GS_CMD_PLAN_BEGIN or GS_CMD_PLAN_END: the latest wins */
	bool active;
	struct gs_action actions[];
};

extern struct mutex gs_control_mutex;

/*
 * Owned for reading from the look-up of handles to the end of the RM control on them. Whoever is about to free a client
 * takes it out of the registry and then waits here: no control can be on its way to it after that. Order: mutex, gate.
 */
extern struct rw_semaphore gs_gate;
#ifdef GPSCHED_COMPANION
static inline void gs_gate_wait(void) /* a probe may not sleep */
{
}
#else
static inline void gs_gate_wait(void)
{
	down_write(&gs_gate);
	up_write(&gs_gate);
}
#endif

extern struct workqueue_struct *gs_workqueue;

int gs_control_init(void);
void gs_control_exit(void);
void gs_hold_drop(struct gs_hold *hold, struct list_head *dirty);
void gs_mark(struct list_head *dirty, struct gs_group *group, enum gs_field field);
void gs_settle(struct list_head *dirty);
void gs_settle_disabled(struct list_head *dirty, u32 value);
u32 gs_wanted(struct gs_setting *setting);
u32 gs_issue(u32 client, u32 object, u32 cmd, void *params, u32 size);
u32 gs_preempt(struct gs_group *group, u32 timeout_us);
u32 gs_restart(struct gs_group *group, u32 value);
int gs_errno(u32 status);
void gs_check_by(unsigned long when);
void gs_watchdog_kick(unsigned int delay_ms);
struct gs_controller *gs_controller_get(u32 portid, bool create);
void gs_controller_put(struct gs_controller *controller);
void gs_controller_closed(u32 portid);
bool gs_controller_spend(struct gs_controller *controller, u32 actions);
int gs_actions_check(const struct gs_action *actions, u32 n);
int gs_apply(struct gs_controller *owner, struct gs_plan *plan, const struct gs_action *actions, u32 n,
	     struct gs_result *results, u32 lease_ms);
void gs_renew(struct gs_controller *owner, u32 lease_ms);
void gs_release(struct gs_controller *owner, struct gs_plan *plan);
u32 gs_read_timeslice(struct gs_group *group, u64 *us);

/* plan.c */
int gs_plan_set(struct gs_controller *owner, const struct gs_action *actions, u32 n, u32 lease_ms, u32 *id);
int gs_plan_run(u32 id, struct gs_controller *owner, enum gs_cmd what);
int gs_plan_drop(u32 id, struct gs_controller *owner);
int gs_plan_request(u32 id, enum gs_cmd what);
void gs_plans_drop_all(struct gs_controller *owner);
void gs_plan_exit(void);

/* netlink.c, message.c */
int gs_netlink_init(void);
void gs_netlink_exit(void);
void gs_notify_group(enum gs_cmd what, const struct gpsched_group *group);
bool gs_netlink_wanted(void);

/* kfunc.c */
int gs_kfunc_init(void);
extern bool gs_kfuncs_registered;
void gpsched_on_group(const struct gpsched_group *group, u32 added);
void gpsched_on_done(u32 portid, u64 cookie, int error);

/* rm.c or companion.c: the only way to the RM. May sleep; never in atomic context. */
#define GS_RM_SUSPENDED 0xfffffffeu /* not an NV_STATUS: the driver is being suspended, try later */
u32 gs_rm_control(u32 client, u32 object, u32 cmd, void *params, u32 size);
const char *gs_driver_version(void);
u32 gs_rm_features(void);

/* test.c; nothing at all in a product build */
#ifdef GPSCHED_TEST
bool gs_test_believes(u32 class_, u32 status);
u32 gs_test_control(u32 client, u32 object, u32 cmd, void *params, u32 size, u32 status);
void gs_test_init(void);
void gs_test_exit(void);
bool gs_object_believed(u32 client, u32 handle);
bool gs_test_fail_alloc(void);
#else
static inline bool gs_test_fail_alloc(void)
{
	return false;
}
static inline bool gs_test_believes(u32 class_, u32 status)
{
	return false;
}
static inline u32 gs_test_control(u32 client, u32 object, u32 cmd, void *params, u32 size, u32 status)
{
	return status;
}
static inline void gs_test_init(void)
{
}
static inline void gs_test_exit(void)
{
}
#endif

bool gs_status_gone(u32 status);

static inline void gs_count(enum gs_counter counter, int by)
{
	atomic64_add(by, &gs_counters[counter]);
}

#endif
