// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The generic netlink family. Only in the initial network namespace; whoever changes something, subscribes, or sees
 * other users' groups needs CAP_SYS_ADMIN in the initial user namespace, both now and when the socket was opened.
 */
#include <linux/pid_namespace.h>

#include "netlink.h"

bool gs_netlink_live;

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
	header = reply ? genlmsg_put_reply(reply, info, &gs_family, 0, GS_CMD_INFO) : NULL;
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
	header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &gs_family, NLM_F_MULTI, GS_CMD_LIST);
	if (!header)
		return -EMSGSIZE;
	if (gs_put_group(skb, &shown, pid) || gs_put_channels(skb, group)) {
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
	if (gs_put_group(reply, &shown, shown.pid) || nla_put_u64_64bit(reply, GS_A_TIMESLICE, us, GS_A_PAD))
		return -EMSGSIZE;
	return level->known ? nla_put_u32(reply, GS_A_INTERLEAVE, level->applied) : 0;
}

static int do_get(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *reply = NULL;
	struct gs_group *group;
	int error = gs_deny(skb, info);
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
	header = reply ? genlmsg_put_reply(reply, info, &gs_family, 0, GS_CMD_GET) : NULL;
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

static const struct genl_small_ops ops[] = {
    {.cmd = GS_CMD_INFO, .doit = do_info},
    {.cmd = GS_CMD_LIST, .dumpit = do_list},
    {.cmd = GS_CMD_GET, .doit = do_get},
    {.cmd = GS_CMD_CONTROL, .doit = gs_do_control},
    {.cmd = GS_CMD_RENEW, .doit = gs_do_renew},
    {.cmd = GS_CMD_RELEASE, .doit = gs_do_release},
    {.cmd = GS_CMD_PLAN_SET, .doit = gs_do_plan_set},
    {.cmd = GS_CMD_PLAN_BEGIN, .doit = gs_do_plan},
    {.cmd = GS_CMD_PLAN_END, .doit = gs_do_plan},
    {.cmd = GS_CMD_PLAN_DROP, .doit = gs_do_plan},
};

struct genl_family gs_family = {
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
	error = genl_register_family(&gs_family);
	if (error)
		netlink_unregister_notifier(&notifier);
	else
		WRITE_ONCE(gs_netlink_live, true);
	return error;
}

void gs_netlink_exit(void)
{
	WRITE_ONCE(gs_netlink_live, false);
	genl_unregister_family(&gs_family);
	netlink_unregister_notifier(&notifier);
}
