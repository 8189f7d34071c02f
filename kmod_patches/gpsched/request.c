// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The requests that change something: who may, how much at once, and what comes of it.
 */
#include "netlink.h"

#define MAX_QUEUED 128 /* asynchronous requests of one controller */

/* A request that changes something, from its arrival to its DONE. */
struct request {
	struct work_struct work;
	struct gs_controller *owner;
	u64 cookie;
	u32 portid, n, lease_ms;
	struct gs_result results[GS_MAX_ACTIONS];
	struct gs_action actions[GS_MAX_ACTIONS];
};

int gs_deny(struct sk_buff *skb, struct genl_info *info)
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
	int error = gs_deny(skb, info);
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

/* What counts against the rate limit. Giving back does not: what is held must not outlive the wish to end it. */
static u32 cost_of(const struct request *request)
{
	u32 index, cost = 0;

	for (index = 0; index < request->n; index++)
		switch (request->actions[index].op) {
		case GS_OP_ENABLE:
		case GS_OP_TIMESLICE_UNDO:
		case GS_OP_INTERLEAVE_UNDO:
			break;
		default:
			cost++;
		}
	return cost;
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
	skb = READ_ONCE(gs_netlink_live)
		  ? gs_done_message(request->portid, 0, request->cookie, request->results, request->n)
		  : NULL;
	if (skb && !READ_ONCE(request->owner->closed))
		genlmsg_unicast(&init_net, skb, request->portid);
	else
		nlmsg_free(skb);
	gs_announce_done(request->portid, request->cookie, request->results, request->n);
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

int gs_do_control(struct sk_buff *skb, struct genl_info *info)
{
	struct request *request = new_request(skb, info, true);
	bool async = info->attrs[GS_A_ASYNC];
	struct gs_controller *owner;
	struct sk_buff *reply;
	int error;

	if (IS_ERR(request))
		return PTR_ERR(request);
	mutex_lock(&gs_control_mutex);
	owner = enter(info, true, cost_of(request));
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
	reply = gs_done_message(info->snd_portid, info->snd_seq, request->cookie, request->results, request->n);
	gs_announce_done(request->portid, request->cookie, request->results, request->n);
	error = reply ? genlmsg_reply(reply, info) : -ENOMEM;
free:
	gs_free(request);
	return error;
}

int gs_do_renew(struct sk_buff *skb, struct genl_info *info)
{
	struct gs_controller *owner;
	int error = gs_deny(skb, info);

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

int gs_do_release(struct sk_buff *skb, struct genl_info *info)
{
	struct gs_controller *owner;
	int error = gs_deny(skb, info);

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
	void *header = reply ? genlmsg_put_reply(reply, info, &gs_family, 0, GS_CMD_PLAN_SET) : NULL;

	if (!header || nla_put_u32(reply, GS_A_PLAN, id)) {
		nlmsg_free(reply);
		return -ENOMEM;
	}
	genlmsg_end(reply, header);
	return genlmsg_reply(reply, info);
}

int gs_do_plan_set(struct sk_buff *skb, struct genl_info *info)
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

int gs_do_plan(struct sk_buff *skb, struct genl_info *info)
{
	struct gs_controller *owner;
	int error = gs_deny(skb, info);
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
