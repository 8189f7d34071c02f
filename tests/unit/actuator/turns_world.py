"""Jobs that take turns beside latency-critical work, in virtual time (ms): turns.c and pause.bpf.c as they are."""

import ctypes
import math
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpsched.adaptive.actuator import abi


NATIVE = Path(__file__).parents[3] / "adaptive/actuator/native"
PASS_MS = 0.42  # what passing a turn on costs on an H200
BACK_MS = 0.1  # until a job runs again after a reservation
SOONEST_MS = 1e-6


def build(folder: Path) -> ctypes.CDLL:
    library = folder / "turns_bed.so"
    sources = [Path(__file__).with_name("turns_bed.c"), NATIVE / "turns.c", NATIVE / "lengths.c"]
    command = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-I", NATIVE, "-o", library, *sources], check=True)
    bed = ctypes.CDLL(str(library))
    bed.bed_deadline.restype = bed.bed_had_ns.restype = ctypes.c_uint64
    return bed


@dataclass
class Job:
    """Launches a unit, waits for it, and goes on after ``think`` and ``pause``, or with the next beat of ``period``."""

    unit: float
    period: float = 0.0
    pause: float = 0.0
    think: float = 0.15
    begun: float = 0.0
    left: float = 0.0  # of the present unit; 0: it pauses
    wakes: float = 0.0
    done: list[float] = field(default_factory=list)
    had: float = 0.0  # time on the GPU
    waits: list[float] = field(default_factory=list)

    def next_beat(self, now: float) -> float:
        return (now // self.period + 1) * self.period if self.period else 0.0

    @property
    def longest_gap(self) -> float:
        return max(later - earlier for earlier, later in zip(self.done, self.done[1:], strict=False))


def bursts_of(period: float, length: float) -> Iterator[tuple[float, float]]:
    """Begin and length of bursts of latency-critical work."""
    begin = period / 3
    while length:
        yield begin, length
        begin += period
    yield math.inf, 0.0


class World:
    """``run`` goes on; figures are of the last run. For the first ``lead`` of a reservation the job still runs.

    ``passing``: from one turn to the next; ``back``: until a job runs again after a reservation.
    """

    def __init__(self, bed, jobs, turns_us, wait_us=0, bursts=None, lead=0.0, *, passing=PASS_MS, back=BACK_MS):
        self.bed, self.jobs, self.bursts, self.lead, self.runs_until = bed, jobs, bursts or bursts_of(0, 0), lead, 0.0
        self.now, self.turn, self.runs_from, self.burst_end = 0.0, 0, 0.0, math.inf
        self.passing, self.back = passing, back
        self.passes, self.idle = 0, 0.0
        self.turn_ended = [0.0] * len(jobs)
        self.burst = next(self.bursts)
        plan = abi.Gpu(turn_count=len(turns_us), wait_us=wait_us)
        plan.turn_us[: len(turns_us)] = turns_us
        bed.bed_begin(ctypes.byref(plan), self._ns())

    def _ns(self):
        return ctypes.c_uint64(10**9 + round(self.now * 1e6))

    def run(self, ms):
        self.passes, self.idle = 0, 0.0
        for job in self.jobs:
            job.done, job.had, job.waits = [], 0.0, []
        end = self.now + ms
        while self.now < end:
            self._step(end)

    @property
    def reserved(self):
        return self.burst_end < math.inf

    def _step(self, end):
        job = self.jobs[self.turn]
        starts = max(self.now, self.runs_from)
        runs = job.left > 0 and not (self.reserved and self.now >= self.runs_until)
        deadline = self.bed.bed_deadline()
        times = [end, self.runs_until] if self.reserved and self.now < self.runs_until else [end]
        times += [self.burst[0], self.burst_end, *(each.wakes for each in self.jobs if not each.left)]
        times += [starts + job.left] * runs + [(deadline - 10**9) / 1e6 + SOONEST_MS] * (deadline < 1 << 63)
        before, self.now = self.now, max(self.now, min(times))
        if runs and self.now > starts:
            job.had += self.now - starts
            job.left -= self.now - starts
            if job.left < SOONEST_MS:
                self._finish(job)
        elif not runs and not self.reserved:
            self.idle += self.now - before
        self._wake()
        self._reserve()
        self._pass_on()

    def _finish(self, job):
        job.left = 0.0
        job.done.append(self.now)
        job.wakes = max(self.now + job.think + job.pause, job.next_beat(job.begun))
        self.bed.bed_waits(self.turn, self._ns())

    def _wake(self):
        for number, job in enumerate(self.jobs):
            if not job.left and job.wakes <= self.now:
                job.begun, job.left = self.now, job.unit
                self.bed.bed_works(number, self._ns())

    def _reserve(self):
        if self.burst[0] <= self.now:
            if not self.reserved:
                self.burst_end = self.now
                self.runs_until = self.now + self.lead
                self.bed.bed_reserve(True, self._ns())
            self.burst_end += self.burst[1]
            self.burst = next(self.bursts)
        elif self.burst_end <= self.now:
            self.burst_end = math.inf
            self.runs_from = max(self.runs_from, self.now + self.back)
            self.bed.bed_reserve(False, self._ns())

    def _pass_on(self):
        turn = self.bed.bed_tick(self._ns())
        if turn == self.turn:
            return
        self.passes += 1
        self.turn_ended[self.turn], self.runs_from = self.now, self.now + self.passing
        self.turn, job = turn, self.jobs[turn]
        if job.left:
            job.waits.append(self.now - max(self.turn_ended[turn], job.begun))
