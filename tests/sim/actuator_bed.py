"""Sample programs on the embedded GPU, and an actuator that acts on them; triggers are announced by the test."""

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import time
from pathlib import Path

from gpsched.adaptive.actuator import Actuator, GpuPlan, Mechanism, Member, Plan, PlanSet, Role, Trigger
from gpsched.adaptive.driver import DriverFiles, StockControl, scan_process
from gpsched.adaptive.probes.events import CUDA, HEAD, Call, Kind
from gpsched.adaptive.simgpu import SimulatedGpu


OWN_US, LC_US, BE_US = 2048, 1_000_000, 1
ANNOUNCED = Trigger(kind=Kind.PROC_EXEC)  # an event that only the test sends


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.002)
    return value


PROGRAMS = Path(__file__).parents[2] / "bench" / "build"


class Program:
    """A sample program: started until it is ready, ended by SIGTERM."""

    def __init__(self, name, env, *options):
        command = [PROGRAMS / name, "--iters-per-us", "1000", *options]  # known: no need to measure it
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **env})
        self.pid = self._process.pid
        try:
            assert select.select([self._process.stdout], [], [], 60)[0], f"{name} does not become ready"
            self.ready = json.loads(self._process.stdout.readline())
        except BaseException:
            self.close()
            raise

    def finish(self):
        """End it; returns its last line, the check of its own state."""
        self._process.terminate()
        output, _ = self._process.communicate(timeout=60)
        return json.loads(output.splitlines()[-1])

    def close(self):
        self._process.kill()
        self._process.communicate()


class Running:
    """A program that somebody else started."""

    def __init__(self, pid):
        self.pid = pid


class Bed:
    """One service, some jobs. Times given in µs of the GPU; ``us`` turns them into what plans count in."""

    def __init__(self, gpu, jobs=1, *, lc_env=None, options=()):
        self.gpu, self.stack = gpu, contextlib.ExitStack()
        try:
            self.service = self._run("gpsched-lc", lc_env or {}, *options)
            self._take([self._run("gpsched-be", {}, "--verify") for _ in range(jobs)])
        except BaseException:
            self.stack.close()
            raise

    def _take(self, jobs):
        self.jobs = jobs
        self.files = {program.pid: DriverFiles(program.pid) for program in (self.service, *self.jobs)}
        self.groups = {
            pid: next(group for group in scan_process(files) if group.engine == "compute")
            for pid, files in self.files.items()
        }
        self.actuator = None

    def _run(self, name, env, *options):
        return self.stack.enter_context(contextlib.closing(Program(name, {**self.gpu.env, **env}, *options)))

    def start(self, ring=None):
        self.actuator = Actuator(self.files.__getitem__, ring)

    def close(self):
        if self.actuator is not None:
            self.actuator.stop()
        for files in self.files.values():
            files.close()
        with self.stack:
            pass

    def us(self, gpu_us):
        return round(gpu_us * self.gpu.scale)

    def set_slices(self, service=LC_US, job=BE_US):
        for pid, group in self.groups.items():
            StockControl(self.files[pid]).set_timeslice(group, service if pid == self.service.pid else job)

    def slices(self):
        """What the driver says, by descriptors that are not the actuator's."""
        return [StockControl(self.files[pid]).get_timeslice(group) for pid, group in self.groups.items()]

    def member(self, pid, **fields):
        return Member(pid, self.groups[pid], Role.LC if pid == self.service.pid else Role.BE, **fields)

    def plan(self, mechanism=Mechanism.DISABLE, *, trigger=ANNOUNCED, limit_us=200_000, **fields):
        return Plan(self.service.pid, (trigger,), mechanism, self.us(limit_us), **fields)

    def publish(self, *plans, turns_us=(), original_us=0):
        members = [self.member(self.service.pid, original_us=original_us)]
        members += [self.member(job.pid, turn=index, original_us=original_us) for index, job in enumerate(self.jobs)]
        turns = tuple(self.us(turn) for turn in turns_us)
        self.actuator.publish(PlanSet((GpuPlan(turns),), tuple(members), plans))

    def announce(self):
        self.call(Kind.PROC_EXEC, Call.NONE)

    def call(self, kind, call):
        """Tell the actuator of an event of the service."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self.actuator.announce(HEAD.pack(now, self.service.pid, 1, kind, call, 0, 0, 0) + CUDA.pack(0, 0))

    def reserve(self):
        """Announce a burst that does not come, and wait until the jobs are off the GPU."""
        self.announce()
        until(lambda: self.actuator.counters().disabled == len(self.jobs))
        until(lambda: not self.working())

    def kernels(self):
        processes = {process["pid"]: process["kernels"] for process in self.gpu.stats()["processes"]}
        return [processes.get(job.pid, 0) for job in self.jobs]

    def working(self):
        """The jobs that complete kernels while the GPU's clock advances by 10 ms."""
        before, end = self.kernels(), self.gpu.stats()["now_us"] + 10_000
        while self.gpu.stats()["now_us"] < end:
            time.sleep(0.002)
        return [job.pid for job, old, new in zip(self.jobs, before, self.kernels(), strict=True) if new > old]

    def waits(self):
        """How long each of the service's last bursts waited for the GPU, µs on its clock, sorted."""
        launches = next(p["launches"] for p in self.gpu.stats()["processes"] if p["pid"] == self.service.pid)
        first = {}
        for submit, start, _ in launches:
            first[submit] = min(start, first.get(submit, start))
        return sorted(start - submit for submit, start in first.items())

    @contextlib.contextmanager
    def connection(self):
        with socket.create_connection(("127.0.0.1", self.service.ready["port"]), timeout=30) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield client

    def requests(self, count, *, announced=True):
        """What each request took inside the service, µs of the program's time, sorted."""
        taken = []
        with self.connection() as client:
            for number in range(count):
                if announced:
                    self.announce()
                client.sendall(struct.pack("=Q56x", number))
                taken.append(struct.unpack("=Qdd", client.recv(24, socket.MSG_WAITALL))[1])
                time.sleep(self.us(3000) / 1e6)
        return sorted(taken)


class Existing(Bed):
    """The same programs as another process sees them: a daemon of their own. The environment names the GPU."""

    def __init__(self, service, *jobs):
        self.gpu = SimulatedGpu(scale=float(os.environ["GPSCHED_TIME_SCALE"]), directory=os.environ["GPSCHED_SIM_DIR"])
        self.service = Running(service)
        self._take([Running(job) for job in jobs])
