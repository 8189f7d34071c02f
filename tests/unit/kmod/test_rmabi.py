"""The RM's ABI twice: what the kernel side is compiled with against what the daemon speaks."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpsched.adaptive.driver import abi, classes
from gpsched.adaptive.driver.status import GONE, code


FOLDER = Path(__file__).resolve().parents[3] / "kmod_patches" / "gpsched"
HEADER = (FOLDER / "rmabi.h").read_text()

CONTROLS = {
    "GS_RM_SET_TIMESLICE": abi.SET_TIMESLICE,
    "GS_RM_GET_TIMESLICE": abi.GET_TIMESLICE,
    "GS_RM_PREEMPT": abi.PREEMPT,
    "GS_RM_SET_INTERLEAVE": abi.SET_INTERLEAVE,
    "GS_RM_GET_INTERLEAVE": abi.GET_INTERLEAVE,
    "GS_RM_RESTART_RUNLIST": abi.RESTART_RUNLIST,
    "GS_RM_DISABLE_CHANNELS": abi.DISABLE_CHANNELS,
    "GS_RM_GPU_GET_ID": abi.GPU_GET_ID,
}
STRUCTS = {
    "gs_nvos00": abi.NVOS00,
    "gs_nvos21": abi.NVOS21,
    "gs_nvos64": abi.NVOS64,
    "gs_nvos54": abi.NVOS54,
    "gs_nvos55": abi.NVOS55,
    "gs_rm_timeslice": abi.TimesliceParams,
    "gs_rm_preempt": abi.PreemptParams,
    "gs_rm_restart": abi.RestartRunlistParams,
    "gs_rm_disable": abi.DisableChannelsParams,
}


def define(name: str) -> int:
    found = re.search(rf"#define {name} (0x[0-9a-f]+)", HEADER)
    assert found, name
    return int(found.group(1), 16)


@pytest.mark.parametrize("name", CONTROLS)
def test_controls(name: str) -> None:
    assert define(name) == CONTROLS[name].command


def test_every_control_of_the_kernel_side_is_compared() -> None:
    assert set(re.findall(r"#define (GS_RM_(?!SUSPENDED)\w+)", HEADER)) == set(CONTROLS)


def test_classes_and_statuses() -> None:
    assert define("GS_CLASS_SUBDEVICE") == classes.SUBDEVICE
    assert define("GS_NV_ERR_OBJECT_NOT_FOUND") == code("OBJECT_NOT_FOUND")
    assert define("GS_NV_ERR_INVALID_DEVICE") == code("INVALID_DEVICE")


def test_what_counts_as_gone_is_the_same() -> None:
    settle = (FOLDER / "settle.c").read_text()
    body = settle[settle.index("bool gs_status_gone(") : settle.index("return true;")]
    assert {int(status, 16) for status in re.findall(r"case (0x[0-9a-f]+):", body)} == set(GONE)


def test_structs_have_the_same_size(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    types = "#include <stdint.h>\ntypedef uint8_t u8; typedef uint32_t u32; typedef uint64_t u64;\n"
    prints = "".join(f'printf("%zu\\n", sizeof(struct {name}));' for name in STRUCTS)
    source = tmp_path / "size.c"
    source.write_text(f'#include <stdio.h>\n{types}#include "{FOLDER}/rmabi.h"\nint main(void) {{ {prints} }}\n')
    subprocess.run([compiler, "-Wno-attributes", "-o", tmp_path / "size", source], check=True)
    sizes = subprocess.run([tmp_path / "size"], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(STRUCTS, map(int, sizes), strict=True)) == {
        name: ctypes.sizeof(struct) for name, struct in STRUCTS.items()
    }
