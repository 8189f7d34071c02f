/* SPDX-License-Identifier: Apache-2.0 */
#include "actuator.h"

static __u64 working_ns(const struct gpu *u)
{
	return (u->plan.break_every_us - u->plan.break_us) * US;
}

/* A rhythm that goes on keeps its place across plans. */
void breaks_publish(struct gpu *u, __u64 now)
{
	if (!u->plan.break_us || u->plan.break_us >= u->plan.break_every_us) {
		u->on_break = false;
		u->break_at = NEVER;
	} else if (u->break_at == NEVER) {
		u->break_at = now + working_ns(u);
	}
}

void breaks_tick(struct gpu *u, __u64 now)
{
	if (now < u->break_at)
		return;
	u->on_break = !u->on_break;
	u->break_at = now + (u->on_break ? u->plan.break_us * US : working_ns(u));
	gpu_settle(u->actuator, u->index, now);
}
