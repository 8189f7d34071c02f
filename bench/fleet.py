"""The programs of one point of a scenario, and the load on them."""

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from gpsched.bench import arrivals
from gpsched.bench.device import favour
from gpsched.bench.kit import Kit, Wrap
from gpsched.bench.messages import End, Run
from gpsched.bench.scenario import Be, Scenario
from gpsched.bench.workload import Job, Service


_BOARD = struct.Struct("=4I")  # switchboard.c: seq, next, serving, hints
_PEAK_REQUESTS = 40
_LEAST_REQUESTS = 5


class Switchboard:
    """The file by which all programs of a fleet are told to take turns, or to announce their requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(_BOARD.size))

    @contextmanager
    def seq(self) -> Iterator[None]:
        """One after the other."""
        yield from self._switched(0)

    @contextmanager
    def hints(self) -> Iterator[None]:
        """A constant hint with each request."""
        yield from self._switched(12)

    def _switched(self, offset: int) -> Iterator[None]:
        self._write(offset, 1)
        try:
            yield
        finally:
            self._write(offset, 0)

    def _write(self, offset: int, value: int) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(struct.pack("=I", value))


class Fleet:
    """Services that are ready, and jobs that wait; all end with the ``with`` block.

    Fields: ``lcs`` and ``bes`` (an entry of the scenario for each program), ``services``, ``jobs``, ``names``.
    """

    def __init__(self, scenario: Scenario, kit: Kit, lc_wrap: Wrap, be_wrap: Wrap) -> None:
        self.lcs = [lc for lc in scenario.lc for _ in range(lc.count)]
        self.bes = [be for be in scenario.be for _ in range(be.count)]
        self.services: list[Service] = []
        self.jobs: list[Job] = []
        self._scale = float(kit.environment.get("GPSCHED_TIME_SCALE", "1"))
        self._kit, self._be_wrap, self._stack = kit, be_wrap, ExitStack()
        with ExitStack() as undo:
            undo.push(self._stack)
            for lc in self.lcs:
                self.services.append(self._stack.enter_context(kit.service(lc, lc_wrap)))
            for service in self.services:
                if not service.ready:
                    service.wait_ready()
                self._favour(service.pid)
            self._load = arrivals.Load(
                scenario, self.lcs, kit.folder, [self._peak(index) for index in range(len(self.lcs))]
            )
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def lc_names(self) -> list[str]:
        """What the figures call each service."""
        return _names([lc.name or lc.model or "service" for lc in self.lcs])

    @property
    def be_names(self) -> list[str]:
        """What the figures call each job."""
        return _names([be.name or be.model or "job" for be in self.bes])

    def start_jobs(self) -> None:
        """Start all jobs, paused. One that calibrates itself finds a GPU on which no earlier job runs."""
        for index, be in enumerate(self.bes):
            job = self._stack.enter_context(self._kit.job(be, _phase(index, be, self.bes), self._be_wrap))
            self.jobs.append(job)
            if job.ready:
                self._pause(job)
        for job in self.jobs:
            if not job.ready:
                job.wait_ready()
                self._pause(job)

    def _pause(self, job: Job) -> None:
        self._favour(job.pid)
        job.pause()

    def finish_jobs(self) -> list[End]:
        """End all jobs and return the check of their states."""
        ends = [job.finish() for job in self.jobs]
        self.jobs.clear()
        return ends

    def finish_services(self) -> list[End]:
        """End all services and return the check of their states."""
        return [service.finish() for service in self.services]

    def serve(self, seconds: float, seed: int) -> list[Run]:
        """Put every service under its load for so long; return what each request took, a ``Run`` a service."""
        for index, service in enumerate(self.services):
            self._load.begin(index, service, seconds, seed)
        if not self.services:
            time.sleep(seconds * self._scale)
        return [service.result() for service in self.services]

    def rates(self) -> list[float]:
        """Requests a second of each service."""
        return [self._load.rate(index) for index in range(len(self.lcs))]

    def _peak(self, index: int) -> float:
        """Requests a second that a service answers when they follow one another at once; alone on the GPU."""
        if self.lcs[index].load is None:
            return 0.0
        service = self.services[index]
        service.run(_LEAST_REQUESTS, 1e5)
        run = service.run(_PEAK_REQUESTS, 1e5)
        return len(run.latency_us) / (run.end_us - run.start_us) * 1e6

    def _favour(self, pid: int) -> None:
        if self._kit.simulated:
            favour(pid)


def _phase(index: int, be: Be, bes: list[Be]) -> float:
    """Jobs of equal rate start at equal distances in the period, as the papers' load generators have it."""
    equal = [place for place, other in enumerate(bes) if other.rate == be.rate]
    return equal.index(index) / len(equal)


def _names(wanted: list[str]) -> list[str]:
    """The same names, numbered where they are not unique."""
    seen: dict[str, int] = {}
    result = []
    for name in wanted:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if wanted.count(name) == 1 else f"{name} {seen[name]}")
    return result
