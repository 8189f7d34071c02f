/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resource manager's ABI on nvidiactl (NVIDIA open kernel modules, branch 580): objects, owners, controls.
 *
 * Sources: kernel-open/common/inc/nv-ioctl-numbers.h and nv_escape.h (ioctl numbers), nvos.h (NVOS00/21/54/55/64),
 * ctrla06c.h, ctrla06f.h, ctrl2080fifo.h, ctrlc36f.h (controls), nvstatuscodes.h (status).
 */
#ifndef GPSCHED_RM_H
#define GPSCHED_RM_H

#include "engine.h"

#include <stddef.h>
#include <sys/types.h>

enum nv_status {
	NV_OK = 0x0,
	NV_ERR_INSERT_DUPLICATE_NAME = 0x19,
	NV_ERR_INSUFFICIENT_RESOURCES = 0x1a,
	NV_ERR_INSUFFICIENT_PERMISSIONS = 0x1b,
	NV_ERR_INVALID_ARGUMENT = 0x1f,
	NV_ERR_INVALID_CHANNEL = 0x21,
	NV_ERR_INVALID_CLASS = 0x22,
	NV_ERR_INVALID_CLIENT = 0x23,
	NV_ERR_INVALID_DEVICE = 0x26,
	NV_ERR_INVALID_OBJECT_PARENT = 0x36,
	NV_ERR_INVALID_PARAM_STRUCT = 0x3a,
	NV_ERR_INVALID_POINTER = 0x3d,
	NV_ERR_NOT_SUPPORTED = 0x56,
	NV_ERR_OBJECT_NOT_FOUND = 0x57,
};

struct rm;

struct rm *rm_new(struct engine *engine, int gpus);
void rm_free(struct rm *rm);

/*
 * One ioctl by thread `tid` on open file `file`; `arg` is the outer structure of `size` bytes, changed in place.
 * Returns 0 or an errno; `reply_at` is the virtual time at which the caller may see the answer.
 */
int rm_ioctl(struct rm *rm, uint64_t file, pid_t tid, unsigned int cmd, void *arg, size_t size, uint64_t *reply_at);
/* The last descriptor of an open file was closed: its clients die. */
void rm_release(struct rm *rm, uint64_t file);

/* The engine's channel and group behind (client, channel handle), for a process that owns the client; false if none. */
bool rm_find_channel(const struct rm *rm, pid_t pid, uint32_t client, uint32_t handle, int *group, int *channel);

#endif
