/* SPDX-License-Identifier: Apache-2.0 */
/* Hints of services that are not written in C: part of libgpsched-switchboard.so. */
#include <stdint.h>

#include "gpsched_hint.h"
#include "switchboard.h"

void announce_if_wanted(double us)
{
	if (hints_wanted())
		gpsched_reserve_in((uint64_t)us);
}
