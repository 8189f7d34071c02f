// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Test builds only (GPSCHED_TEST=1): on a machine without a GPU the RM refuses devices, groups and channels, so no test
 * could reach what controls them. Here a refused allocation of such an object is believed: it enters the registry
 * through the very same ioctl, and controls on it, after the RM refused those too, are answered from a table.
 * Everything else is the product's code. /sys/kernel/debug/gpsched: `log` the controls, `clear` forgets them, `fail` an
 * NV_STATUS that answers the next controls, `fail_count` how many, `fail_alloc` the n-th allocation of memory to fail,
 * `delay_ms`.
 */
#ifdef GPSCHED_TEST
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/seq_file.h>

#include "internal.h"

#define LOG_SIZE 1024
#define TABLE_SIZE 4096

struct entry {
	u64 sequence;
	u32 client, object, cmd, size, status;
	u8 params[16];
};

static struct entry entries[LOG_SIZE];
static u64 logged;
static u32 timeslices[TABLE_SIZE];
static u32 fail, fail_count, delay_ms;
static atomic_t fail_alloc;
static struct dentry *folder;
static DEFINE_SPINLOCK(log_lock);

bool gs_test_believes(u32 class_, u32 status)
{
	return class_ == GS_CLASS_DEVICE || class_ == GS_CLASS_SUBDEVICE || class_ == GS_CLASS_GROUP ||
	       (class_ >= 0xb000 && ((class_ & 0xff) == 0x6f || (class_ & 0xff) == 0xc0 || (class_ & 0xff) == 0xb5));
}

bool gs_test_fail_alloc(void)
{
	return atomic_read(&fail_alloc) > 0 && atomic_dec_return(&fail_alloc) == 0;
}

static void log_control(u32 client, u32 object, u32 cmd, const void *params, u32 size, u32 status)
{
	struct entry *entry;

	spin_lock(&log_lock);
	entry = &entries[logged % LOG_SIZE];
	*entry = (struct entry){++logged, client, object, cmd, size, status};
	memcpy(entry->params, params, min_t(u32, size, sizeof(entry->params)));
	spin_unlock(&log_lock);
}

static u32 answer(u32 client, u32 object, u32 cmd, void *params)
{
	u32 *slice = &timeslices[hash_64((u64)client << 32 | object, 12)];

	switch (cmd) {
	case GS_RM_GET_TIMESLICE:
		*(u64 *)params = *slice ?: 2048;
		break;
	case GS_RM_SET_TIMESLICE:
		*slice = *(u64 *)params;
		break;
	case GS_RM_GET_INTERLEAVE:
		*(u32 *)params = 1;
		break;
	case GS_RM_GPU_GET_ID:
		*(u32 *)params = 0x100;
		break;
	}
	return GS_NV_OK;
}

u32 gs_test_control(u32 client, u32 object, u32 cmd, void *params, u32 size, u32 status)
{
	if (!status || !gs_object_believed(client, object))
		return status;
	if (delay_ms)
		msleep(delay_ms);
	if (fail && fail_count) {
		fail_count--;
		status = fail;
	} else {
		status = answer(client, object, cmd, params);
	}
	log_control(client, object, cmd, params, size, status);
	return status;
}

static int log_show(struct seq_file *file, void *data)
{
	u64 index, first;

	spin_lock(&log_lock);
	first = logged > LOG_SIZE ? logged - LOG_SIZE : 0;
	for (index = first; index < logged; index++) {
		const struct entry *entry = &entries[index % LOG_SIZE];

		seq_printf(file, "%llu %x %x %x %u %x %*phN\n", entry->sequence, entry->client, entry->object,
			   entry->cmd, entry->size, entry->status, (int)min_t(u32, entry->size, 16), entry->params);
	}
	spin_unlock(&log_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(log);

static int clear_set(void *data, u64 value)
{
	spin_lock(&log_lock);
	logged = 0;
	memset(timeslices, 0, sizeof(timeslices));
	spin_unlock(&log_lock);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(clear_fops, NULL, clear_set, "%llu\n");

void gs_test_init(void)
{
	pr_warn("TEST BUILD: believes processes about objects that the driver refused\n");
	folder = debugfs_create_dir("gpsched", NULL);
	debugfs_create_file("log", 0400, folder, NULL, &log_fops);
	debugfs_create_file_unsafe("clear", 0200, folder, NULL, &clear_fops);
	debugfs_create_u32("fail", 0600, folder, &fail);
	debugfs_create_u32("fail_count", 0600, folder, &fail_count);
	debugfs_create_u32("delay_ms", 0600, folder, &delay_ms);
	debugfs_create_atomic_t("fail_alloc", 0600, folder, &fail_alloc);
}

void gs_test_exit(void)
{
	debugfs_remove(folder);
}
#endif
