"""The netlink family of the patched driver module: numbers, records and attribute types of kmod_patches/gpsched/uapi.h.

A test compares every number with that header.
"""

import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

from gpsched.adaptive.driver.types import ChannelGroup


FAMILY = "gpsched"
VERSION = 1
EVENTS = "events"
ABSENT = "no driver module with gpsched in it is loaded"

MAX_ACTIONS = 64
MAX_TIMESLICE_US = 10_000_000
MAX_PREEMPT_US = 1_000_000
MIN_LEASE_MS, MAX_LEASE_MS, DEFAULT_LEASE_MS = 10, 3_600_000, 10_000
DISABLED, DISABLED_SCHEDULING = 1, 2
RESTART_FORCE, RESTART_WAIT = 1, 2
SUSPENDED = 0xFFFFFFFE  # not an NV_STATUS: the driver is being suspended


class Command(IntEnum):
    """enum gs_cmd."""

    INFO = 1
    LIST = 2
    GET = 3
    CONTROL = 4
    RENEW = 5
    RELEASE = 6
    PLAN_SET = 7
    PLAN_BEGIN = 8
    PLAN_END = 9
    PLAN_DROP = 10
    ADDED = 16
    REMOVED = 17
    DONE = 18


class Op(IntEnum):
    """enum gs_op."""

    TIMESLICE = 1
    INTERLEAVE = 2
    DISABLE = 3
    ENABLE = 4
    TIMESLICE_UNDO = 5
    INTERLEAVE_UNDO = 6
    PREEMPT = 7
    RESTART = 8


class Feature(IntFlag):
    """GS_FEATURE_*."""

    KFUNCS = 1
    COMPANION = 2
    TEST = 4


ENGINES = ("unknown", "other", "copy", "compute")  # enum gs_engine

# enum gs_attr, in order, with the way pyroute2 packs each.
ATTRIBUTES = (
    ("GS_A_UNSPEC", "none"),
    ("GS_A_PAD", "none"),
    ("GS_A_VERSION", "uint32"),
    ("GS_A_FEATURES", "uint32"),
    ("GS_A_DRIVER", "asciiz"),
    ("GS_A_COUNTERS", "cdata"),
    ("GS_A_GROUP", "uint64"),
    ("GS_A_CLIENT", "uint32"),
    ("GS_A_HANDLE", "uint32"),
    ("GS_A_PID", "uint32"),
    ("GS_A_UID", "uint32"),
    ("GS_A_CGROUP", "uint64"),
    ("GS_A_ENGINE", "uint32"),
    ("GS_A_DEVICE", "uint32"),
    ("GS_A_GPU", "uint32"),
    ("GS_A_SUBDEVICE", "uint32"),
    ("GS_A_CHANNELS", "cdata"),
    ("GS_A_TIMESLICE", "uint64"),
    ("GS_A_INTERLEAVE", "uint32"),
    ("GS_A_DISABLED", "uint32"),
    ("GS_A_ACTIONS", "cdata"),
    ("GS_A_RESULTS", "cdata"),
    ("GS_A_LEASE_MS", "uint32"),
    ("GS_A_COOKIE", "uint64"),
    ("GS_A_ASYNC", "flag"),
    ("GS_A_PLAN", "uint32"),
    ("GS_A_ERROR", "int32"),
    ("GS_A_STATUS", "uint32"),
)

COUNTERS = (
    "clients",
    "objects",
    "groups",
    "controllers",
    "plans",
    "holds",
    "allocated",
    "lost",
    "controls",
    "failed",
    "undone",
    "limited",
)  # enum gs_counter

_ACTION = struct.Struct("=QII")  # struct gs_action
_RESULT = struct.Struct("=iI")  # struct gs_result


class Action(NamedTuple):
    """One thing to do to one group: ``group`` is the module's number of it, ``value`` as the operation says."""

    group: int
    op: Op
    value: int = 0


class ActionResult(NamedTuple):
    """What became of an action: 0 or a negative errno, and the NV_STATUS behind it."""

    error: int
    status: int


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """What is loaded: ``version`` of the family, ``driver`` is the NVIDIA driver's."""

    version: int
    driver: str
    features: Feature
    counters: dict[str, int]


@dataclass(frozen=True, slots=True)
class ModuleGroup:
    """A channel group as the module knows it; ``number`` is never used again while the module is loaded."""

    number: int
    pid: int
    uid: int
    cgroup: int
    device: int
    disabled: int
    group: ChannelGroup


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a request: ``error`` is the first action's that failed, as negative errno."""

    cookie: int
    error: int
    status: int
    results: tuple[ActionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """A group came, its engine became known (``added``), or it went."""

    added: bool
    group: ModuleGroup


def pack_actions(actions: Sequence[Action]) -> bytes:
    """Return the records of 1 to 64 actions. Raises ValueError for another number of them."""
    if not 1 <= len(actions) <= MAX_ACTIONS:
        raise ValueError(f"{len(actions)} actions; give 1 to {MAX_ACTIONS}")
    return b"".join(_ACTION.pack(*action) for action in actions)


def unpack_results(data: bytes) -> list[ActionResult]:
    """Return one result for each action. Bytes that make no whole record are ignored."""
    return [ActionResult(*fields) for fields in _RESULT.iter_unpack(data[: len(data) // _RESULT.size * _RESULT.size])]


def unpack_channels(data: bytes) -> list[tuple[int, int]]:
    """Return (client, handle) pairs."""
    return [(pair[0], pair[1]) for pair in struct.iter_unpack("=II", data[: len(data) // 8 * 8])]


def unpack_counters(data: bytes) -> dict[str, int]:
    """Return the counters that both sides know: a newer module may have more, an older one fewer."""
    values: Iterable[tuple[int]] = struct.iter_unpack("=Q", data[: len(data) // 8 * 8])
    return {name: value for name, (value,) in zip(COUNTERS, values, strict=False)}


_NETLINK_GENERIC, _GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, _CTRL_ATTR_FAMILY_NAME = 16, 16, 3, 2


def available() -> bool:
    """Tell, without importing pyroute2, whether the running driver has gpsched in it or its companion is loaded."""
    name = FAMILY.encode() + b"\0"
    attribute = struct.pack("=HH", len(name) + 4, _CTRL_ATTR_FAMILY_NAME) + name
    head = struct.pack("=IHHIIBBH", 20 + len(attribute), _GENL_ID_CTRL, 1, 1, 0, _CTRL_CMD_GETFAMILY, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC) as control:
            control.settimeout(1)
            control.send(head + attribute)
            kind: int = struct.unpack_from("=H", control.recv(8192), 4)[0]
    except OSError:
        return False
    return kind == _GENL_ID_CTRL
