/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "exit_codes.h"

/* Real microseconds before the end of a stretched wait at which sleeping turns into spinning: a wake-up takes about so
 * long. */
#define SPIN_REAL_US 60.0

static double scale = 1.0;

void clock_setup(void)
{
	const char *text = getenv("GPSCHED_TIME_SCALE");
	char *end = NULL;

	/* The default timer slack of 50 us would make every sleep that much longer. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	if (!text || !*text)
		return;
	scale = strtod(text, &end);
	if (*end || !(scale >= 1e-3 && scale <= 1e6)) {
		fprintf(stderr, "GPSCHED_TIME_SCALE=%s is not a number from 0.001 to 1000000; unset it or correct it\n",
			text);
		exit(EXIT_USAGE);
	}
}

static double real_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

double clock_now_us(void)
{
	return real_now_us() / scale;
}

static struct timespec to_timespec(double real_us)
{
	struct timespec result = {0, 0};

	if (real_us > 0) {
		result.tv_sec = (time_t)(real_us / 1e6);
		result.tv_nsec = (long)((real_us - (double)result.tv_sec * 1e6) * 1e3);
	}
	return result;
}

struct timespec clock_real(double us)
{
	return to_timespec(us * scale);
}

void clock_sleep_until(double us)
{
	struct timespec until = to_timespec(us * scale);

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

void clock_work_until(double us)
{
	if (scale > 1.0)
		clock_sleep_until(us - SPIN_REAL_US / scale);
	while (clock_now_us() < us)
		;
}
