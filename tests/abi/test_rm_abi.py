"""The RM structures against a C compiler, and the ioctl numbers and sizes against those of NVIDIA's published headers.

The C mirror repeats the fields as the headers have them, independently of the Python ones: a wrong type or order in
either shows as another size or offset.
"""

import ctypes
import json
import shutil
import subprocess

import pytest

from gpsched.adaptive.driver import abi, classes
from gpsched.adaptive.driver.status import GONE, NAMES, RETRY, code


MIRROR = """
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
typedef uint8_t u8; typedef uint32_t u32; typedef uint64_t u64;
typedef struct { u32 hRoot, hObjectParent, hObjectOld, status; } NVOS00;
typedef struct { u32 hRoot, hObjectParent, hObjectNew, hClass; u64 pAllocParms __attribute__((aligned(8)));
                 u32 paramsSize, status; } NVOS21;
typedef struct { u32 hRoot, hObjectParent, hObjectNew, hClass; u64 pAllocParms, pRightsRequested;
                 u32 paramsSize, flags, status; } NVOS64;
typedef struct { u32 hClient, hObject, cmd, flags; u64 params; u32 paramsSize, status; } NVOS54;
typedef struct { u32 hClient, hParent, hObject, hClientSrc, hObjectSrc, flags, status; } NVOS55;
typedef struct { u32 cmd, size; u64 ptr; } Xfer;
typedef struct { u8 bEnable, bSkipSubmit, bSkipEnable; } ScheduleParams;
typedef struct { u8 bEnable, bSkipSubmit; } ScheduleParams570;
typedef struct { u64 timesliceUs; } TimesliceParams;
typedef struct { u8 bWait, bManualTimeout; u32 timeoutUs; } PreemptParams;
typedef struct { u32 tsgID; } GroupInfoParams;
typedef struct { u32 tsgInterleaveLevel; } InterleaveParams;
typedef struct { u8 bRealtime; } RealtimeParams;
typedef struct { u8 bForceRestart, bBypassWait; } RestartRunlistParams;
typedef struct { u8 bDisable; u32 numChannels; u8 bOnlyDisableScheduling, bRewindGpPut; u64 pRunlistPreemptEvent;
                 u32 hClientList[64], hChannelList[64]; } DisableChannelsParams;
typedef struct { u32 workSubmitToken; } WorkSubmitTokenParams;
typedef struct { u32 gpuId; } GpuIdParams;
typedef struct { u32 hObject, index; union { u32 hResult; u64 iResult; } result; } HandleInfoParams;
typedef struct { u32 hObject, classEngineID, classID, engineID; } ClassEngineIdParams;
typedef struct { u32 hClient, hChannelOrTsg, tsgId, numChannels, channelUniqueID[128], vasUniqueID[128], veid[128]; }
                 UniqueIdParams;
"""

REQUESTS = {
    "RM_FREE": "_IOWR('F', 0x29, NVOS00)",
    "RM_CONTROL": "_IOWR('F', 0x2a, NVOS54)",
    "RM_ALLOC": "_IOWR('F', 0x2b, NVOS21)",
    "RM_ALLOC_WITH_RIGHTS": "_IOWR('F', 0x2b, NVOS64)",
    "RM_DUP_OBJECT": "_IOWR('F', 0x34, NVOS55)",
    "XFER_CMD": "_IOWR('F', 211, Xfer)",
}

STRUCTURES = [
    kind
    for kind in vars(abi).values()
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind.__module__ == abi.__name__
]


def layout(kind):
    return {name: [getattr(kind, name).offset, getattr(kind, name).size] for name, *_ in kind._fields_}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    folder = tmp_path_factory.mktemp("abi")
    lines = ['printf("{");']
    for kind in STRUCTURES:
        lines.append(f'printf("\\"{kind.__name__}\\": {{\\"size\\": %zu, \\"fields\\": {{", sizeof({kind.__name__}));')
        for index, (name, *_) in enumerate(kind._fields_):
            comma = ", " if index else ""
            where = f"offsetof({kind.__name__}, {name}), sizeof((({kind.__name__} *)0)->{name})"
            lines.append(f'printf("{comma}\\"{name}\\": [%zu, %zu]", {where});')
        lines.append('printf("}}, ");')
    for name, expression in REQUESTS.items():
        lines.append(f'printf("\\"{name}\\": %lu, ", (unsigned long){expression});')
    lines.append('printf("\\"end\\": 0}");')
    (folder / "mirror.c").write_text(MIRROR + "int main(void) {" + "\n".join(lines) + "return 0; }\n")
    subprocess.run([compiler, "-Wall", "-Werror", "-o", folder / "mirror", folder / "mirror.c"], check=True, timeout=60)
    return json.loads(subprocess.run([folder / "mirror"], check=True, capture_output=True, timeout=10).stdout)


@pytest.mark.parametrize("kind", STRUCTURES, ids=lambda kind: kind.__name__)
def test_layout_equals_the_compilers(compiled, kind):
    assert ctypes.sizeof(kind) == compiled[kind.__name__]["size"]
    assert layout(kind) == compiled[kind.__name__]["fields"]


@pytest.mark.parametrize("name", REQUESTS)
def test_request_numbers_equal_the_compilers(compiled, name):
    assert getattr(abi, name) == compiled[name]


def test_request_numbers_as_published():
    assert (abi.RM_FREE, abi.RM_CONTROL, abi.RM_ALLOC, abi.RM_ALLOC_WITH_RIGHTS) == (
        0xC0104629, 0xC020462A, 0xC020462B, 0xC030462B,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("control", "command", "size"),
    [
        (abi.GET_HANDLE_INFO, 0xD02, 16),
        (abi.SCHEDULE, 0xA06C0101, 3),
        (abi.SCHEDULE_570, 0xA06C0101, 2),
        (abi.SET_TIMESLICE, 0xA06C0103, 8),
        (abi.GET_TIMESLICE, 0xA06C0104, 8),
        (abi.PREEMPT, 0xA06C0105, 8),
        (abi.GET_INFO, 0xA06C0106, 4),
        (abi.SET_INTERLEAVE, 0xA06C0107, 4),
        (abi.GET_INTERLEAVE, 0xA06C0108, 4),
        (abi.MAKE_REALTIME, 0xA06C0110, 1),
        (abi.RESTART_RUNLIST, 0xA06F0111, 2),
        (abi.GET_WORK_SUBMIT_TOKEN, 0xC36F0108, 4),
        (abi.GET_CLASS_ENGINEID, 0x906F0101, 16),
        (abi.DISABLE_CHANNELS, 0x2080110B, 536),
        (abi.GPU_GET_ID, 0x20800142, 4),
        (abi.GET_UNIQUE_ID_INFO, 0x20801123, 1552),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_controls_as_published(control, command, size):
    assert (control.command, ctypes.sizeof(control.params)) == (command, size)


def test_alloc_status_is_where_the_kernel_side_reads_it():
    assert (abi.NVOS21.hClass.offset, abi.NVOS21.status.offset, abi.NVOS64.status.offset) == (12, 28, 40)


def test_status_codes_as_published():
    published = {
        "BUSY_RETRY": 0x03, "GPU_IS_LOST": 0x0F, "INSUFFICIENT_PERMISSIONS": 0x1B, "INVALID_ARGUMENT": 0x1F,
        "INVALID_CHANNEL": 0x21, "INVALID_CLIENT": 0x23, "INVALID_OBJECT_HANDLE": 0x33, "INVALID_PARAM_STRUCT": 0x3A,
        "INVALID_STATE": 0x40, "NO_MEMORY": 0x51, "NOT_SUPPORTED": 0x56, "OBJECT_NOT_FOUND": 0x57,
        "SIGNAL_PENDING": 0x64, "TIMEOUT": 0x65, "TIMEOUT_RETRY": 0x66, "RESOURCE_LOST": 0x6E, "FATAL_ERROR": 0x71,
        "RISCV_ERROR": 0x79, "MC_FLA_OFFSET_TABLE_FULL": 0x8A,
    }  # fmt: skip
    assert {name: code(name) for name in published} == published
    assert len(set(NAMES.values())) == len(NAMES)
    assert not GONE & RETRY


def test_classes_by_architecture():
    for channel, compute, copy in (
        (0xC46F, 0xC5C0, 0xC5B5), (0xC56F, 0xC6C0, 0xC6B5), (0xC56F, 0xC7C0, 0xC7B5), (0xC56F, 0xC9C0, 0xC7B5),
        (0xC86F, 0xCBC0, 0xC8B5), (0xC96F, 0xCDC0, 0xC9B5), (0xCA6F, 0xCEC0, 0xCAB5),
    ):  # fmt: skip
        assert classes.is_channel(channel)
        assert (classes.engine_of(compute), classes.engine_of(copy)) == ("compute", "copy")
    for other in (classes.CHANNEL_GROUP, classes.SUBDEVICE, classes.DEVICE, 0x40, 0xC361):
        assert not classes.is_channel(other)
        assert classes.engine_of(other) == "other"
