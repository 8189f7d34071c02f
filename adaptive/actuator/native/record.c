/* SPDX-License-Identifier: Apache-2.0 */
#include "actuator.h"

/* The sequence number is written last: a reader takes a record only if the number is the expected one before and after.
 */
void record_write(struct actuator *a, struct ga_record *record)
{
	__u64 sequence = a->shared->record_count + 1;
	struct ga_record *place = &a->shared->records[(sequence - 1) % GA_MAX_RECORDS];

	record->sequence = 0;
	__atomic_store_n(&place->sequence, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	*place = *record;
	__atomic_store_n(&place->sequence, sequence, __ATOMIC_RELEASE);
	__atomic_store_n(&a->shared->record_count, sequence, __ATOMIC_RELEASE);
}

void count_control(struct actuator *a, unsigned gpu, int status)
{
	a->shared->counters.controls++;
	a->shared->counters.failures += status != 0;
	for_each_plan(a, p)
	{
		if (!p->used || p->plan.gpu != gpu || (p->phase != RESERVED && p->phase != CLOSING))
			continue;
		p->record.controls++;
		if (status) {
			p->record.failures++;
			p->record.last_status = (__u32)status;
		}
	}
}
