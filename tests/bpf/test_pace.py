"""What a busy service costs the readers of its events: how often they are told, and how often they are woken."""

import ctypes
import select
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gpsched.adaptive.probes.events import AtOnce, Call, CudaEvent, Event, ProcExit, Wake, WakeEvent, decode
from tests.bpf import fake_cuda
from tests.bpf.conftest import Recorder, Victim


pytestmark = [pytest.mark.root, pytest.mark.bpf]
PACE_S = 0.1
REPEAT_US, REPEAT_FAST_US = 250.0, 100.0
LAUNCHES = 20_000
SYMBOLS = ("cuLaunchKernel", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuStreamSynchronize")


def readable(descriptor: int, timeout_ms: int) -> bool:
    """As select, which knows only descriptors below 1024: without multi-links each place of a probe has some."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_ms))


class Service(Victim):
    """A latency-critical one, and both readers of its events."""

    def __init__(self, program: Path, library: Path) -> None:
        super().__init__(program)
        self.fast: list[Event] = []
        self.own = Recorder()
        assert self.do(f"load {library}") == 1
        self.own.probes.manage(self.pid, "lc")
        assert self.own.probes.wait_attached(30)
        self.own.probes._map("fast").open_ring_buffer(self._take)
        self.ask(fast=True)
        self.do("call cuGraphLaunch")  # from then on its wakes are sent

    def ask(self, *, fast: bool = False, at_once: AtOnce = "nothing", **options: int) -> None:
        self.own.probes.send_fast(self.pid, fast, at_once=at_once, **options)

    def calls(self, command: str) -> list[CudaEvent]:
        """What the daemon is told of it."""
        self.own.of(self.pid)
        self.own.events.clear()
        self.fast.clear()
        self.do(command)
        return [event for event in self.own.of(self.pid) if isinstance(event, CudaEvent)]

    def woken(self) -> bool:
        """Whether a reader that waits for ``fileno`` would have to read; it does."""
        due = readable(self.own.probes.fileno(), 0)
        if due:
            self.own.probes.consume()
        return due

    def close(self) -> None:
        super().close()
        self.own.probes.close()

    def _take(self, _context: object, data: int, size: int) -> int:
        self.fast.append(decode(ctypes.string_at(data, size)))
        return 0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_cuda.build(tmp_path_factory.mktemp("cuda"), SYMBOLS)


@pytest.fixture
def service(victim_program: Path, library: Path) -> Iterator[Service]:
    made = Service(victim_program, library)
    yield made
    made.close()


def gaps_us(events: list[CudaEvent]) -> list[float]:
    return [(after.time_ns - before.time_ns) / 1000 for before, after in pairwise(events)]


def test_launches_that_follow_each_other_are_told_now_and_then(service: Service) -> None:
    launches = service.calls(f"repeat {LAUNCHES} cuLaunchKernel")
    assert {(event.call, event.is_return) for event in launches} == {(Call.LAUNCH, False)}
    assert min(gaps_us(launches)) >= REPEAT_US
    assert 3 < len(launches) < LAUNCHES / 5
    assert service.own.probes.counters(service.pid)["launch"] == LAUNCHES


def test_the_actuator_is_told_more_often_and_of_the_returns(service: Service) -> None:
    service.calls(f"repeat {LAUNCHES} cuLaunchKernel")
    calls = [event for event in service.fast if isinstance(event, CudaEvent)]
    enters, returns = calls[0::2], calls[1::2]
    assert not any(event.is_return for event in enters)
    assert all(event.is_return for event in returns)
    assert min(gaps_us(enters)) >= REPEAT_FAST_US
    assert 3 < len(enters) < LAUNCHES / 3


@pytest.mark.parametrize(
    "command", ["alternate 50 cuLaunchKernel", "repeat 50 cuStreamSynchronize"], ids=["streams", "waits"]
)
def test_what_is_new_is_told_each_time(service: Service, command: str) -> None:
    enters = [event for event in service.calls(command) if not event.is_return]
    assert len(enters) == 50
    assert len([event for event in service.fast if isinstance(event, CudaEvent) and not event.is_return]) == 50


def test_a_wake_makes_the_next_launch_news(service: Service) -> None:
    """Reading the command is one, as long as those are few enough to be sent."""
    for _ in range(5):
        time.sleep(1.5 * PACE_S)
        first, *others = service.calls("repeat 3 cuGraphLaunch")
        wakes = [event.time_ns for event in service.own.events if isinstance(event, WakeEvent)]
        assert max(time_ns for time_ns in wakes if time_ns < first.time_ns)
        assert len(others) < 2 or min(gaps_us([first, *others])) >= REPEAT_US


def test_what_nobody_waits_for_has_no_return(service: Service) -> None:
    for command in ("call cuMemcpyHtoDAsync_v2", "call cuEventRecord"):
        assert [event.is_return for event in service.calls(command)] == [False], command
    assert not any(event.call is Call.EVENT_RECORD for event in service.fast if isinstance(event, CudaEvent))


def wakes_of(service: Service, command: str, times: int) -> tuple[int, float]:
    """How often the daemon was woken, and how long that took in s."""
    time.sleep(1.5 * PACE_S)
    service.do("call cuEventRecord")  # uses up the time that has passed without any
    service.woken()
    started, count = time.monotonic(), 0
    for _ in range(times):
        service.do(command)
        count += service.woken()
    return count, time.monotonic() - started


def test_events_that_can_wait_wake_the_daemon_at_a_pace(service: Service) -> None:
    count, seconds = wakes_of(service, "call cuStreamSynchronize", 100)
    assert count <= seconds / PACE_S + 1
    time.sleep(1.5 * PACE_S)
    service.do("call cuStreamSynchronize")
    assert service.woken(), "the first after a while"
    service.do("call cuStreamSynchronize")
    service.own.events.clear()
    service.own.probes.consume()
    assert any(isinstance(event, WakeEvent) for event in service.own.events), "they are there to be read at any time"


@pytest.mark.parametrize(
    ("at_once", "command", "each"),
    [
        ("bursts", "call cuStreamSynchronize", True),
        ("bursts", "alternate 2 cuLaunchKernel", True),
        ("bursts", "call cuMemcpyHtoDAsync_v2", False),
        ("all", "call cuMemcpyHtoDAsync_v2", True),
    ],
)
def test_what_the_daemon_has_to_act_by_wakes_it_at_once(
    service: Service, at_once: AtOnce, command: str, each: bool
) -> None:
    service.ask(at_once=at_once)
    count, seconds = wakes_of(service, command, 20)
    assert count == 20 if each else count <= seconds / PACE_S + 1


def test_the_life_of_processes_is_told_at_once(service: Service, victims: Callable[..., Victim]) -> None:
    """Also behind events that wait."""
    wakes_of(service, "call cuEventRecord", 1)
    job = victims()
    service.own.probes.manage(job.pid, "be")
    service.do("call cuEventRecord")
    job.end()
    assert readable(service.own.probes.fileno(), 5000)


def told(service: Service) -> tuple[list[type], list[type]]:
    """What kinds of events the daemon and the actuator get of a launch, a wait, and the commands that are read."""
    service.calls("call cuEventRecord")
    service.own.events.clear()
    service.fast.clear()
    for command in ("call cuGraphLaunch", "call cuStreamSynchronize"):
        service.do(command)
    own = service.own.of(service.pid, CudaEvent, WakeEvent)
    return [type(event) for event in own], [type(event) for event in service.fast]


def test_of_who_rests_only_the_actuator_is_told(service: Service) -> None:
    service.ask(fast=True, at_once="never")
    own, fast = told(service)
    assert own == []
    assert fast.count(CudaEvent) == 4
    assert WakeEvent in fast
    assert service.own.probes.counters(service.pid)["stream_sync"] == 1
    service.ask(fast=True)
    own, _ = told(service)
    assert own.count(CudaEvent) == 3
    assert WakeEvent in own
    assert service.own.probes.lost() == service.own.probes.lost_fast() == 0


def test_the_life_of_who_rests_is_told(service: Service) -> None:
    service.ask(fast=True, at_once="never")
    service.own.events.clear()
    service.end()
    service.own.wait(lambda: any(isinstance(event, ProcExit) for event in service.own.events))


def test_what_an_agent_does_is_told_to_nobody(service: Service) -> None:
    service.ask(fast=True, agent=service.pid)
    before = service.own.probes.counters(service.pid)
    assert told(service) == ([], [])
    assert service.own.probes.counters(service.pid) == before
    service.own.probes.manage(service.pid, "lc")  # and the kernel still knows
    assert told(service) == ([], [])


def test_threads_that_are_no_agent_s_are_told(service: Service) -> None:
    service.ask(fast=True, agent=service.pid + 1)
    own, fast = told(service)
    assert own.count(CudaEvent) == 3
    assert fast.count(CudaEvent) == 4


@pytest.mark.parametrize(("wakes", "some"), [(1 << Wake.PIPE, True), (1 << Wake.EPOLL, False), (0, False)])
def test_the_actuator_gets_the_wakes_that_trigger(service: Service, wakes: int, some: bool) -> None:
    service.ask(fast=True, wakes=wakes)
    own, fast = told(service)
    assert WakeEvent in own
    assert (WakeEvent in fast) == some
    assert fast.count(CudaEvent) == 4
