"""The Python mirror of the module's ABI against the header that the kernel side is compiled from."""

import ctypes
import re
import struct
from enum import IntEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.driver import module_abi as abi


HEADER = (Path(__file__).resolve().parents[3] / "kmod_patches" / "gpsched" / "uapi.h").read_text()
TEXT = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)


def enum(name: str) -> dict[str, int]:
    """Return the members of an enum of the header; a member without a value counts on."""
    found = re.search(rf"enum {name} {{(.*?)}}", TEXT, re.S)
    assert found
    members: dict[str, int] = {}
    following = 0
    for part in filter(None, (part.strip() for part in found.group(1).split(","))):
        label, _, value = (piece.strip() for piece in part.partition("="))
        following = members.get(value, int(value, 0) if value and value not in members else following)
        members[label] = following
        following += 1
    return members


def define(name: str) -> int:
    found = re.search(rf"#define {name} (\S+)", TEXT)
    assert found
    return int(found.group(1), 0)


@pytest.mark.parametrize(
    ("name", "prefix", "mirror"), [("gs_cmd", "GS_CMD_", abi.Command), ("gs_op", "GS_OP_", abi.Op)]
)
def test_enums(name: str, prefix: str, mirror: type[IntEnum]) -> None:
    theirs = {label.removeprefix(prefix): value for label, value in enum(name).items() if label != "GS_OP_MAX"}
    assert theirs == {member.name: member.value for member in mirror}


def test_attributes_in_order_and_type() -> None:
    theirs = enum("gs_attr")
    theirs.pop("GS_A_MAX")
    assert {name: number for number, (name, _) in enumerate(abi.ATTRIBUTES)} == theirs
    kinds = dict(re.findall(r"(GS_A_\w+),\s*/\* (u32|u64|s32|flag|string)\b(?! pairs|\[)", HEADER))
    words = {"u32": "uint32", "u64": "uint64", "s32": "int32", "flag": "flag", "string": "asciiz"}
    assert len(kinds) > 15
    for name, kind in abi.ATTRIBUTES:
        if name in kinds:
            assert kind == words[kinds[name]], name


def test_engines_counters_and_features() -> None:
    assert [f"GS_ENGINE_{name.upper()}" for name in abi.ENGINES] == list(enum("gs_engine"))
    counters = [label for label in enum("gs_counter") if label != "GS_COUNTERS"]
    assert [f"GS_COUNT_{name.upper()}" for name in abi.COUNTERS] == counters
    for feature in abi.Feature:
        assert define(f"GS_FEATURE_{feature.name}") == feature


@pytest.mark.parametrize(
    "name", ["MAX_ACTIONS", "MAX_TIMESLICE_US", "MAX_PREEMPT_US", "MIN_LEASE_MS", "MAX_LEASE_MS", "DEFAULT_LEASE_MS",
             "DISABLED", "DISABLED_SCHEDULING", "RESTART_FORCE", "RESTART_WAIT"],
)  # fmt: skip
def test_limits(name: str) -> None:
    assert define(f"GS_{name}") == getattr(abi, name)


class CAction(ctypes.Structure):
    """struct gs_action, as a C compiler lays it out."""

    _fields_ = (("group", ctypes.c_uint64), ("op", ctypes.c_uint32), ("value", ctypes.c_uint32))


u32 = st.integers(0, 2**32 - 1)
actions = st.builds(abi.Action, st.integers(0, 2**64 - 1), st.sampled_from(abi.Op), u32)


@given(st.lists(actions, min_size=1, max_size=abi.MAX_ACTIONS))
def test_actions_are_packed_as_the_struct(todo: list[abi.Action]) -> None:
    data = abi.pack_actions(todo)
    records = (CAction * len(todo)).from_buffer_copy(data)
    assert len(data) == ctypes.sizeof(records)
    assert [(record.group, record.op, record.value) for record in records] == [tuple(action) for action in todo]


@pytest.mark.parametrize("count", [0, abi.MAX_ACTIONS + 1])
def test_number_of_actions(count: int) -> None:
    with pytest.raises(ValueError, match="give 1 to 64"):
        abi.pack_actions([abi.Action(1, abi.Op.ENABLE)] * count)


@given(st.binary(max_size=600))
def test_any_bytes_are_read_without_error(data: bytes) -> None:
    assert len(abi.unpack_results(data)) == len(data) // 8
    assert len(abi.unpack_channels(data)) == len(data) // 8
    assert len(abi.unpack_counters(data)) == min(len(data) // 8, len(abi.COUNTERS))


def test_counters_of_a_newer_or_older_module() -> None:
    assert abi.unpack_counters(struct.pack("=2Q", 5, 6)) == {"clients": 5, "objects": 6}
    many = struct.pack(f"={len(abi.COUNTERS) + 3}Q", *range(len(abi.COUNTERS) + 3))
    assert list(abi.unpack_counters(many)) == list(abi.COUNTERS)
