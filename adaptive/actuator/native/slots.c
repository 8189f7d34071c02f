/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors by number. A client of the driver lives until its last descriptor closes, so a copy that is kept keeps a
 * dead program's GPU memory: slots of a process are closed when its pidfd reports the exit, not when the daemon says
 * so.
 */
#include "actuator.h"

#include <errno.h>
#include <unistd.h>

int slot_put(struct actuator *a, const struct ga_message *message, int fd)
{
	struct slot *slot = &a->slots[message->slot];
	struct gs_hold_page *page = NULL;

	if (message->slot >= GA_MAX_SLOTS || slot->fd >= 0) {
		close(fd);
		return -EINVAL;
	}
	if (message->kind == GA_SLOT_AGENT) {
		page = hold_map(fd);
		if (!page) {
			close(fd);
			return -EINVAL;
		}
	}
	*slot = (struct slot){.fd = fd, .kind = message->kind, .pid = message->pid, .page = page};
	a->shared->counters.descriptors++;
	return 0;
}

void slot_drop(struct actuator *a, __u32 index)
{
	if (index < GA_MAX_SLOTS && a->slots[index].fd >= 0)
		a->slots[index].dropped = true;
	slots_sweep(a);
}

static bool is_needed(const struct actuator *a, const struct slot *slot)
{
	__u32 index = (__u32)(slot - a->slots);

	if (slot->users)
		return true;
	for_each_group(a,
		       g) if (g->used && !g->dead && g->plan.slot == index && slot->kind == GA_SLOT_DRIVER) return true;
	for_each_plan(a, p) if (p->used && p->hold && p->plan.agent_slot == index) return true;
	return false;
}

void slots_sweep(struct actuator *a)
{
	for_each_slot(a, s)
	{
		if (s->fd < 0 || !s->dropped || is_needed(a, s))
			continue;
		if (s->page)
			hold_unmap(s->page);
		if (s->kind == GA_SLOT_PIDFD)
			unwatch(s->fd); /* closing is not enough: the daemon has the same open file */
		close(s->fd);
		*s = (struct slot){.fd = -1};
		a->shared->counters.descriptors--;
	}
}
