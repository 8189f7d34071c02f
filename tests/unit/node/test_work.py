"""How much the daemon does for one event of a busy service, from the ring buffer's record to what was learned of it."""

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from gpsched.adaptive.probes.events import CUDA, HEAD, WAKE, Call, Flag, Kind, Wake
from gpsched.adaptive.probes.probes import Probes
from tests.unit.node.test_node import Machine


RATE = 100.0  # requests a second
EARLY, LATE = 150, 400  # requests that are looked at, and those before them


class Service:
    """What the kernel tells of a service that answers requests over a socket, each with some kernels in one burst."""

    def __init__(self, pid: int, repeated: int) -> None:
        """``repeated``: launches of a burst that are told beside the first."""
        self._pid, self._repeated = pid, repeated
        self._now_us, self._random = 1e9, random.Random(1)

    def request(self) -> Iterator[bytes]:
        self._now_us += self._random.expovariate(RATE / 1e6)
        yield self._wake(Wake.EPOLL, 5, 0)
        yield self._wake(Wake.SOCKET_READ, 7, 1000, after_us=10.0)
        yield self._call(Call.COPY_H2D, after_us=self._random.uniform(400.0, 450.0))
        for _ in range(1 + self._repeated):
            yield self._call(Call.LAUNCH, after_us=260.0)
        yield self._call(Call.COPY_D2H, after_us=20.0)
        yield self._call(Call.STREAM_SYNC, flags=0, after_us=5.0)
        yield self._call(Call.STREAM_SYNC, flags=0, kind=Kind.CUDA_RETURN, after_us=900.0)

    def _wake(self, wake: Wake, descriptor: int, size: int, after_us: float = 0.0) -> bytes:
        return self._head(Kind.WAKE, wake, 0, after_us) + WAKE.pack(descriptor, size)

    def _call(self, call: Call, flags: int = Flag.ASYNC, kind: Kind = Kind.CUDA_ENTER, after_us: float = 0.0) -> bytes:
        return self._head(kind, call, flags, after_us) + CUDA.pack(0x7F00, 0)

    def _head(self, kind: Kind, call: int, flags: int, after_us: float) -> bytes:
        self._now_us += after_us
        return HEAD.pack(round(self._now_us * 1000), self._pid, self._pid, kind, call, 0, flags, 0)


def calls_in(work: Callable[[], None]) -> int:
    """How many Python functions are called."""
    count = 0

    def note(_frame: FrameType, what: str, _argument: object) -> None:
        nonlocal count
        count += what == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    for child in list(made.children):
        made.kill(child.pid)
    made.undo.close()


@pytest.mark.parametrize(("repeated", "most"), [(0, 50), (20, 34)], ids=["one graph", "kernel by kernel"])
def test_an_event_costs_few_calls(machine: Machine, repeated: int, most: int) -> None:
    """Those of a burst and the choices that follow from it are shared by its events."""
    service = Service(machine.start("lc"), repeated)
    probes = Probes()
    probes._handler = machine.node.handle

    def serve(requests: int) -> int:
        records = [record for _ in range(requests) for record in service.request()]
        return calls_in(lambda: [probes._handle(record) for record in records] and None) // len(records)

    assert serve(EARLY) <= 1.5 * most, "while it learns"
    serve(LATE)
    assert serve(EARLY) <= most
    learner = machine.node.steering.learners.known(service._pid)
    assert learner is not None
    assert learner.report().outcome.bursts == 2 * EARLY + LATE
