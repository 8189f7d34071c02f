"""The RM ABI of the embedded GPU, by raw ioctls on the FUSE file."""

import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpsched.adaptive.simgpu import SimulatedGpu
from tests.sim import raw_rm as rm


pytestmark = [pytest.mark.sim, pytest.mark.root]

DISABLE = struct.Struct("<B3xIBB6xQ64I64I")


@pytest.fixture
def fd(two_gpus: SimulatedGpu) -> Iterator[int]:
    with rm.opened(two_gpus.directory) as number:
        yield number


@pytest.fixture
def context(fd: int) -> rm.Context:
    return rm.Context(fd)


def disable(
    context: rm.Context, channels: list[int], off: int = 1, count: int | None = None, event: int = 0, client: int = 0
) -> int:
    pad = [0] * (64 - len(channels))
    params = DISABLE.pack(
        off,
        len(channels) if count is None else count,
        0,
        0,
        event,
        *[client or context.client] * len(channels),
        *pad,
        *channels,
        *pad,
    )
    return context.control(context.subdevice, 0x2080110B, params)[0]


def test_handles_are_numbered_as_the_driver_does(context: rm.Context) -> None:
    assert 0xC1D00000 <= context.client < 0xC1D00200
    assert context.device == 0x5C000000
    assert context.subdevice == 0x5C000001


def test_old_and_new_allocation_structures(fd: int, context: rm.Context) -> None:
    data = struct.pack("<4IQ2I", context.client, context.device, 0, rm.GROUP, 0, 0, 0)
    out = rm.ioctl(fd, rm.ALLOC21, data)
    handle, status = struct.unpack_from("<I", out, 8)[0], struct.unpack_from("<I", out, 28)[0]
    assert status == rm.OK
    assert rm.timeslice(fd, context.client, handle) == 2048


def test_a_chosen_handle_is_kept_and_not_given_twice(fd: int, context: rm.Context) -> None:
    assert rm.alloc(fd, context.client, context.device, rm.GROUP, handle=0x5C123456) == (rm.OK, 0x5C123456)
    assert rm.alloc(fd, context.client, context.device, rm.GROUP, handle=0x5C123456)[0] == 0x19


@pytest.mark.parametrize(
    ("parent", "class_", "status"),
    [
        ("device", rm.CHANNEL, rm.BAD_PARENT),
        ("group", rm.COMPUTE, rm.BAD_PARENT),
        ("client", rm.GROUP, rm.BAD_PARENT),
        ("device", 0xDEAD, rm.BAD_CLASS),
    ],
)
def test_wrong_parents_and_classes(context: rm.Context, parent: str, class_: int, status: int) -> None:
    assert rm.alloc(context.fd, context.client, getattr(context, parent), class_)[0] == status


def test_device_instances(fd: int, context: rm.Context) -> None:
    for instance, status in ((1, rm.OK), (2, rm.BAD_DEVICE)):
        params = struct.pack("<14I", instance, *[0] * 13)
        assert rm.alloc(fd, context.client, context.client, rm.DEVICE, params)[0] == status
    second = rm.Context(fd, gpu=1)
    ids = [struct.unpack("<I", c.control(c.subdevice, 0x20800142, bytes(4))[1])[0] for c in (context, second)]
    assert ids[0] != ids[1]


def test_freeing_a_parent_frees_its_children(context: rm.Context) -> None:
    assert rm.free(context.fd, context.client, context.device, context.group) == rm.OK
    for handle, cmd, size in ((context.group, rm.GET_TIMESLICE, 8), (context.channels[0], 0xC36F0108, 4)):
        assert context.control(handle, cmd, bytes(size))[0] == rm.NO_OBJECT
    assert rm.free(context.fd, context.client, context.device, context.group) == rm.NO_OBJECT
    assert rm.free(context.fd, context.client, context.client, context.client) == rm.OK
    assert context.control(context.device, rm.GET_TIMESLICE, bytes(8))[0] == rm.BAD_CLIENT


@pytest.mark.parametrize("us", [0, 1, 200, 2048, 1_000_000])
def test_timeslice_reads_back(context: rm.Context, us: int) -> None:
    assert rm.timeslice(context.fd, context.client, context.group) == 2048
    assert context.control(context.group, rm.SET_TIMESLICE, struct.pack("<Q", us))[0] == rm.OK
    assert rm.timeslice(context.fd, context.client, context.group) == us


CONTROLS = [
    ("group", 0xA06C0101, 3),
    ("group", rm.SET_TIMESLICE, 8),
    ("group", rm.GET_TIMESLICE, 8),
    ("group", 0xA06C0105, 8),
    ("group", 0xA06C0106, 4),
    ("group", 0xA06C0107, 4),
    ("group", 0xA06C0110, 1),
    ("channel", 0xA06F0111, 2),
    ("channel", 0xC36F0108, 4),
    ("subdevice", 0x2080110B, 536),
    ("subdevice", 0x20800142, 4),
]


@pytest.mark.parametrize(("target", "cmd", "size"), CONTROLS)
def test_every_control_wants_its_exact_size(context: rm.Context, target: str, cmd: int, size: int) -> None:
    handle = context.channels[0] if target == "channel" else getattr(context, target)
    assert context.control(handle, cmd, bytes(size))[0] == rm.OK
    for wrong in (0, size - 1, size + 1):
        assert context.control(handle, cmd, bytes(wrong))[0] == rm.BAD_SIZE
    assert context.control(context.device, cmd, bytes(size))[0] == rm.UNSUPPORTED
    assert context.control(0x5CFFFFFF, cmd, bytes(size))[0] == rm.NO_OBJECT


def test_class_engineid_and_unique_id(context: rm.Context) -> None:
    compute = rm.must_alloc(context.fd, context.client, context.channels[0], rm.COMPUTE)
    status, out = context.control(context.channels[0], 0x906F0101, struct.pack("<4I", compute, 0, 0, 0))
    assert status == rm.OK
    assert struct.unpack("<4I", out)[2:] == (rm.COMPUTE, 1)
    params = struct.pack("<2I", context.client, context.group).ljust(1552, b"\0")
    status, out = context.control(context.subdevice, 0x20801123, params)
    assert status == rm.OK
    assert struct.unpack_from("<I", out, 12)[0] == 8
    assert len(set(struct.unpack_from("<8I", out, 16))) == 8


def test_disable_checks_its_channels(context: rm.Context) -> None:
    other_gpu = rm.Context(context.fd, gpu=1)
    assert disable(context, context.channels) == rm.OK
    assert disable(context, context.channels, off=0) == rm.OK
    assert disable(context, [0x5CFFFFFF]) == rm.BAD_CHANNEL
    assert disable(context, [context.group]) == rm.BAD_CHANNEL
    assert disable(context, context.channels, count=65) == rm.ARGUMENT
    assert disable(context, context.channels, event=1) == rm.ARGUMENT
    assert disable(other_gpu, context.channels, client=context.client) == rm.BAD_CHANNEL


def test_bad_pointers_are_refused(context: rm.Context) -> None:
    data = struct.pack("<4IQ2I", context.client, context.group, rm.SET_TIMESLICE, 0, 0x1000, 8, 0)
    assert struct.unpack_from("<I", rm.ioctl(context.fd, rm.CONTROL, data), 28)[0] == rm.BAD_POINTER


def test_wrapped_ioctl(context: rm.Context) -> None:
    value = ctypes.create_string_buffer(struct.pack("<Q", 777), 8)
    inner = struct.pack("<4IQ2I", context.client, context.group, rm.SET_TIMESLICE, 0, ctypes.addressof(value), 8, 9)
    buffer = ctypes.create_string_buffer(inner, len(inner))
    rm.ioctl(context.fd, rm.XFER, struct.pack("<IIQ", 0x2A, len(inner), ctypes.addressof(buffer)))
    assert struct.unpack_from("<I", buffer.raw, 28)[0] == rm.OK
    assert rm.timeslice(context.fd, context.client, context.group) == 777


def test_a_duplicate_outlives_the_original(context: rm.Context) -> None:
    other = rm.must_alloc(context.fd, 0, 0, rm.CLIENT)
    data = struct.pack("<7I", other, other, 0, context.client, context.group, 0, 0)
    out = rm.ioctl(context.fd, rm.DUP, data)
    copy = struct.unpack_from("<I", out, 8)[0]
    assert struct.unpack_from("<I", out, 24)[0] == rm.OK
    rm.free(context.fd, context.client, context.device, context.group)
    assert rm.timeslice(context.fd, other, copy) == 2048


def test_only_the_open_file_owns_a_client(two_gpus: SimulatedGpu, context: rm.Context) -> None:
    with rm.opened(two_gpus.directory) as stranger:
        assert rm.control(stranger, context.client, context.group, rm.GET_TIMESLICE, bytes(8))[0] == rm.BAD_CLIENT
        assert rm.free(stranger, context.client, context.device, context.group) == rm.BAD_CLIENT
        assert rm.alloc(stranger, context.client, context.device, rm.GROUP)[0] == rm.BAD_CLIENT


def test_a_copied_descriptor_acts_with_the_owner_and_keeps_the_client(two_gpus: SimulatedGpu) -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tests.sim import raw_rm as rm
with rm.opened(Path(sys.argv[1])) as fd:
    c = rm.Context(fd)
    print(fd, c.client, c.group, flush=True)
    sys.stdin.read()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(two_gpus.directory), str(Path.cwd())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        number, client, group = map(int, child.stdout.readline().split())
        pidfd = os.pidfd_open(child.pid)
        copy = ctypes.CDLL(None).syscall(438, pidfd, number, 0)
        os.close(pidfd)
        assert Path(f"/proc/self/fd/{copy}").readlink().name == "nvidiactl"
        assert rm.timeslice(copy, client, group) == 2048
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
    assert rm.timeslice(copy, client, group) == 2048
    os.close(copy)
    with rm.opened(two_gpus.directory) as fd:
        assert rm.control(fd, client, group, rm.GET_TIMESLICE, bytes(8))[0] == rm.BAD_CLIENT
        # The handle number is free again.
        deadline = time.monotonic() + 5
        while rm.must_alloc(fd, 0, 0, rm.CLIENT) != client:
            assert time.monotonic() < deadline


@pytest.mark.parametrize("cmd", [0xA06C0107, 0xA06C0110])
def test_priority_controls_need_cap_sys_nice_of_the_caller(context: rm.Context, cmd: int) -> None:
    size = 4 if cmd == 0xA06C0107 else 1
    child = os.fork()
    if child == 0:
        drop_capability(23)
        os._exit(context.control(context.group, cmd, bytes(size))[0])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == rm.PERMISSIONS
    assert context.control(context.group, cmd, bytes(size))[0] == rm.OK


def drop_capability(number: int) -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None)
    assert libc.capget(header, data) == 0
    data[0] &= ~(1 << number)
    assert libc.capset(header, data) == 0


def test_a_control_takes_its_time_without_blocking_others(two_gpus: SimulatedGpu, context: rm.Context) -> None:
    with rm.opened(two_gpus.directory) as other:
        elsewhere = rm.Context(other, gpu=1)
        begin = time.monotonic()
        slow = threading.Thread(target=context.control, args=(context.group, 0xA06C0110, b"\0"))
        slow.start()
        time.sleep(0.001)
        reads = 0
        while slow.is_alive() and reads < 1000:
            rm.timeslice(other, elsewhere.client, elsewhere.group)
            reads += 1
        slow.join()
        # 1270 µs of simulated time; the others' reads went on meanwhile.
        assert time.monotonic() - begin >= 1270e-6 * two_gpus.scale * 0.99
        assert reads > 5


def still_works(gpu: SimulatedGpu) -> None:
    with rm.opened(gpu.directory) as fd:
        context = rm.Context(fd)
        assert rm.timeslice(fd, context.client, context.group) == 2048


FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(data=st.binary(min_size=48, max_size=48), number=st.integers(0, 255), size=st.integers(0, 64))
def test_fuzz_any_ioctl(two_gpus: SimulatedGpu, fd: int, data: bytes, number: int, size: int) -> None:
    buffer = data.ljust(64, b"\xff")[:size] if size else b""
    for nr in (number, 0x29, 0x2A, 0x2B, 0x34, 211):
        with contextlib.suppress(OSError):
            rm.ioctl(fd, 0xC0004600 | size << 16 | nr, buffer.ljust(64, b"\0"))
    still_works(two_gpus)


WORDS = st.integers(0, 2**32 - 1)


@FUZZ
@given(st.data())
def test_fuzz_controls_on_live_objects(two_gpus: SimulatedGpu, fd: int, data: st.DataObject) -> None:
    context = rm.Context(fd)
    handles = [context.client, context.device, context.subdevice, context.group, *context.channels]
    for _ in range(3):
        target, cmd, size = data.draw(st.sampled_from(CONTROLS))
        handle = data.draw(st.sampled_from(handles)) if data.draw(st.booleans()) else None
        if handle is None:
            handle = context.channels[0] if target == "channel" else getattr(context, target)
        # Bytes of any value; waits stay those of the controls themselves.
        params = data.draw(st.binary(min_size=size, max_size=size))
        status = context.control(handle, cmd, params)[0]
        assert status in range(0x70)
    assert rm.free(fd, context.client, context.client, context.client) == rm.OK
    still_works(two_gpus)


@FUZZ
@given(root=WORDS, parent=WORDS, handle=WORDS, class_=WORDS, params=WORDS, size=WORDS)
def test_fuzz_allocations(
    two_gpus: SimulatedGpu, fd: int, root: int, parent: int, handle: int, class_: int, params: int, size: int
) -> None:
    rm.ioctl(fd, rm.ALLOC64, struct.pack("<4IQQ4I", root, parent, handle, class_, params, 0, size, 0, 0, 0))
    rm.ioctl(fd, rm.FREE, struct.pack("<4I", root, parent, handle, 0))
    rm.ioctl(fd, rm.DUP, struct.pack("<7I", root, parent, handle, class_, params, 0, 0))
    still_works(two_gpus)


def test_a_caller_killed_in_a_control_harms_nobody(two_gpus: SimulatedGpu) -> None:
    child = os.fork()
    if child == 0:
        with rm.opened(two_gpus.directory) as fd:
            context = rm.Context(fd)
            for _ in range(10_000):
                context.control(context.group, 0xA06C0110, b"\0")
        os._exit(0)
    time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    still_works(two_gpus)
