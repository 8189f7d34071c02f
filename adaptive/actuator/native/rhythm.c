/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bursts that come at a rhythm are foretold by the daemon, which has found it. While it looks away they go on to be
 * foretold here: the same again after each burst, put right by when the launches really come.
 */
#include "actuator.h"

#define PHASE_SHIFT 3	/* an eighth of what a launch was off by is followed: its jitter is not */
#define BELONGS_SHIFT 3 /* a launch that is off by more than an eighth of the period is none of the rhythm's */
#define MOST_MISSES 3	/* in a row: the requests have stopped, or keep another time */

/* Every forecast of the daemon's takes the place of the one before, and of its rhythm. */
void rhythm_begin(struct plan *p, const struct gs_event *event)
{
	p->rhythm = (struct rhythm){
	    .at = event->time_ns, .every_ns = event->hint.every_ns, .lead_ns = event->hint.lead_ns, .event = *event};
}

void rhythm_end(struct plan *p)
{
	p->rhythm.every_ns = 0;
}

/* The first launch of a burst. */
void rhythm_launch(struct plan *p, __u64 launch_ns)
{
	struct rhythm *r = &p->rhythm;
	__s64 off = (__s64)(launch_ns - r->at - r->lead_ns), most = (__s64)(r->every_ns >> BELONGS_SHIFT);

	if (!r->every_ns || off > most || off < -most)
		return;
	r->kept = true;
	r->shift_ns = off / (1 << PHASE_SHIFT);
}

/* A burst is over, or did not come: foretell the next, unless the one that was foretold is still to come. */
void rhythm_next(struct plan *p, __u64 now)
{
	struct rhythm *r = &p->rhythm;

	if (!r->every_ns)
		return;
	if (r->kept) {
		r->misses = 0;
		r->at += r->every_ns + (__u64)r->shift_ns;
	} else if (now > r->at && ++r->misses >= MOST_MISSES) {
		rhythm_end(p);
		return;
	}
	while (r->at <= now)
		r->at += r->every_ns;
	r->kept = false;
	p->ahead = r->event;
	p->ahead.time_ns = r->at;
}
