/* SPDX-License-Identifier: Apache-2.0 */
#include "rm.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

/* kernel-open/common/inc/nv-ioctl-numbers.h and src/common/sdk/nvidia/inc/nvos.h of NVIDIA's open kernel modules. */
struct nvos54 {
	__u32 client, object, command, flags;
	__u64 parameters;
	__u32 size, status;
};
#define RM_CONTROL _IOWR('F', 0x2a, struct nvos54)

/* ctrl/ctrla06c.h, ctrl/ctrla06f/ctrla06fgpfifo.h, ctrl/ctrl2080/ctrl2080fifo.h */
#define SET_TIMESLICE 0xa06c0103
#define PREEMPT 0xa06c0105
#define RESTART_RUNLIST 0xa06f0111
#define DISABLE_CHANNELS 0x2080110b

struct timeslice_params {
	__u64 us;
};

struct preempt_params {
	__u8 wait, manual_timeout, pad[2];
	__u32 timeout_us;
};

struct restart_params {
	__u8 force, bypass_wait;
};

struct disable_params {
	__u8 disable, pad[3];
	__u32 count;
	__u8 only_scheduling, rewind, pad2[6];
	__u64 event;
	__u32 clients[GA_MAX_CHANNELS], channels[GA_MAX_CHANNELS];
};
_Static_assert(sizeof(struct disable_params) == 536, "the driver compares the size exactly");

enum { NV_ERR_BUSY_RETRY = 0x03, NV_ERR_SIGNAL_PENDING = 0x64, NV_ERR_TIMEOUT = 0x65, NV_ERR_TIMEOUT_RETRY = 0x66 };

static bool ask_again(int status, __u32 command)
{
	switch (status) {
	case NV_ERR_BUSY_RETRY:
	case NV_ERR_SIGNAL_PENDING:
	case NV_ERR_TIMEOUT_RETRY:
	case -EINTR:
	case -EAGAIN:
	case -EBUSY:
		return true;
	case NV_ERR_TIMEOUT: /* leaves channels in between; repeating it is harmless, leaving them so is not */
		return command == DISABLE_CHANNELS;
	default:
		return false;
	}
}

static int issue(int fd, __u32 client, __u32 object, __u32 command, void *parameters, __u32 size)
{
	struct nvos54 call = {
	    .client = client,
	    .object = object,
	    .command = command,
	    .parameters = (__u64)(unsigned long)parameters,
	    .size = size,
	    .status = 0xffff, /* a driver that does not know the ioctl leaves it: it must not read as success */
	};

	return ioctl(fd, RM_CONTROL, &call) < 0 ? -errno : (int)call.status;
}

static int control(int fd, __u32 client, __u32 object, __u32 command, void *parameters, __u32 size)
{
	int status = issue(fd, client, object, command, parameters, size);

	for (long pause_us = 100; pause_us <= 800 && ask_again(status, command); pause_us *= 2) {
		nanosleep(&(struct timespec){.tv_nsec = pause_us * 1000}, NULL);
		status = issue(fd, client, object, command, parameters, size);
	}
	return status;
}

bool rm_is_gone(int status)
{
	switch (status) {
	case 0x21: /* NV_ERR_INVALID_CHANNEL */
	case 0x23: /* NV_ERR_INVALID_CLIENT */
	case 0x31: /* NV_ERR_INVALID_OBJECT */
	case 0x33: /* NV_ERR_INVALID_OBJECT_HANDLE */
	case 0x36: /* NV_ERR_INVALID_OBJECT_PARENT */
	case 0x57: /* NV_ERR_OBJECT_NOT_FOUND */
	case 0x6e: /* NV_ERR_RESOURCE_LOST */
	case -EBADF:
	case -ESRCH:
	case -ENODEV:
	case -ENOTCONN:
		return true;
	default:
		return false;
	}
}

static int switch_channels(int fd, const struct ga_group *group, const __u32 *channels, __u32 count, enum mode mode)
{
	struct disable_params parameters = {
	    .disable = mode != MODE_ENABLED,
	    .count = count,
	    .only_scheduling = mode == MODE_UNSCHEDULED,
	};

	for (__u32 i = 0; i < count; i++) {
		parameters.clients[i] = group->client;
		parameters.channels[i] = channels[i];
	}
	return control(fd, group->client, group->subdevice, DISABLE_CHANNELS, &parameters, sizeof(parameters));
}

/* One dead channel fails the whole call: treat the others one by one, and report "gone" only when none is left. */
int rm_switch(int fd, const struct ga_group *group, enum mode mode)
{
	int status = switch_channels(fd, group, group->channels, group->channel_count, mode);
	int worst = 0, alive = 0, gone = status;

	if (!rm_is_gone(status) || group->channel_count < 2)
		return status;
	for (__u32 i = 0; i < group->channel_count; i++) {
		status = switch_channels(fd, group, &group->channels[i], 1, mode);
		if (rm_is_gone(status))
			continue;
		alive++;
		if (status)
			worst = status;
	}
	return alive ? worst : gone;
}

int rm_preempt(int fd, const struct ga_group *group)
{
	struct preempt_params parameters = {.wait = 1};

	return control(fd, group->client, group->handle, PREEMPT, &parameters, sizeof(parameters));
}

int rm_restart_runlist(int fd, const struct ga_group *group)
{
	struct restart_params parameters = {.bypass_wait = 1};

	if (!group->channel_count)
		return -EINVAL;
	return control(fd, group->client, group->channels[0], RESTART_RUNLIST, &parameters, sizeof(parameters));
}

int rm_set_timeslice(int fd, const struct ga_group *group, __u64 us)
{
	struct timeslice_params parameters = {.us = us};

	return control(fd, group->client, group->handle, SET_TIMESLICE, &parameters, sizeof(parameters));
}
