/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Shared by the three files of the generic netlink family: netlink.c, request.c, message.c. */
#ifndef GPSCHED_NETLINK_H
#define GPSCHED_NETLINK_H

#include <linux/netlink.h>
#include <net/genetlink.h>

#include "internal.h"

extern struct genl_family gs_family;
extern bool gs_netlink_live;

/* request.c */
int gs_deny(struct sk_buff *skb, struct genl_info *info);
int gs_do_control(struct sk_buff *skb, struct genl_info *info);
int gs_do_renew(struct sk_buff *skb, struct genl_info *info);
int gs_do_release(struct sk_buff *skb, struct genl_info *info);
int gs_do_plan_set(struct sk_buff *skb, struct genl_info *info);
int gs_do_plan(struct sk_buff *skb, struct genl_info *info);

/* message.c */
int gs_put_group(struct sk_buff *skb, const struct gpsched_group *group, u32 pid);
int gs_put_channels(struct sk_buff *skb, struct gs_group *group);
struct sk_buff *gs_done_message(u32 portid, u32 seq, u64 cookie, const struct gs_result *results, u32 n);
void gs_announce_done(u32 portid, u64 cookie, const struct gs_result *results, u32 n);

#endif
