"""The sample programs as objects: a latency-critical service under load, and a best-effort job.

Times are µs of program time. The programs are built from ``programs/`` (CUDA driver API) or written in PyTorch.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from gpsched.bench.errors import ProgramMissingError
from gpsched.bench.messages import End, Paused, Progress, Ready, Resumed, Run
from gpsched.bench.process import CommandProcess


HERE = Path(__file__).parent
BUILD = HERE / "build"


_ANSWER_S = 30.0  # a stat waits for one kernel, a pause for the queue
_START_S = 60.0  # CUDA's initialisation and the calibration; PyTorch also loads its libraries and captures a graph
_SCALE_KEY = "GPSCHED_TIME_SCALE"


def program(name: str) -> str:
    """Path of a built program; raise ``ProgramMissingError`` when it was not built."""
    path = BUILD / name
    if not path.exists():
        raise ProgramMissingError(str(path))
    return str(path)


class _Workload:
    """Ends its processes with the ``with`` block. ``ready``: what it said when it could be used, None before."""

    def __init__(self) -> None:
        self._processes = ExitStack()
        self.ready: Ready | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.__exit__(kind, error, trace)

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> CommandProcess:
        return self._processes.enter_context(CommandProcess(command, environment))


class Service(_Workload):
    """A latency-critical service and its load generator. Fields: ``pid`` of the service, ``ready``, ``command``."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        generator: Sequence[str] | None = None,
        wait: bool = True,
    ) -> None:
        """Start ``command``; ``generator``: it only serves, so gpsched-lc is started as the load generator beside it,
        with these options.

        Unless ``wait``, nothing but ``wait_ready`` may be called at first.
        """
        super().__init__()
        self.command = list(command)
        self._scale = float(environment.get(_SCALE_KEY, "1"))
        self._limit_s = _ANSWER_S
        with ExitStack() as undo:
            undo.push(self._processes)
            self._server = self._generator = self._start(command, environment)
            self.pid = self._server.pid
            self._load, self._environment = generator, environment
            if wait:
                self.wait_ready()
            undo.pop_all()

    def wait_ready(self) -> None:
        """Return when the service and its load generator can be used."""
        self.ready = self._server.expect(Ready, _START_S)
        if self._load is not None:
            load = [program("gpsched-lc"), "--connect", str(self.ready.port), "--commands"]
            self._generator = self._start([*load, *self._load], self._environment)

    def run(
        self, requests: int, rate: float, arrival: str = "constant", seed: int = 1, phase: float | None = None
    ) -> Run:
        """Send ``requests`` at ``rate`` a second and return what each took.

        ``phase``: where in the period constant arrivals fall, as a share of it, on a clock that all programs share.
        """
        self.begin(requests, rate, arrival, seed, phase)
        return self.result()

    def begin(
        self, requests: int, rate: float, arrival: str = "constant", seed: int = 1, phase: float | None = None
    ) -> None:
        """Start what ``run`` does, so that several services can be under load at once; then take the ``result``."""
        ending = "" if phase is None else f" {phase:.6f}"
        self._begin(f"run {requests} {rate:.9g} {arrival} {seed}{ending}", requests / rate)

    def replay(self, trace: Path, seconds: float) -> None:
        """Start sending requests at the times in ``trace`` (µs, one a line), which span ``seconds``."""
        self._begin(f"replay {trace}", seconds)

    def result(self) -> Run:
        """Wait for the end of what was begun and return what each request took."""
        return self._generator.expect(Run, self._limit_s)

    def _begin(self, command: str, seconds: float) -> None:
        self._limit_s = 3 * seconds * self._scale + _ANSWER_S
        self._generator.send(command)

    def finish(self) -> End:
        """End the service and return the check of its state."""
        if self._generator is not self._server:
            self._generator.close()
        return self._server.ask("quit", End, _ANSWER_S)


class Job(_Workload):
    """A best-effort job. Fields: ``pid``, ``ready``, ``command``."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, wait: bool = True) -> None:
        """Start ``command``; unless ``wait``, nothing but ``wait_ready`` may be called at first."""
        super().__init__()
        self.command = list(command)
        with ExitStack() as undo:
            undo.push(self._processes)
            self._process = self._start(command, environment)
            self.pid = self._process.pid
            if wait:
                self.wait_ready()
            undo.pop_all()

    def wait_ready(self) -> None:
        """Return when the job launches."""
        self.ready = self._process.expect(Ready, _START_S)

    def progress(self) -> Progress:
        """Return the kernels completed so far."""
        return self._process.ask("stat", Progress, _ANSWER_S)

    def pause(self) -> None:
        """Launch nothing more; returns when the queue is empty."""
        self._process.ask("pause", Paused, _ANSWER_S)

    def resume(self) -> None:
        """Launch again."""
        self._process.ask("resume", Resumed, _ANSWER_S)

    def finish(self) -> End:
        """End the job and return the check of its state."""
        return self._process.ask("quit", End, _ANSWER_S)


def cuda_service(environment: Mapping[str, str], *options: str) -> Service:
    """Start gpsched-lc."""
    return Service([program("gpsched-lc"), "--commands", *options], environment)


def cuda_job(environment: Mapping[str, str], *options: str) -> Job:
    """Start gpsched-be; it verifies its state at the end."""
    return Job([program("gpsched-be"), "--commands", "--verify", *options], environment)


def torch_service(environment: Mapping[str, str], *options: str, python: str = sys.executable) -> Service:
    """Start torch_lc.py with an interpreter that has PyTorch."""
    load = ["--http"] if "--http" in options else []
    return Service([python, str(HERE / "torch_lc.py"), *options], environment, generator=load)


def torch_job(environment: Mapping[str, str], *options: str, python: str = sys.executable) -> Job:
    """Start torch_be.py with an interpreter that has PyTorch; it verifies its results at the end."""
    return Job([python, str(HERE / "torch_be.py"), *options], environment)
