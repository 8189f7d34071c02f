"""The driver room against the embedded GPU: real descriptors, real ioctls, and a process that knows nothing of it."""

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpsched.adaptive.driver import (
    AllocationWatcher,
    DriverFiles,
    HandleGoneError,
    StockControl,
    abi,
    scan_process,
)
from gpsched.adaptive.driver.calls import RmCalls
from gpsched.adaptive.driver.probe import probe_controls
from gpsched.adaptive.driver.status import NOT_SUPPORTED


pytestmark = [pytest.mark.sim, pytest.mark.root]

# Allocates what a CUDA context has, by raw ioctls, and prints each allocation; then obeys until its input ends.
RAW_PROGRAM = """
import ctypes, fcntl, json, sys
from gpsched.adaptive.driver import abi
file = open(sys.argv[1], "r+b", buffering=0)
client = 0
def alloc(parent, class_):
    made = abi.NVOS64(hRoot=client, hObjectParent=parent, hClass=class_)
    fcntl.ioctl(file, abi.RM_ALLOC_WITH_RIGHTS, made, True)
    assert made.status == 0, hex(made.status)
    print(json.dumps([client, parent, made.hObjectNew, class_, file.fileno()]), flush=True)
    return made.hObjectNew
for _ in range(3):
    client = 0
    client = alloc(0, 0x41)
device = alloc(client, 0x80)
alloc(device, 0x2080)
for engine, count in ((0xcbc0, 8), (0xc8b5, 4), (0xc8b5, 4), (0xc8b5, 4)):
    group = alloc(device, 0xa06c)
    for _ in range(count):
        alloc(alloc(group, 0xc86f), engine)
print("ready", flush=True)
for line in sys.stdin:
    gone = abi.NVOS00(hRoot=client, hObjectParent=device, hObjectOld=int(line))
    fcntl.ioctl(file, abi.RM_FREE, gone, True)
    print(gone.status, flush=True)
"""

# A CUDA program as libcuda sees it: one context on each GPU given, nothing else.
CUDA_PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_int()
assert cuda.cuInit(0) == 0
for number in map(int, sys.argv[1:]):
    assert cuda.cuDeviceGet(ctypes.byref(device), number) == 0
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass
class RmAlloc:
    pid: int
    client: int
    parent: int
    object: int
    code: int
    fd: int
    value: int = 0
    result: int = 0


@pytest.fixture(scope="module")
def gpu():
    simgpu = pytest.importorskip("gpsched.adaptive.simgpu")
    if not hasattr(simgpu, "SimulatedGpu"):
        pytest.skip("the embedded GPU has no Python side")
    if not Path("/dev/fuse").exists() or os.geteuid() != 0:
        pytest.skip("the embedded GPU needs /dev/fuse and root")
    with simgpu.SimulatedGpu(gpus=2, scale=1.0) as simulated:
        yield simulated


class Target:
    """A process on the GPU; ``events`` are its allocations where it prints them."""

    def __init__(self, gpu, source, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-c", source, *arguments],
            env={**os.environ, **gpu.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid, self.events = self.process.pid, []
        for line in iter(self.process.stdout.readline, "ready\n"):
            assert line, "the program ended early"
            client, parent, handle, class_, fd = json.loads(line)
            self.events.append(RmAlloc(self.pid, client, parent, handle, class_, fd))

    def free(self, handle):
        self.process.stdin.write(f"{handle}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.kill()
        self.process.wait(10)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def raw(gpu):
    with contextlib.closing(_Ending(Target(gpu, RAW_PROGRAM, f"{gpu.directory}/dev/nvidiactl"))) as ending:
        yield ending.target


@pytest.fixture
def cuda(gpu):
    with contextlib.closing(_Ending(Target(gpu, CUDA_PROGRAM, "0"))) as ending:
        yield ending.target


@dataclass
class _Ending:
    target: Target

    def close(self):
        self.target.end()


@pytest.fixture
def files(raw):
    with DriverFiles(raw.pid) as copies:
        yield copies


def without(commands):
    """Return an ioctl for a driver that does not know some commands."""

    def ioctl(fd, request, argument):
        if request == abi.RM_CONTROL and argument.cmd in commands:
            argument.status = NOT_SUPPORTED
            return 0
        return fcntl.ioctl(fd, request, argument, True)

    return ioctl


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("absent", [(), (abi.GET_HANDLE_INFO.command,)], ids=["by handle information", "by probing"])
def test_a_scan_finds_what_the_watcher_saw(raw, files, absent):
    watcher = AllocationWatcher()
    for event in raw.events:
        watcher.feed(event)
    watched = watcher.groups(raw.pid)
    scanned = scan_process(files, RmCalls(without(absent)))
    assert len(watched) == 4
    for one, other in zip(
        sorted(watched, key=lambda group: group.key), sorted(scanned, key=lambda group: group.key), strict=True
    ):
        assert (one.key, one.engine, one.channels, one.subdevice, one.fd) == (
            other.key, other.engine, other.channels, other.subdevice, other.fd,
        )  # fmt: skip
        assert other.gpu_id is not None


def test_a_cuda_program_has_one_compute_group_with_the_most_channels(cuda):
    with DriverFiles(cuda.pid) as copies:
        groups = scan_process(copies)
        compute = [group for group in groups if group.engine == "compute"]
        assert len(compute) == 1
        assert len(groups) == 4
        assert len(compute[0].channels) == max(len(group.channels) for group in groups) == 8
        assert StockControl(copies).get_timeslice(compute[0]) == 2048


def test_a_program_on_two_gpus_has_a_compute_group_on_each(gpu):
    with (
        contextlib.closing(_Ending(Target(gpu, CUDA_PROGRAM, "0", "1"))) as ending,
        DriverFiles(ending.target.pid) as copies,
    ):
        compute = [group for group in scan_process(copies) if group.engine == "compute"]
        assert len(compute) == 2
        assert len({group.gpu_id for group in compute}) == 2
        control = StockControl(copies)
        control.disable(compute)
        control.enable(compute)


def test_timeslice_disable_enable_and_the_rest(files):
    control = StockControl(files)
    groups = scan_process(files)
    group = next(each for each in groups if each.engine == "compute")
    control.set_timeslice(group, 1)
    assert control.get_timeslice(group) == 1
    assert control.last_cost_us > 0
    for scheduling_only in (False, True):
        control.disable(groups, scheduling_only=scheduling_only)
        assert control.disabled == {channel for each in groups for channel in each.channels}
        control.enable_all()
        assert control.disabled == frozenset()
    control.preempt(group, wait=True)
    control.set_interleave(group, 1)
    control.restart_runlist(group)
    assert control.gpu_id(group) == group.gpu_id
    offer = probe_controls(control, group)
    assert offer.timeslice
    assert offer.enable
    assert offer.restart


def test_a_freed_group_is_gone_not_a_fault(raw, files):
    control = StockControl(files)
    group = scan_process(files)[-1]
    assert raw.free(group.handle) == 0
    with pytest.raises(HandleGoneError) as caught:
        control.get_timeslice(group)
    assert caught.value.pid == raw.pid


def test_ones_own_descriptor_is_refused(gpu, raw, files):
    group = scan_process(files)[0]

    class Own:
        pid = raw.pid

        def get(self, fd):
            return own

    own = os.open(f"{gpu.directory}/dev/nvidiactl", os.O_RDWR)
    try:
        with pytest.raises(HandleGoneError, match="INVALID_CLIENT"):
            StockControl(Own()).get_timeslice(group)
    finally:
        os.close(own)


def test_copies_end_with_the_process_and_do_not_grow(gpu):
    before = descriptors()
    for _ in range(3):
        target = Target(gpu, RAW_PROGRAM, f"{gpu.directory}/dev/nvidiactl")
        copies = DriverFiles(target.pid)
        group = scan_process(copies)[0]
        control = StockControl(copies)
        control.set_timeslice(group, 5)
        os.kill(target.pid, signal.SIGKILL)
        poller = select.poll()
        poller.register(copies.pidfd, select.POLLIN)
        assert poller.poll(5000)
        # Held until here, the copy keeps the dead program's client: that is why it must be closed now.
        assert control.get_timeslice(group) == 5
        assert copies.exited()
        with pytest.raises(HandleGoneError):
            control.get_timeslice(group)
        target.end()
    assert descriptors() == before
