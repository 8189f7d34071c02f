"""The events that the BPF programs send: the mirror of ``bpf/events.h`` and its decoder.

Every record is a ``struct gs_event`` of 64 bytes: a common head of 32 and a body that depends on the kind.
"""

import os
import struct
from enum import IntEnum, IntFlag
from typing import Literal

import msgspec

from gpsched.adaptive.probes.errors import EventDecodeError


ABI_VERSION = 4
COMM_LENGTH = 16
UNKNOWN = -1  # GS_UNKNOWN


class ProcessClass(IntEnum):
    """``enum gs_class``: PENDING has opened the driver and is not classified yet."""

    PENDING = 0
    LC = 1
    BE = 2


class Kind(IntEnum):
    """``enum gs_kind``."""

    CUDA_ENTER = 1
    CUDA_RETURN = 2
    RM_ALLOC = 3
    RM_FREE = 4
    RM_CONTROL = 5
    RM_DUP = 6
    PROC_FORK = 7
    PROC_EXEC = 8
    PROC_EXIT = 9
    WAKE = 10
    HINT = 11
    PAUSE = 12


class Call(IntEnum):
    """``enum gs_call``: what a CUDA entry point does."""

    NONE = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    COPY_H2D = 3
    COPY_D2H = 4
    COPY_D2D = 5
    COPY_PEER = 6
    COPY_ANY = 7
    STREAM_SYNC = 8
    EVENT_SYNC = 9
    CTX_SYNC = 10
    STREAM_QUERY = 11
    EVENT_QUERY = 12
    EVENT_RECORD = 13


class Wake(IntEnum):
    """``enum gs_wake``: what a thread came back from; with ``GS_WAKING`` added, what it is being woken out of."""

    SOCKET_READ = 1
    ACCEPT = 2
    EPOLL = 3
    PIPE = 4
    EVENTFD = 5
    TIMER = 6
    SLEEP = 7
    FUTEX = 8
    SOCKET_WAKING = 17
    ACCEPT_WAKING = 18
    EPOLL_WAKING = 19
    PIPE_WAKING = 20
    EVENTFD_WAKING = 21
    TIMER_WAKING = 22
    SLEEP_WAKING = 23


ALL_WAKES = sum(1 << wake for wake in Wake)
ALL_WAKINGS = sum(1 << wake for wake in Wake if wake.name.endswith("_WAKING"))


class Hint(IntEnum):
    """``enum gs_hint``: what a program announces itself."""

    RESERVE = 1
    CANCEL = 2


class Pause(IntEnum):
    """``enum gs_pause``: what a best-effort job is said to do."""

    OVER = 0
    SURE = 1
    IN_DOUBT = 2


class Flag(IntFlag):
    """``GS_FLAG_*``: ASYNC calls return before their work is done. WHOLE: of a pause, the one before was told."""

    ASYNC = 1
    WHOLE = 2


class ManagedFlag(IntFlag):
    """``GS_MANAGED_*``: FAST events go to the actuator's ring too; those of BURSTS, or ALL, wake the daemon at once.

    Of a best-effort process FAST means its long pauses. The daemon is told of no call and no wake of who is RESTING.
    """

    FAST = 1
    BURSTS = 2
    ALL = 4
    RESTING = 8


AtOnce = Literal["never", "nothing", "bursts", "all"]
"""Which calls and wakes of a process the daemon is told of at once: see ``ManagedFlag``. Never: not even later."""


class Lost(IntEnum):
    """``enum gs_lost``: indices of the map ``lost``."""

    EVENTS = 0
    PROCESSES = 1
    FAST = 2


HEAD = struct.Struct("=QIIHHiII")
CUDA = struct.Struct("=QQ16x")
RM = struct.Struct("=IIIIQII")
WAKE = struct.Struct("=qQ16x")
HINT = struct.Struct("=QQQ8x")
PROC = struct.Struct(f"=II{COMM_LENGTH}s8x")
EVENT_SIZE = HEAD.size + RM.size
_FREQUENT = struct.Struct("=QIIHHiIIQQ16x")  # the head and the two words of a call's or a wake's body
COUNTERS = struct.Struct(f"={len(Call)}Q8Q8x")
# Plain numbers and indices are ten times faster than enumerations, and these come a thousand times a second.
_CALLS = tuple(Call)
_WAKES = tuple(Wake._value2member_map_.get(number) for number in range(max(Wake) + 1))
_CUDA_KINDS, _CUDA_RETURN = (Kind.CUDA_ENTER.value, Kind.CUDA_RETURN.value), Kind.CUDA_RETURN.value
_WAKE_KIND = Kind.WAKE.value
_ASYNC = Flag.ASYNC.value
_NO_DESCRIPTOR = UNKNOWN % 2**64


class Event(msgspec.Struct, frozen=True, gc=False):
    """What all events have: ``time_ns`` (CLOCK_MONOTONIC), ``pid`` (the process) and ``tid`` (its thread)."""

    time_ns: int
    pid: int
    tid: int


class CudaEvent(Event, frozen=True, gc=False):
    """A latency-critical process enters a CUDA call, or returns from it.

    On the return ``result`` is the CUresult, and ``handle`` and ``size`` (bytes) are 0. Queries come only as a return,
    with their handle; event records only as an entry, with the event as ``handle`` and the stream as ``size``.
    """

    call: Call
    is_return: bool
    is_async: bool
    handle: int
    size: int
    result: int


class WakeEvent(Event, frozen=True, gc=False):
    """A thread of a latency-critical process came back from reading or waiting, or is being woken out of it.

    ``descriptor`` is its number, UNKNOWN where the wait was not on one. ``size`` in bytes is 0 for what reads nothing.
    ``result`` is what the system call returned: for ACCEPT the new descriptor, for EPOLL how many are ready. Both are 0
    as long as it is only being woken.
    """

    wake: Wake
    descriptor: int
    size: int
    result: int


class HintEvent(Event, frozen=True, gc=False):
    """A latency-critical process announces a burst ``in_us`` µs from now, or cancels its announcement."""

    hint: Hint
    in_us: int


class RmEvent(Event, frozen=True, gc=False):
    """What a process asked of the resource manager; the fields are those of ``struct gs_rm``.

    ``result`` is the NV_STATUS, or -errno when the ioctl itself failed; ``fd`` the caller's descriptor.
    """

    client: int
    parent: int
    object: int
    code: int
    value: int
    fd: int
    result: int


class RmAlloc(RmEvent, frozen=True, gc=False):
    """``object`` of class ``code`` was made under ``parent``; ``value`` is the first u32 of its parameters."""


class RmFree(RmEvent, frozen=True, gc=False):
    """``object``, and everything below it, was freed."""


class RmControl(RmEvent, frozen=True, gc=False):
    """The control ``code`` (SET_TIMESLICE) was called on ``object``; ``value`` in µs."""


class RmDup(RmEvent, frozen=True, gc=False):
    """``object`` of ``client``, under ``value``, duplicates object ``code`` of the client ``parent``."""


class ProcFork(Event, frozen=True, gc=False):
    """``parent``, a managed process, has a new child ``pid``, which is managed with the same class already."""

    parent: int
    comm: str


class ProcExec(Event, frozen=True, gc=False):
    """The process runs another program; ``comm`` is its new name."""

    comm: str


class ProcExit(Event, frozen=True, gc=False):
    """The last thread of the process has ended; the kernel has forgotten it. ``wait_status`` as of wait(2)."""

    wait_status: int

    @property
    def exit_code(self) -> int:
        """The exit code, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(self.wait_status)


_RM_TYPES: dict[int, type[RmEvent]] = {
    Kind.RM_ALLOC: RmAlloc,
    Kind.RM_FREE: RmFree,
    Kind.RM_CONTROL: RmControl,
    Kind.RM_DUP: RmDup,
}


def decode(record: bytes) -> Event:
    """Turn one record into its event; raises EventDecodeError when it is not one of this ABI."""
    if len(record) != EVENT_SIZE:
        raise EventDecodeError(f"{EVENT_SIZE} expected", len(record))
    time_ns, pid, tid, kind, call, result, flags, _, handle, size = _FREQUENT.unpack(record)
    if kind in _CUDA_KINDS:
        if not 0 < call < len(_CALLS):
            raise EventDecodeError(f"unknown CUDA call {call}", len(record))
        is_return, is_async = kind == _CUDA_RETURN, flags & _ASYNC != 0
        return CudaEvent(time_ns, pid, tid, _CALLS[call], is_return, is_async, handle, size, result)
    if kind == _WAKE_KIND:
        wake = _WAKES[call] if call < len(_WAKES) else None
        if wake is None:
            raise EventDecodeError(f"unknown wake {call}", len(record))
        descriptor = UNKNOWN if handle == _NO_DESCRIPTOR else handle
        return WakeEvent(time_ns, pid, tid, wake, descriptor, size, result)
    return _decode_rare(record, (time_ns, pid, tid), kind, call, result)


def _decode_rare(record: bytes, head: tuple[int, int, int], kind: int, call: int, result: int) -> Event:
    if kind in _RM_TYPES:
        client, parent, handle, code, value, fd, _ = RM.unpack_from(record, HEAD.size)
        return _RM_TYPES[kind](*head, client, parent, handle, code, value, fd, result)
    if kind in (Kind.PROC_FORK, Kind.PROC_EXEC, Kind.PROC_EXIT):
        return _decode_process(record, head, kind, result)
    if kind == Kind.HINT:
        return _decode_hint(record, head, call)
    raise EventDecodeError(f"unknown kind {kind}", len(record))


def encode_hint(time_ns: int, pid: int, hint: Hint = Hint.RESERVE, every_ns: int = 0, lead_ns: int = 0) -> bytes:
    """Return the record that announces a burst of ``pid`` at ``time_ns``, which may lie ahead: for the actuator.

    With ``every_ns`` it announces those after it as well, whose launches come ``lead_ns`` later. With ``Hint.CANCEL``
    it takes back what was announced.
    """
    return HEAD.pack(time_ns, pid, pid, Kind.HINT, hint, 0, 0, 0) + HINT.pack(0, every_ns, lead_ns)


def _decode_hint(record: bytes, head: tuple[int, int, int], call: int) -> HintEvent:
    if call not in (Hint.RESERVE, Hint.CANCEL):
        raise EventDecodeError(f"unknown hint {call}", len(record))
    in_us, _, _ = HINT.unpack_from(record, HEAD.size)
    return HintEvent(*head, Hint(call), in_us)


def _decode_process(record: bytes, head: tuple[int, int, int], kind: int, status: int) -> Event:
    parent, _, raw = PROC.unpack_from(record, HEAD.size)
    comm = raw.split(b"\0", 1)[0].decode(errors="replace")
    if kind == Kind.PROC_FORK:
        return ProcFork(*head, parent, comm)
    if kind == Kind.PROC_EXEC:
        return ProcExec(*head, comm)
    return ProcExit(*head, status)
