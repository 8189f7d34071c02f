"""The real actuator on a fake driver: its controls are answered and written down by a preloaded library (fake_rm.c)."""

import ctypes
import mmap
import os
import subprocess
import time
from pathlib import Path

from gpsched.adaptive.actuator import Actuator, GpuPlan, Mechanism, Member, Plan, PlanSet, Role, Trigger
from gpsched.adaptive.driver.types import Channel, ChannelGroup
from gpsched.adaptive.probes.events import CUDA, HEAD, Call, Flag, Kind


SET_TIMESLICE, PREEMPT, RESTART, SWITCH = 0xA06C0103, 0xA06C0105, 0xA06F0111, 0x2080110B
U32, U64 = ctypes.c_uint32, ctypes.c_uint64
SLEEP = ("sleep", "300")


class Entry(ctypes.Structure):
    _fields_ = [(n, U64) for n in ("begin_ns", "end_ns", "value")] + [
        (n, U32) for n in ("client", "object", "command", "size", "status", "count", "channel", "only_scheduling")
    ]


class Log(ctypes.Structure):
    _fields_ = [
        (n, U32)
        for n in (
            "cost_us",
            "fail_command",
            "fail_disable",
            "fail_status",
            "fail_channel",
            "fail_count",
            "number",
            "pad",
        )
    ] + [("entries", Entry * 8192)]


def build_fake_rm(folder: Path) -> Path:
    library = folder / "fake_rm.so"
    source = Path(__file__).with_name("fake_rm.c")
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


class FakeFiles:
    """Stands in for DriverFiles: any descriptor will do, the fake driver does not look at it."""

    def __init__(self, pid):
        self.pid, self.pidfd, self.closed = pid, os.pidfd_open(pid), False
        self._file = os.open("/dev/null", os.O_RDWR)

    def get(self, _fd):
        return self._file

    def close(self):
        if not self.closed:
            os.close(self.pidfd)
            os.close(self._file)
            self.closed = True


def until(condition, timeout=10.0):
    """Wait for a condition and return its value; it must become true."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)
    return value


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Rig:
    """One latency-critical process and some best-effort ones (asleep, unless said), one actuator, one fake driver."""

    def __init__(self, folder, library, best_effort=1, ring=None, service=SLEEP, job=SLEEP, **pipes):
        path = folder / "rm.log"
        path.write_bytes(bytes(ctypes.sizeof(Log)))
        with path.open("r+b") as file:
            self.rm = Log.from_buffer(mmap.mmap(file.fileno(), 0))
        self.service = subprocess.Popen(service, **pipes)
        self._processes = [self.service, *(subprocess.Popen(job) for _ in range(best_effort))]
        self.lc, self.be = self._processes[0].pid, [process.pid for process in self._processes[1:]]
        self.files = {process.pid: FakeFiles(process.pid) for process in self._processes}
        before = {name: os.environ.get(name) for name in ("LD_PRELOAD", "FAKE_RM_LOG")}
        os.environ.update(LD_PRELOAD=str(library), FAKE_RM_LOG=str(path))
        try:
            self.actuator = Actuator(self.files.__getitem__, ring)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})

    def close(self):
        self.actuator.stop()
        for process in self._processes:
            process.kill()
            process.wait()
        for files in self.files.values():
            files.close()

    def exit(self, pid):
        process = next(process for process in self._processes if process.pid == pid)
        process.kill()
        process.wait()

    def group(self, pid, channels=8, first=0x5C000010):
        handles = tuple(Channel(0xC1D00000 + pid, first + index) for index in range(channels))
        return ChannelGroup(0xC1D00000 + pid, 0x5C000001, "compute", handles, subdevice=0x5C000002, fd=5)

    def member(self, pid, **fields):
        role = Role.LC if pid == self.lc else Role.BE
        return Member(pid, fields.pop("group", None) or self.group(pid), role, **fields)

    def plan(self, mechanism=Mechanism.DISABLE, *, trigger=None, **fields):
        trigger = trigger or Trigger(kind=Kind.CUDA_ENTER, call=Call.COPY_H2D, offset_us=fields.pop("offset_us", 0))
        return Plan(self.lc, (trigger,), mechanism, **({"limit_us": 1_000_000} | fields))

    def publish(self, *plans, members=None, gpus=None):
        members = members or tuple(self.member(pid) for pid in (self.lc, *self.be))
        self.actuator.publish(PlanSet(gpus or (GpuPlan(),), tuple(members), plans))

    def event(self, kind, call, *, is_async=False, tid=0, time_ns=None, handle=0, size=0, pid=None):
        head = (
            time_ns or now_ns(),
            pid or self.lc,
            tid or pid or self.lc,
            kind,
            call,
            0,
            Flag.ASYNC if is_async else 0,
            0,
        )
        self.actuator.announce(HEAD.pack(*head) + CUDA.pack(handle, size))

    def trigger(self, **fields):
        self.event(Kind.CUDA_ENTER, Call.COPY_H2D, is_async=True, **fields)

    def launch(self, **fields):
        self.event(Kind.CUDA_ENTER, Call.LAUNCH, is_async=True, **fields)
        self.event(Kind.CUDA_RETURN, Call.LAUNCH, is_async=True, **fields)

    def sync(self, **fields):
        self.event(Kind.CUDA_ENTER, Call.STREAM_SYNC, **fields)
        self.event(Kind.CUDA_RETURN, Call.STREAM_SYNC, **fields)

    def controls(self):
        """(pid, control, value) of every control so far; the value of a switch is True when it disables."""
        names = {SWITCH: "switch", SET_TIMESLICE: "slice", PREEMPT: "preempt", RESTART: "restart"}
        entries = self.rm.entries[: min(self.rm.number, 8192)]
        return [
            (e.client - 0xC1D00000, names[e.command], bool(e.value) if e.command == SWITCH else e.value)
            for e in entries
            if e.end_ns
        ]

    def is_disabled(self, pid):
        last = [value for who, name, value in self.controls() if (who, name) == (pid, "switch")]
        return bool(last and last[-1])

    def fail(self, status, *, times=1, command=SWITCH, disable=2, channel=0):
        rm = self.rm
        rm.fail_status, rm.fail_command, rm.fail_disable, rm.fail_channel = status, command, disable, channel
        rm.fail_count = times

    def record(self):
        """The next reservation that ended."""
        records = []

        def one():
            records.extend(self.actuator.records())
            return bool(records)

        until(one)
        assert len(records) == 1
        return records[0]
