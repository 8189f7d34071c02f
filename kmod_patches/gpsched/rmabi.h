/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The RM's ABI as far as it is used here: ioctls, classes, controls and their parameters, the same from 535 to 595
 * (nv_escape.h, nvos.h, ctrla06c, ctrla06f, ctrl2080fifo.h, ctrl2080gpu.h).
 */
#ifndef GPSCHED_RMABI_H
#define GPSCHED_RMABI_H

#include <linux/types.h>

#define GS_ESC_RM_FREE 0x29
#define GS_ESC_RM_CONTROL 0x2a
#define GS_ESC_RM_ALLOC 0x2b
#define GS_ESC_RM_DUP 0x34

#define GS_NV_OK 0u
#define GS_NV_ERR_GENERIC 0xffffu
#define GS_NV_ERR_INVALID_DEVICE 0x26u
#define GS_NV_ERR_OBJECT_NOT_FOUND 0x57u
#define GS_RM_SET_TIMESLICE 0xa06c0103u
#define GS_RM_GET_TIMESLICE 0xa06c0104u
#define GS_RM_PREEMPT 0xa06c0105u
#define GS_RM_SET_INTERLEAVE 0xa06c0107u
#define GS_RM_GET_INTERLEAVE 0xa06c0108u
#define GS_RM_RESTART_RUNLIST 0xa06f0111u
#define GS_RM_DISABLE_CHANNELS 0x2080110bu
#define GS_RM_GPU_GET_ID 0x20800142u

#define GS_CLASS_DEVICE 0x0080u
#define GS_CLASS_SUBDEVICE 0x2080u
#define GS_CLASS_GROUP 0xa06cu

struct gs_nvos00 {
	u32 client, parent, object, status;
};
struct gs_nvos21 { /* also the head of NVOS64 */
	u32 client, parent, object, class_;
	u64 params;
	u32 params_size, status;
};
struct gs_nvos64 {
	u32 client, parent, object, class_;
	u64 params, rights;
	u32 params_size, flags, status, pad;
};
struct gs_nvos54 {
	u32 client, object, cmd, flags;
	u64 params;
	u32 params_size, status;
};
struct gs_nvos55 {
	u32 client, parent, object, source_client, source_object, flags, status;
};

struct gs_rm_timeslice {
	u64 us;
};
struct gs_rm_preempt {
	u8 wait, manual_timeout, pad[2];
	u32 timeout_us;
};
struct gs_rm_restart {
	u8 force, bypass_wait;
};
struct gs_rm_disable {
	u8 disable, pad0[3];
	u32 count;
	u8 scheduling_only, rewind, pad1[6];
	u64 event;
	u32 client[64], channel[64];
};

/* nvidia_kernel_rmapi_ops_t: a request with kernel privilege, on any client's handles. */
struct gs_kernel_op {
	u32 op;
	u32 pad;
	union {
		struct gs_nvos54 control;
		u8 room[256]; /* the union's largest member is smaller */
	};
};

static inline struct gs_kernel_op gs_kernel_control(u32 client, u32 object, u32 cmd, void *params, u32 size)
{
	return (struct gs_kernel_op){
	    .op = 0x36, /* NV04_CONTROL */
	    .control =
		{
		    .client = client,
		    .object = object,
		    .cmd = cmd,
		    .params = (u64)(uintptr_t)params,
		    .params_size = size,
		    .status = GS_NV_ERR_GENERIC,
		},
	};
}

#endif
