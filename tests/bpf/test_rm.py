"""What processes ask of the resource manager, and how unknown ones become pending."""

import errno
import struct
from collections.abc import Callable

import pytest

from gpsched.adaptive.probes.events import ProcessClass, ProcFork, RmAlloc, RmControl, RmDup, RmEvent, RmFree
from tests.bpf.conftest import (
    CHANNEL_GROUP,
    DUP_OBJECT,
    RM_ALLOC,
    RM_ALLOC_LONG,
    RM_CONTROL,
    RM_FREE,
    ROOT_CLIENT,
    SET_TIMESLICE,
    XFER,
    Recorder,
    Victim,
)


pytestmark = [pytest.mark.root, pytest.mark.bpf]
CLIENT, PARENT, OBJECT, STATUS = 0xC1D00001, 0x5C000002, 0x5C000003, 0x57


def rm_events(recorder: Recorder, pid: int) -> list[RmEvent]:
    return [event for event in recorder.of(pid) if isinstance(event, RmEvent)]


def managed(recorder: Recorder, victim: Victim, path: str, class_: str = "be") -> int:
    recorder.probes.manage(victim.pid, class_)
    return victim.do(f"open {path}")


def fields(event: RmEvent) -> tuple[int, ...]:
    return (event.client, event.parent, event.object, event.code, event.value, event.fd, event.result)


def test_short_alloc(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    fd = managed(recorder, victim, nvidiactl)
    outer = struct.pack("=4IQ2I", CLIENT, PARENT, OBJECT, CHANNEL_GROUP, 0, 4, STATUS)
    assert victim.ioctl(fd, RM_ALLOC, outer, 16, struct.pack("=I", 0x1234)) == 0
    (event,) = rm_events(recorder, victim.pid)
    assert isinstance(event, RmAlloc)
    assert fields(event) == (CLIENT, PARENT, OBJECT, CHANNEL_GROUP, 0x1234, fd, STATUS)


def test_long_alloc(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    fd = managed(recorder, victim, nvidiactl)
    outer = struct.pack("=4IQQ4I", CLIENT, PARENT, OBJECT, CHANNEL_GROUP, 0, 0, 4, 0, STATUS, 0)
    assert victim.ioctl(fd, RM_ALLOC_LONG, outer, 16, struct.pack("=I", 7)) == 0
    (event,) = rm_events(recorder, victim.pid)
    assert fields(event) == (CLIENT, PARENT, OBJECT, CHANNEL_GROUP, 7, fd, STATUS)


def test_alloc_without_parameters(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    fd = managed(recorder, victim, nvidiactl)
    victim.ioctl(fd, RM_ALLOC, struct.pack("=4IQ2I", CLIENT, PARENT, OBJECT, 0xA06F, 0, 0, 0))
    assert [fields(event) for event in rm_events(recorder, victim.pid)] == [
        (CLIENT, PARENT, OBJECT, 0xA06F, 0, fd, 0),
    ]


def test_free(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    fd = managed(recorder, victim, nvidiactl)
    victim.ioctl(fd, RM_FREE, struct.pack("=4I", CLIENT, PARENT, OBJECT, STATUS))
    (event,) = rm_events(recorder, victim.pid)
    assert isinstance(event, RmFree)
    assert fields(event) == (CLIENT, PARENT, OBJECT, 0, 0, fd, STATUS)


def control(command: int) -> bytes:
    return struct.pack("=4IQ2I", CLIENT, OBJECT, command, 0, 0, 8, STATUS)


def test_set_timeslice_is_sent_and_other_controls_are_not(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    fd = managed(recorder, victim, nvidiactl)
    for command in (0xA06C0104, SET_TIMESLICE, 0x20800110):
        victim.ioctl(fd, RM_CONTROL, control(command), 16, struct.pack("=Q", 2048))
    (event,) = rm_events(recorder, victim.pid)
    assert isinstance(event, RmControl)
    assert fields(event) == (CLIENT, 0, OBJECT, SET_TIMESLICE, 2048, fd, STATUS)


def test_dup(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    fd = managed(recorder, victim, nvidiactl)
    victim.ioctl(fd, DUP_OBJECT, struct.pack("=7I", CLIENT, PARENT, OBJECT, 0xC1D00009, 0x5C00000A, 0, STATUS))
    (event,) = rm_events(recorder, victim.pid)
    assert isinstance(event, RmDup)
    assert fields(event) == (CLIENT, 0xC1D00009, OBJECT, 0x5C00000A, PARENT, fd, STATUS)


def test_wrapped_call_is_unwrapped(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    fd = managed(recorder, victim, nvidiactl)
    outer = struct.pack("=2IQ", RM_CONTROL & 0xFF, 32, 0)
    victim.ioctl(fd, XFER, outer, 8, control(SET_TIMESLICE), 16, struct.pack("=Q", 1))
    assert [fields(event) for event in rm_events(recorder, victim.pid)] == [
        (CLIENT, 0, OBJECT, SET_TIMESLICE, 1, fd, STATUS),
    ]


@pytest.mark.parametrize("number", [RM_ALLOC ^ (8 << 16), 0x4600, RM_ALLOC & 0xFFFF00FF | ord("G") << 8])
def test_other_ioctls_are_not_sent(recorder: Recorder, victim: Victim, nvidiactl: str, number: int) -> None:
    """A wrong size, a framebuffer's number of the same magic, another magic."""
    fd = managed(recorder, victim, nvidiactl)
    victim.ioctl(fd, number, bytes(64))
    assert rm_events(recorder, victim.pid) == []


def test_refused_call_has_its_errno(recorder: Recorder, victim: Victim) -> None:
    fd = managed(recorder, victim, "/dev/null")
    victim.ioctl(fd, RM_FREE, struct.pack("=4I", CLIENT, PARENT, OBJECT, 0))
    assert [event.result for event in rm_events(recorder, victim.pid)] == [-errno.ENOTTY]


@pytest.mark.parametrize("class_", ["lc", "be"])
def test_both_classes_send(recorder: Recorder, victim: Victim, nvidiactl: str, class_: str) -> None:
    fd = managed(recorder, victim, nvidiactl, class_)
    victim.allocate_client(fd)
    assert [event.code for event in rm_events(recorder, victim.pid)] == [ROOT_CLIENT]


def test_new_client_makes_a_stranger_pending(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    fd = victim.do(f"open {nvidiactl}")
    victim.ioctl(fd, RM_ALLOC, struct.pack("=4IQ2I", CLIENT, PARENT, OBJECT, CHANNEL_GROUP, 0, 0, 0))
    assert rm_events(recorder, victim.pid) == [], "no client yet"
    victim.allocate_client(fd)
    victim.ioctl(fd, RM_ALLOC, struct.pack("=4IQ2I", CLIENT, PARENT, OBJECT, CHANNEL_GROUP, 0, 0, 0))
    assert [event.code for event in rm_events(recorder, victim.pid)] == [ROOT_CLIENT, CHANNEL_GROUP]
    assert recorder.probes.managed()[victim.pid] is ProcessClass.PENDING


def test_refused_client_makes_nobody_pending(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    refused = struct.pack("=4IQ2I", CLIENT, CLIENT, CLIENT, ROOT_CLIENT, 0, 0, STATUS)
    victim.ioctl(victim.do(f"open {nvidiactl}"), RM_ALLOC, refused)
    victim.allocate_client(victim.do("open /dev/null"))
    assert recorder.of(victim.pid) == []
    assert victim.pid not in recorder.probes.managed()


def test_child_of_a_pending_process_is_pending(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    victim.allocate_client(victim.do(f"open {nvidiactl}"))
    child = victim.do("hold")
    assert [type(event) for event in recorder.of(child)] == [ProcFork]
    assert recorder.probes.managed()[child] is ProcessClass.PENDING


def test_forgotten_process_stays_forgotten(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    fd = victim.do(f"open {nvidiactl}")
    victim.allocate_client(fd)
    recorder.probes.forget(victim.pid)
    seen = len(rm_events(recorder, victim.pid))
    victim.allocate_client(fd, CLIENT + 1)
    victim.ioctl(fd, RM_FREE, struct.pack("=4I", CLIENT, CLIENT, CLIENT, 0))
    assert len(rm_events(recorder, victim.pid)) == seen
    assert victim.pid not in recorder.probes.managed()


def test_forgotten_process_counts_again_after_exec(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    recorder.probes.forget(victim.pid)
    victim.execute()
    victim.allocate_client(victim.do(f"open {nvidiactl}"))
    assert recorder.probes.managed()[victim.pid] is ProcessClass.PENDING


def test_forgotten_process_may_be_managed(recorder: Recorder, victim: Victim, nvidiactl: str) -> None:
    recorder.probes.forget(victim.pid)
    fd = managed(recorder, victim, nvidiactl, "lc")
    victim.allocate_client(fd)
    assert len(rm_events(recorder, victim.pid)) == 1


def test_classified_process_goes_on_without_a_gap(
    recorder: Recorder, victims: Callable[..., Victim], nvidiactl: str
) -> None:
    victim = victims()
    fd = victim.do(f"open {nvidiactl}")
    victim.allocate_client(fd)
    recorder.probes.manage(victim.pid, "lc")
    victim.ioctl(fd, RM_FREE, struct.pack("=4I", CLIENT, CLIENT, CLIENT, 0))
    assert [type(event) for event in rm_events(recorder, victim.pid)] == [RmAlloc, RmFree]
