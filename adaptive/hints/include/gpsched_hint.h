/* SPDX-License-Identifier: Apache-2.0
 *
 * Explicit hints: tell gpsched that this process is about to use the GPU.
 *
 *	#include "gpsched_hint.h"
 *	gpsched_reserve_in(800); // the first launch comes in about 800 us
 *
 * Header only, no library, no cost worth naming: a hint is a call of an empty function, on which the daemon puts a
 * uprobe when it manages the process. Without a daemon nothing happens. Keep the symbol: do not strip the executable
 * of it (`strip --keep-symbol=gpsched_hint`), or link with -rdynamic.
 */
#ifndef GPSCHED_HINT_H
#define GPSCHED_HINT_H

#include <stdint.h>

enum gpsched_hint_what {
	GPSCHED_HINT_RESERVE = 1,
	GPSCHED_HINT_CANCEL = 2,
};

#ifdef __cplusplus
extern "C" {
#endif

/* The probe point. Weak: one copy however many files include this. The asm keeps compilers from dropping the call
 * or its arguments. */
__attribute__((weak, noinline, visibility("default"))) void gpsched_hint(uint32_t what, uint64_t us)
{
	__asm__ volatile("" : : "r"(what), "r"(us) : "memory");
}

#ifdef __cplusplus
}
#endif

/* The GPU is needed now. */
static inline void gpsched_reserve_now(void)
{
	gpsched_hint(GPSCHED_HINT_RESERVE, 0);
}

/* The GPU will be needed in `us` microseconds. */
static inline void gpsched_reserve_in(uint64_t us)
{
	gpsched_hint(GPSCHED_HINT_RESERVE, us);
}

/* It will not be needed after all. */
static inline void gpsched_cancel(void)
{
	gpsched_hint(GPSCHED_HINT_CANCEL, 0);
}

#endif
