/* SPDX-License-Identifier: Apache-2.0 */
/* The bound of reserved time, so that best-effort work keeps its floor. */
#include "actuator.h"

#define BUDGET_WINDOW_NS 1000000000ll /* reserved time may be used up at once within this */

__s64 budget_left(struct gpu *u, __u64 now)
{
	__s64 share = u->plan.max_reserved_permille, full = BUDGET_WINDOW_NS / 1000 * share;
	__s64 elapsed = (__s64)earlier(now - u->budget_at, 2 * BUDGET_WINDOW_NS);

	if (!share)
		return INT64_MAX;
	u->budget_ns += elapsed / 1000 * share;
	u->budget_at = now;
	if (u->budget_ns > full)
		u->budget_ns = full;
	if (u->budget_ns >= full / 4)
		u->exhausted = false;
	return u->exhausted ? 0 : u->budget_ns; /* not crumbs: a cut reservation helps nobody */
}

void budget_spend(struct gpu *u, __u64 spent_ns)
{
	if (!u->plan.max_reserved_permille)
		return;
	u->budget_ns -= (__s64)spent_ns;
	u->exhausted |= u->budget_ns <= 0;
}
