/* SPDX-License-Identifier: Apache-2.0 */
#include "actuator.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../agent/native/hold_page.h"

/* The file belongs to a program that is not trusted: without the seal it could shrink it and kill us by SIGBUS. */
struct gs_hold_page *hold_map(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat file;
	struct gs_hold_page *page;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &file) || file.st_size < GS_HOLD_BYTES)
		return NULL;
	page = mmap(NULL, GS_HOLD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return NULL;
	if (page->magic != GS_HOLD_MAGIC || page->version != GS_HOLD_VERSION) {
		munmap(page, GS_HOLD_BYTES);
		return NULL;
	}
	return page;
}

void hold_unmap(struct gs_hold_page *page)
{
	munmap(page, GS_HOLD_BYTES);
}

static struct gs_hold_page *page_of(struct actuator *a, const struct plan *p)
{
	return p->plan.agent_slot == GA_NO_INDEX ? NULL : a->slots[p->plan.agent_slot].page;
}

static void ring(struct gs_hold_page *page)
{
	__atomic_add_fetch(&page->bell, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &page->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void hold_ring(struct actuator *a, struct plan *p)
{
	struct gs_hold_page *page = page_of(a, p);

	p->hold_asked = 0;
	if (!page || !__atomic_load_n(&page->ready, __ATOMIC_ACQUIRE))
		return;
	p->hold = page->wanted + 1;
	if (!p->hold)
		p->hold = 1; /* 0 says "none" */
	p->hold_asked = p->hold;
	page->kernels = p->plan.hold_kernels;
	page->limit_us = (__u32)((p->limit_at - p->reserved_at) / US);
	__atomic_store_n(&page->wanted, p->hold, __ATOMIC_RELEASE);
	p->record.begin_ns = now_ns();
	ring(page);
}

void hold_release(struct actuator *a, struct plan *p)
{
	struct gs_hold_page *page = page_of(a, p);

	if (page && p->hold) {
		__atomic_store_n(&page->released, p->hold, __ATOMIC_RELEASE);
		ring(page);
	}
	p->hold = 0;
}

/* The hold has the GPU a switch later; 0 when its kernels were never launched. */
__u64 hold_launched_ns(struct actuator *a, const struct plan *p)
{
	const struct gs_hold_page *page = page_of(a, p);

	if (!page || __atomic_load_n(&page->launched, __ATOMIC_ACQUIRE) != p->hold_asked)
		return 0;
	return page->launched_ns;
}
