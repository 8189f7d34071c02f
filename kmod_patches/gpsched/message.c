// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * What is told over generic netlink: groups, the outcome of a control, and the events that everyone subscribed gets.
 */
#include "netlink.h"

#define MAX_CHANNELS_SHOWN 256

int gs_put_group(struct sk_buff *skb, const struct gpsched_group *group, u32 pid)
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

int gs_put_channels(struct sk_buff *skb, struct gs_group *group)
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
	genlmsg_multicast(&gs_family, skb, 0, 0, GFP_ATOMIC);
}

bool gs_netlink_wanted(void)
{
	return READ_ONCE(gs_netlink_live) && genl_has_listeners(&gs_family, &init_net, 0);
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
	header = genlmsg_put(skb, 0, 0, &gs_family, 0, what);
	if (!header || gs_put_group(skb, group, group->pid))
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

struct sk_buff *gs_done_message(u32 portid, u32 seq, u64 cookie, const struct gs_result *results, u32 n)
{
	struct sk_buff *skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	void *header = skb ? genlmsg_put(skb, portid, seq, &gs_family, 0, GS_CMD_DONE) : NULL;

	if (!header || put_done(skb, cookie, results, n)) {
		nlmsg_free(skb);
		return NULL;
	}
	genlmsg_end(skb, header);
	return skb;
}

void gs_announce_done(u32 portid, u64 cookie, const struct gs_result *results, u32 n)
{
	struct sk_buff *skb;
	u32 status;

	gpsched_on_done(portid, cookie, first_error(results, n, &status));
	if (!gs_netlink_wanted())
		return;
	skb = gs_done_message(0, 0, cookie, results, n);
	if (skb)
		genlmsg_multicast(&gs_family, skb, 0, 0, GFP_KERNEL);
}
