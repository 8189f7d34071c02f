"""The NVIDIA resource manager's (RM) ioctl ABI: requests, structures and controls, as they cross /dev/nvidiactl.

Numbers and layouts mirror NVIDIA's open kernel modules, releases 535 to 595; each names its file there, relative to
``src/common/sdk/nvidia/inc`` unless it starts with ``kernel-open``. ``paramsSize`` must equal a command's size exactly,
so the sizes are part of the ABI: tests/abi/test_rm_abi.py checks every one against a compiler.
"""

import ctypes
from dataclasses import dataclass


U8, U32, U64 = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64
Params = ctypes.Structure


# ioctl numbers: kernel-open/common/inc/nv-ioctl-numbers.h (magic 'F'), nv_escape.h and nv-ioctl.h
_MAGIC = ord("F")
_READ_WRITE = 3


def _iowr(nr: int, size: int) -> int:
    return _READ_WRITE << 30 | size << 16 | _MAGIC << 8 | nr


class NVOS00(ctypes.Structure):
    """Frees an object and everything below it (nvos.h, NVOS00_PARAMETERS)."""

    _fields_ = (("hRoot", U32), ("hObjectParent", U32), ("hObjectOld", U32), ("status", U32))


class NVOS21(ctypes.Structure):
    """Allocates an object (nvos.h, NVOS21_PARAMETERS)."""

    _fields_ = (
        ("hRoot", U32),
        ("hObjectParent", U32),
        ("hObjectNew", U32),
        ("hClass", U32),
        ("pAllocParms", U64),
        ("paramsSize", U32),
        ("status", U32),
    )


class NVOS64(ctypes.Structure):
    """Allocates an object with access rights (nvos.h, NVOS64_PARAMETERS); tail padding is part of the size."""

    _fields_ = (
        ("hRoot", U32),
        ("hObjectParent", U32),
        ("hObjectNew", U32),
        ("hClass", U32),
        ("pAllocParms", U64),
        ("pRightsRequested", U64),
        ("paramsSize", U32),
        ("flags", U32),
        ("status", U32),
    )


class NVOS54(ctypes.Structure):
    """Issues a control on an object (nvos.h, NVOS54_PARAMETERS)."""

    _fields_ = (
        ("hClient", U32),
        ("hObject", U32),
        ("cmd", U32),
        ("flags", U32),
        ("params", U64),
        ("paramsSize", U32),
        ("status", U32),
    )


class NVOS55(ctypes.Structure):
    """Gives an object a second handle, in this or another client (nvos.h, NVOS55_PARAMETERS)."""

    _fields_ = (
        ("hClient", U32),
        ("hParent", U32),
        ("hObject", U32),
        ("hClientSrc", U32),
        ("hObjectSrc", U32),
        ("flags", U32),
        ("status", U32),
    )


class Xfer(ctypes.Structure):
    """Wraps an ioctl whose structure is too large for its number (kernel-open/common/inc/nv-ioctl.h)."""

    _fields_ = (("cmd", U32), ("size", U32), ("ptr", U64))


RM_FREE = _iowr(0x29, ctypes.sizeof(NVOS00))
RM_CONTROL = _iowr(0x2A, ctypes.sizeof(NVOS54))
RM_ALLOC = _iowr(0x2B, ctypes.sizeof(NVOS21))
RM_ALLOC_WITH_RIGHTS = _iowr(0x2B, ctypes.sizeof(NVOS64))
RM_DUP_OBJECT = _iowr(0x34, ctypes.sizeof(NVOS55))
XFER_CMD = _iowr(211, ctypes.sizeof(Xfer))


class ScheduleParams(ctypes.Structure):
    """GPFIFO_SCHEDULE from branch 575 on (ctrl/ctrla06f/ctrla06fgpfifo.h)."""

    _fields_ = (("bEnable", U8), ("bSkipSubmit", U8), ("bSkipEnable", U8))


class ScheduleParams570(ctypes.Structure):
    """GPFIFO_SCHEDULE up to branch 570 (same file)."""

    _fields_ = (("bEnable", U8), ("bSkipSubmit", U8))


class TimesliceParams(ctypes.Structure):
    """SET_TIMESLICE and GET_TIMESLICE, µs (ctrl/ctrla06c.h)."""

    _fields_ = (("timesliceUs", U64),)


class PreemptParams(ctypes.Structure):
    """PREEMPT; the timeout counts only with bManualTimeout and is at most 1 s (ctrl/ctrla06c.h)."""

    _fields_ = (("bWait", U8), ("bManualTimeout", U8), ("timeoutUs", U32))


class GroupInfoParams(ctypes.Structure):
    """GET_INFO; tsgID is unique only within a runlist (ctrl/ctrla06c.h)."""

    _fields_ = (("tsgID", U32),)


class InterleaveParams(ctypes.Structure):
    """SET and GET_INTERLEAVE_LEVEL: 0 low, 1 medium, 2 high (ctrl/ctrla06c.h)."""

    _fields_ = (("tsgInterleaveLevel", U32),)


class RealtimeParams(ctypes.Structure):
    """MAKE_REALTIME (ctrl/ctrla06c.h)."""

    _fields_ = (("bRealtime", U8),)


class RestartRunlistParams(ctypes.Structure):
    """RESTART_RUNLIST (ctrl/ctrla06f/ctrla06fgpfifo.h)."""

    _fields_ = (("bForceRestart", U8), ("bBypassWait", U8))


DISABLE_MAX_CHANNELS = 64  # NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES


class DisableChannelsParams(ctypes.Structure):
    """FIFO_DISABLE_CHANNELS; the event must be 0 for a user-space caller (ctrl/ctrl2080/ctrl2080fifo.h)."""

    _fields_ = (
        ("bDisable", U8),
        ("numChannels", U32),
        ("bOnlyDisableScheduling", U8),
        ("bRewindGpPut", U8),
        ("pRunlistPreemptEvent", U64),
        ("hClientList", U32 * DISABLE_MAX_CHANNELS),
        ("hChannelList", U32 * DISABLE_MAX_CHANNELS),
    )


class WorkSubmitTokenParams(ctypes.Structure):
    """GET_WORK_SUBMIT_TOKEN (ctrl/ctrlc36f.h)."""

    _fields_ = (("workSubmitToken", U32),)


class HandleInfoParams(ctypes.Structure):
    """CLIENT_GET_HANDLE_INFO, on the client itself; the result is a union of u32 and u64 (ctrl/ctrl0000client.h)."""

    _fields_ = (("hObject", U32), ("index", U32), ("result", U64))


HANDLE_INFO_PARENT, HANDLE_INFO_CLASS = 1, 2  # same file


class GpuIdParams(ctypes.Structure):
    """GPU_GET_ID (ctrl/ctrl2080/ctrl2080gpu.h)."""

    _fields_ = (("gpuId", U32),)


class ClassEngineIdParams(ctypes.Structure):
    """GET_CLASS_ENGINEID: class and engine of an object that is a child of the channel (ctrl/ctrl906f.h)."""

    _fields_ = (("hObject", U32), ("classEngineID", U32), ("classID", U32), ("engineID", U32))


MAX_CHANNELS_PER_GROUP = 128  # NV2080_CTRL_CMD_FIFO_MAX_CHANNELS_PER_TSG


class UniqueIdParams(ctypes.Structure):
    """GET_CHANNEL_GROUP_UNIQUE_ID_INFO, from branch 570 (ctrl/ctrl2080/ctrl2080fifo.h)."""

    _fields_ = (
        ("hClient", U32),
        ("hChannelOrTsg", U32),
        ("tsgId", U32),
        ("numChannels", U32),
        ("channelUniqueID", U32 * MAX_CHANNELS_PER_GROUP),
        ("vasUniqueID", U32 * MAX_CHANNELS_PER_GROUP),
        ("veid", U32 * MAX_CHANNELS_PER_GROUP),
    )


@dataclass(frozen=True, slots=True)
class Control:
    """One RM control: its name, number and parameter structure."""

    name: str
    command: int
    params: type[Params]


# On a client
GET_HANDLE_INFO = Control("CLIENT_GET_HANDLE_INFO", 0xD02, HandleInfoParams)
# On a channel group (class a06c)
SCHEDULE = Control("GPFIFO_SCHEDULE", 0xA06C0101, ScheduleParams)
SCHEDULE_570 = Control("GPFIFO_SCHEDULE", 0xA06C0101, ScheduleParams570)
SET_TIMESLICE = Control("SET_TIMESLICE", 0xA06C0103, TimesliceParams)
GET_TIMESLICE = Control("GET_TIMESLICE", 0xA06C0104, TimesliceParams)
PREEMPT = Control("PREEMPT", 0xA06C0105, PreemptParams)
GET_INFO = Control("GET_INFO", 0xA06C0106, GroupInfoParams)
SET_INTERLEAVE = Control("SET_INTERLEAVE_LEVEL", 0xA06C0107, InterleaveParams)
GET_INTERLEAVE = Control("GET_INTERLEAVE_LEVEL", 0xA06C0108, InterleaveParams)
MAKE_REALTIME = Control("MAKE_REALTIME", 0xA06C0110, RealtimeParams)
# On a channel
RESTART_RUNLIST = Control("RESTART_RUNLIST", 0xA06F0111, RestartRunlistParams)
GET_WORK_SUBMIT_TOKEN = Control("GET_WORK_SUBMIT_TOKEN", 0xC36F0108, WorkSubmitTokenParams)
GET_CLASS_ENGINEID = Control("GET_CLASS_ENGINEID", 0x906F0101, ClassEngineIdParams)
# On a subdevice (class 2080)
DISABLE_CHANNELS = Control("FIFO_DISABLE_CHANNELS", 0x2080110B, DisableChannelsParams)
GPU_GET_ID = Control("GPU_GET_ID", 0x20800142, GpuIdParams)
GET_UNIQUE_ID_INFO = Control("GET_CHANNEL_GROUP_UNIQUE_ID_INFO", 0x20801123, UniqueIdParams)

CONTROLS = (
    GET_HANDLE_INFO,
    SCHEDULE,
    SET_TIMESLICE,
    GET_TIMESLICE,
    PREEMPT,
    GET_INFO,
    SET_INTERLEAVE,
    GET_INTERLEAVE,
    MAKE_REALTIME,
    RESTART_RUNLIST,
    GET_WORK_SUBMIT_TOKEN,
    GET_CLASS_ENGINEID,
    DISABLE_CHANNELS,
    GPU_GET_ID,
    GET_UNIQUE_ID_INFO,
)

PREEMPT_MAX_TIMEOUT_US = 1_000_000  # ctrl/ctrla06c.h
INTERLEAVE_LEVELS = (0, 1, 2)  # ctrl/ctrla06c.h

# Handles that libcuda and the RM give out, as seen on the H200: clients count up from the first, objects from the
# second.
CLIENT_BASE = 0xC1D00000
OBJECT_BASE = 0x5C000000
