// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The generic netlink family. Only in the initial network namespace; whoever changes something, subscribes, or sees
 * other users' groups needs CAP_SYS_ADMIN in the initial user namespace, both now and when the socket was opened.
 */
#include <linux/netlink.h>
#include <linux/pid_namespace.h>
#include <net/genetlink.h>

#include "internal.h"

#define MAX_QUEUED 128 /* asynchronous requests of one controller */
#define MAX_CHANNELS_SHOWN 256

static struct genl_family family;
static bool live;

static struct netlink_range_validation lease_range = {.min = GS_MIN_LEASE_MS, .max = GS_MAX_LEASE_MS};

static const struct nla_policy policy[GS_A_MAX + 1] = {
    [GS_A_GROUP] = {.type = NLA_U64},
    [GS_A_PID] = {.type = NLA_U32},
    [GS_A_ACTIONS] = {.type = NLA_BINARY, .len = GS_MAX_ACTIONS * sizeof(struct gs_action)},
    [GS_A_LEASE_MS] = NLA_POLICY_FULL_RANGE(NLA_U32, &lease_range),
    [GS_A_COOKIE] = {.type = NLA_U64},
    [GS_A_ASYNC] = {.type = NLA_FLAG},
    [GS_A_PLAN] = {.type = NLA_U32},
};

static const struct genl_multicast_group groups[] = {
    {
	.name = GS_MCGRP_EVENTS,
#ifdef GENL_MCAST_CAP_SYS_ADMIN
	.flags = GENL_MCAST_CAP_SYS_ADMIN,
#endif
    },
};

/* A request that changes something, from its arrival to its DONE. */
struct request {
	struct work_struct work;
	struct gs_controller *owner;
	u64 cookie;
	u32 portid, n, lease_ms;
	struct gs_result results[GS_MAX_ACTIONS];
	struct gs_action actions[GS_MAX_ACTIONS];
};

static int deny(struct sk_buff *skb, struct genl_info *info)
{
	if (netlink_capable(skb, CAP_SYS_ADMIN))
		return 0;
	GENL_SET_ERR_MSG(info, "needs CAP_SYS_ADMIN in the initial user namespace");
	return -EPERM;
}

static u32 lease_of(struct genl_info *info)
{
	return info->attrs[GS_A_LEASE_MS] ? nla_get_u32(info->attrs[GS_A_LEASE_MS]) : GS_DEFAULT_LEASE_MS;
}

/* ---- messages ---- */

static int put_group(struct sk_buff *skb, const struct gpsched_group *group, u32 pid)
{
	if (nla_put_u64_64bit(skb, GS_A_GROUP, group->id, GS_A_PAD) || nla_put_u32(skb, GS_A_CLIENT, group->client) ||
	    nla_put_u32(skb, GS_A_HANDLE, group->handle) || nla_put_u32(skb, GS_A_PID, pid) ||
	    nla_put_u32(skb, GS_A_UID, group->uid) || nla_put_u64_64bit(skb, GS_A_CGROUP, group->cgroup, GS_A_PAD) ||
	    nla_put_u32(skb, GS_A_ENGINE, group->engine) || nla_put_u32(skb, GS_A_DEVICE, group->device) ||
	    nla_put_u32(skb, GS_A_DISABLED, group->disabled))
		return -EMSGSIZE;
	if (group->subdevice && nla_put_u32(skb, GS_A_SUBDEVICE, group->subdevice))
		return -EMSGSIZE;
	return group->gpu && nla_put_u32(skb, GS_A_GPU, group->gpu) ? -EMSGSIZE : 0;
}

static int put_channels(struct sk_buff *skb, struct gs_group *group)
{
	struct gs_names *names = kmalloc(sizeof(*names), GFP_KERNEL);
	u32 *pairs = kmalloc_array(MAX_CHANNELS_SHOWN, 2 * sizeof(u32), GFP_KERNEL);
	u32 count = 0, index;
	int error = -ENOMEM;

	while (names && pairs && count < MAX_CHANNELS_SHOWN && gs_group_names(group, count, names)) {
		for (index = 0; index < names->channels; index++) {
			pairs[2 * count] = names->channel_client[index];
			pairs[2 * count++ + 1] = names->channel[index];
		}
		if (names->channels < ARRAY_SIZE(names->channel))
			break;
	}
	if (names && pairs)
		error = nla_put(skb, GS_A_CHANNELS, count * 2 * sizeof(u32), pairs);
	kfree(names);
	kfree(pairs);
	return error;
}

static void broadcast(struct sk_buff *skb, void *header)
{
	genlmsg_end(skb, header);
	genlmsg_multicast(&family, skb, 0, 0, GFP_ATOMIC);
}

bool gs_netlink_wanted(void)
{
	return READ_ONCE(live) && genl_has_listeners(&family, &init_net, 0);
}

/* From the driver's ioctl or close path: must not sleep in the companion module. */
void gs_notify_group(enum gs_cmd what, const struct gpsched_group *group)
{
	struct sk_buff *skb;
	void *header;

	if (!gs_netlink_wanted())
		return;
	skb = genlmsg_new(NLMSG_GOODSIZE, GFP_ATOMIC);
	if (!skb)
		return;
	header = genlmsg_put(skb, 0, 0, &family, 0, what);
	if (!header || put_group(skb, group, group->pid))
		nlmsg_free(skb);
	else
		broadcast(skb, header);
}

static int first_error(const struct gs_result *results, u32 n, u32 *status)
{
	u32 index;

	for (index = 0; index < n; index++)
		if (results[index].error) {
			*status = results[index].status;
			return results[index].error;
		}
	*status = 0;
	return 0;
}

static int put_done(struct sk_buff *skb, u64 cookie, const struct gs_result *results, u32 n)
{
	u32 status;
	int error = first_error(results, n, &status);

	if (nla_put_u64_64bit(skb, GS_A_COOKIE, cookie, GS_A_PAD) || nla_put_s32(skb, GS_A_ERROR, error) ||
	    nla_put_u32(skb, GS_A_STATUS, status))
		return -EMSGSIZE;
	return nla_put(skb, GS_A_RESULTS, n * sizeof(*results), results);
}

static struct sk_buff *done_message(u32 portid, u32 seq, u64 cookie, const struct gs_result *results, u32 n)
{
	struct sk_buff *skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	void *header = skb ? genlmsg_put(skb, portid, seq, &family, 0, GS_CMD_DONE) : NULL;

	if (!header || put_done(skb, cookie, results, n)) {
		nlmsg_free(skb);
		return NULL;
	}
	genlmsg_end(skb, header);
	return skb;
}

static void announce_done(u32 portid, u64 cookie, const struct gs_result *results, u32 n)
{
	struct sk_buff *skb;
	u32 status;

	gpsched_on_done(portid, cookie, first_error(results, n, &status));
	if (!gs_netlink_wanted())
		return;
	skb = done_message(0, 0, cookie, results, n);
	if (skb)
		genlmsg_multicast(&family, skb, 0, 0, GFP_KERNEL);
}

/* ---- reading ---- */

static int do_info(struct sk_buff *skb, struct genl_info *info)
{
	u32 features = gs_rm_features() | (gs_kfuncs_registered ? GS_FEATURE_KFUNCS : 0);
	struct sk_buff *reply = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	u64 counters[GS_COUNTERS];
	void *header;
	int index;

	if (IS_ENABLED(GPSCHED_TEST)) /* 1 in test builds */
		features |= GS_FEATURE_TEST;
	for (index = 0; index < GS_COUNTERS; index++)
		counters[index] = atomic64_read(&gs_counters[index]);
	header = reply ? genlmsg_put_reply(reply, info, &family, 0, GS_CMD_INFO) : NULL;
	if (!header || nla_put_u32(reply, GS_A_VERSION, GS_FAMILY_VERSION) ||
	    nla_put_u32(reply, GS_A_FEATURES, features) || nla_put_string(reply, GS_A_DRIVER, gs_driver_version()) ||
	    nla_put(reply, GS_A_COUNTERS, sizeof(counters), counters)) {
		nlmsg_free(reply);
		return -ENOMEM;
	}
	genlmsg_end(reply, header);
	return genlmsg_reply(reply, info);
}

/* Once for each subdevice: the RM's GPU id, the same in every process. */
static void find_gpu(struct gs_group *group, struct gpsched_group *shown)
{
	u32 gpu = 0, status = GS_NV_ERR_GENERIC;

	if (shown->gpu || !shown->subdevice)
		return;
	mutex_lock(&gs_control_mutex);
	down_read(&gs_gate);
	if (!gs_group_describe(group, shown, NULL)) /* again: it may have died since */
		goto unlock;
	status = gs_rm_control(shown->client, shown->subdevice, GS_RM_GPU_GET_ID, &gpu, sizeof(gpu));
	status = gs_test_control(shown->client, shown->subdevice, GS_RM_GPU_GET_ID, &gpu, sizeof(gpu), status);
unlock:
	up_read(&gs_gate);
	mutex_unlock(&gs_control_mutex);
	if (!status && gpu) {
		gs_group_set_gpu(group, gpu);
		shown->gpu = gpu;
	}
}

static int put_listed(struct sk_buff *skb, struct netlink_callback *cb, struct gs_group *group, u32 pid_wanted)
{
	bool all = netlink_capable(cb->skb, CAP_SYS_ADMIN);
	kuid_t uid = NETLINK_CB(cb->skb).creds.uid;
	struct gpsched_group shown;
	struct pid *owner;
	void *header;
	u32 pid;

	if (!gs_group_describe(group, &shown, &owner))
		return 0;
	pid = pid_nr_ns(owner, task_active_pid_ns(current));
	put_pid(owner);
	if ((pid_wanted && pid != pid_wanted) || (!all && !uid_eq(uid, make_kuid(&init_user_ns, shown.uid))))
		return 0;
	if (all)
		find_gpu(group, &shown);
	header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &family, NLM_F_MULTI, GS_CMD_LIST);
	if (!header)
		return -EMSGSIZE;
	if (put_group(skb, &shown, pid) || put_channels(skb, group)) {
		genlmsg_cancel(skb, header);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return 0;
}

static int do_list(struct sk_buff *skb, struct netlink_callback *cb)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0) /* 5aa51d9f889c: attributes moved into genl_info */
	struct nlattr **attrs = genl_info_dump(cb)->attrs;
#else
	struct nlattr **attrs = genl_dumpit_info(cb)->attrs;
#endif
	u32 pid = attrs && attrs[GS_A_PID] ? nla_get_u32(attrs[GS_A_PID]) : 0;
	struct gs_group *group;
	int error = 0;

	while (!error && (group = gs_group_next(cb->args[0]))) {
		error = put_listed(skb, cb, group, pid);
		if (!error)
			cb->args[0] = group->id;
		gs_group_put(group);
		cond_resched();
	}
	return error && !skb->len ? error : skb->len;
}

static int put_state(struct sk_buff *reply, struct gs_group *group, u64 us)
{
	struct gs_setting *level = &group->setting[GS_FIELD_INTERLEAVE];
	struct gpsched_group shown;

	if (!gs_group_describe(group, &shown, NULL))
		return -ESRCH;
	if (put_group(reply, &shown, shown.pid) || nla_put_u64_64bit(reply, GS_A_TIMESLICE, us, GS_A_PAD))
		return -EMSGSIZE;
	return level->known ? nla_put_u32(reply, GS_A_INTERLEAVE, level->applied) : 0;
}

static int do_get(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *reply = NULL;
	struct gs_group *group;
	int error = deny(skb, info);
	void *header;
	u32 status;
	u64 us;

	if (error)
		return error;
	if (!info->attrs[GS_A_GROUP])
		return -EINVAL;
	group = gs_group_get(nla_get_u64(info->attrs[GS_A_GROUP]));
	if (!group)
		return -ESRCH;
	mutex_lock(&gs_control_mutex);
	status = gs_read_timeslice(group, &us);
	reply = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	header = reply ? genlmsg_put_reply(reply, info, &family, 0, GS_CMD_GET) : NULL;
	error = status ? (gs_status_gone(status) ? -ESRCH : status == GS_RM_SUSPENDED ? -EAGAIN : -EIO) : 0;
	error = error ?: header ? put_state(reply, group, us) : -ENOMEM;
	mutex_unlock(&gs_control_mutex);
	gs_group_put(group);
	if (error) {
		nlmsg_free(reply);
		return error;
	}
	genlmsg_end(reply, header);
	return genlmsg_reply(reply, info);
}

/* ---- changing ---- */

static int take_actions(struct genl_info *info, struct request *request)
{
	struct nlattr *attr = info->attrs[GS_A_ACTIONS];
	int error;

	if (!attr || !nla_len(attr) || nla_len(attr) % sizeof(struct gs_action)) {
		GENL_SET_ERR_MSG(info, "ACTIONS must be 1 to 64 records of 16 bytes");
		return -EINVAL;
	}
	request->n = nla_len(attr) / sizeof(struct gs_action);
	nla_memcpy(request->actions, attr, sizeof(request->actions));
	error = gs_actions_check(request->actions, request->n);
	if (error)
		NL_SET_ERR_MSG_ATTR(info->extack, attr, "an operation is unknown or its value is out of range");
	return error;
}

static struct request *new_request(struct sk_buff *skb, struct genl_info *info, bool actions)
{
	int error = deny(skb, info);
	struct request *request;

	if (error)
		return ERR_PTR(error);
	request = gs_alloc(sizeof(*request), GFP_KERNEL);
	if (!request)
		return ERR_PTR(-ENOMEM);
	request->portid = info->snd_portid;
	request->lease_ms = lease_of(info);
	if (info->attrs[GS_A_COOKIE])
		request->cookie = nla_get_u64(info->attrs[GS_A_COOKIE]);
	error = actions ? take_actions(info, request) : 0;
	if (error) {
		gs_free(request);
		return ERR_PTR(error);
	}
	return request;
}

/* With the mutex: the socket's controller, if it may do that much now. */
static struct gs_controller *enter(struct genl_info *info, bool create, u32 cost)
{
	struct gs_controller *owner = gs_controller_get(info->snd_portid, create);

	if (!owner)
		return ERR_PTR(-ENOENT);
	if (IS_ERR(owner)) {
		GENL_SET_ERR_MSG(info, "too many controllers, or no memory");
		return owner;
	}
	if (!gs_controller_spend(owner, cost)) {
		GENL_SET_ERR_MSG(info, "too many requests; wait");
		gs_controller_put(owner);
		return ERR_PTR(-EBUSY);
	}
	return owner;
}

static void run_async(struct work_struct *work)
{
	struct request *request = container_of(work, struct request, work);
	struct sk_buff *skb;

	mutex_lock(&gs_control_mutex);
	gs_apply(request->owner, NULL, request->actions, request->n, request->results, request->lease_ms);
	mutex_unlock(&gs_control_mutex);
	atomic_dec(&request->owner->queued);
	skb = READ_ONCE(live) ? done_message(request->portid, 0, request->cookie, request->results, request->n) : NULL;
	if (skb && !READ_ONCE(request->owner->closed))
		genlmsg_unicast(&init_net, skb, request->portid);
	else
		nlmsg_free(skb);
	announce_done(request->portid, request->cookie, request->results, request->n);
	gs_controller_put(request->owner);
	gs_free(request);
}

static int start_async(struct request *request, struct gs_controller *owner)
{
	if (atomic_inc_return(&owner->queued) > MAX_QUEUED) {
		atomic_dec(&owner->queued);
		gs_count(GS_COUNT_LIMITED, 1);
		return -EBUSY;
	}
	request->owner = owner;
	INIT_WORK(&request->work, run_async);
	queue_work(gs_workqueue, &request->work);
	return 0;
}

static int do_control(struct sk_buff *skb, struct genl_info *info)
{
	struct request *request = new_request(skb, info, true);
	bool async = info->attrs[GS_A_ASYNC];
	struct gs_controller *owner;
	struct sk_buff *reply;
	int error;

	if (IS_ERR(request))
		return PTR_ERR(request);
	mutex_lock(&gs_control_mutex);
	owner = enter(info, true, request->n);
	if (IS_ERR(owner)) {
		error = PTR_ERR(owner);
		mutex_unlock(&gs_control_mutex);
		goto free;
	}
	if (async) {
		error = start_async(request, owner);
		mutex_unlock(&gs_control_mutex);
		if (!error)
			return 0; /* the worker frees request and owner */
		gs_controller_put(owner);
		goto free;
	}
	gs_apply(owner, NULL, request->actions, request->n, request->results, request->lease_ms);
	mutex_unlock(&gs_control_mutex);
	gs_controller_put(owner);
	reply = done_message(info->snd_portid, info->snd_seq, request->cookie, request->results, request->n);
	announce_done(request->portid, request->cookie, request->results, request->n);
	error = reply ? genlmsg_reply(reply, info) : -ENOMEM;
free:
	gs_free(request);
	return error;
}

static int do_renew(struct sk_buff *skb, struct genl_info *info)
{
	struct gs_controller *owner;
	int error = deny(skb, info);

	if (error)
		return error;
	mutex_lock(&gs_control_mutex);
	owner = enter(info, false, 1);
	error = PTR_ERR_OR_ZERO(owner);
	if (!error) {
		gs_renew(owner, lease_of(info));
		gs_controller_put(owner);
	}
	mutex_unlock(&gs_control_mutex);
	return error == -ENOENT ? 0 : error; /* nothing held: nothing to renew */
}

static int do_release(struct sk_buff *skb, struct genl_info *info)
{
	struct gs_controller *owner;
	int error = deny(skb, info);

	if (error)
		return error;
	mutex_lock(&gs_control_mutex);
	owner = gs_controller_get(info->snd_portid, false);
	if (!IS_ERR_OR_NULL(owner)) {
		gs_release(owner, NULL);
		gs_plans_drop_all(owner);
		gs_controller_put(owner);
	}
	mutex_unlock(&gs_control_mutex);
	return 0;
}

static int reply_plan(struct genl_info *info, u32 id)
{
	struct sk_buff *reply = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	void *header = reply ? genlmsg_put_reply(reply, info, &family, 0, GS_CMD_PLAN_SET) : NULL;

	if (!header || nla_put_u32(reply, GS_A_PLAN, id)) {
		nlmsg_free(reply);
		return -ENOMEM;
	}
	genlmsg_end(reply, header);
	return genlmsg_reply(reply, info);
}

static int do_plan_set(struct sk_buff *skb, struct genl_info *info)
{
	struct request *request = new_request(skb, info, true);
	struct gs_controller *owner;
	int error;
	u32 id;

	if (IS_ERR(request))
		return PTR_ERR(request);
	mutex_lock(&gs_control_mutex);
	owner = enter(info, true, 1);
	error = PTR_ERR_OR_ZERO(owner);
	if (!error) {
		error = gs_plan_set(owner, request->actions, request->n, request->lease_ms, &id);
		gs_controller_put(owner);
	}
	mutex_unlock(&gs_control_mutex);
	gs_free(request);
	return error ?: reply_plan(info, id);
}

static int do_plan(struct sk_buff *skb, struct genl_info *info)
{
	struct gs_controller *owner;
	int error = deny(skb, info);
	u32 id;

	if (error)
		return error;
	if (!info->attrs[GS_A_PLAN])
		return -EINVAL;
	id = nla_get_u32(info->attrs[GS_A_PLAN]);
	mutex_lock(&gs_control_mutex);
	/* Giving back is never refused. */
	owner = enter(info, false, info->genlhdr->cmd == GS_CMD_PLAN_BEGIN ? 1 : 0);
	error = PTR_ERR_OR_ZERO(owner);
	if (!error) {
		error = info->genlhdr->cmd == GS_CMD_PLAN_DROP ? gs_plan_drop(id, owner)
							       : gs_plan_run(id, owner, info->genlhdr->cmd);
		gs_controller_put(owner);
	}
	mutex_unlock(&gs_control_mutex);
	return error;
}

static const struct genl_small_ops ops[] = {
    {.cmd = GS_CMD_INFO, .doit = do_info},	   {.cmd = GS_CMD_LIST, .dumpit = do_list},
    {.cmd = GS_CMD_GET, .doit = do_get},	   {.cmd = GS_CMD_CONTROL, .doit = do_control},
    {.cmd = GS_CMD_RENEW, .doit = do_renew},	   {.cmd = GS_CMD_RELEASE, .doit = do_release},
    {.cmd = GS_CMD_PLAN_SET, .doit = do_plan_set}, {.cmd = GS_CMD_PLAN_BEGIN, .doit = do_plan},
    {.cmd = GS_CMD_PLAN_END, .doit = do_plan},	   {.cmd = GS_CMD_PLAN_DROP, .doit = do_plan},
};

static struct genl_family family = {
    .name = GS_FAMILY,
    .version = GS_FAMILY_VERSION,
    .maxattr = GS_A_MAX,
    .policy = policy,
    .module = THIS_MODULE,
    .parallel_ops = true, /* a control takes as long as the GPU's firmware; other families must not wait for it */
    .small_ops = ops,
    .n_small_ops = ARRAY_SIZE(ops),
    .mcgrps = groups,
    .n_mcgrps = ARRAY_SIZE(groups),
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0) /* 9c5d03d36251 */
    .resv_start_op = GS_CMD_PLAN_DROP + 1,
#endif
};

static int socket_closed(struct notifier_block *block, unsigned long event, void *data)
{
	struct netlink_notify *notify = data;

	if (event == NETLINK_URELEASE && notify->protocol == NETLINK_GENERIC && net_eq(notify->net, &init_net))
		gs_controller_closed(notify->portid);
	return NOTIFY_DONE;
}

static struct notifier_block notifier = {.notifier_call = socket_closed};

int gs_netlink_init(void)
{
	int error = netlink_register_notifier(&notifier);

	if (error)
		return error;
	error = genl_register_family(&family);
	if (error)
		netlink_unregister_notifier(&notifier);
	else
		WRITE_ONCE(live, true);
	return error;
}

void gs_netlink_exit(void)
{
	WRITE_ONCE(live, false);
	genl_unregister_family(&family);
	netlink_unregister_notifier(&notifier);
}
