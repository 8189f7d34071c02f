"""Level ``freeze`` in the node: real processes are stopped, and every end lets them run."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpsched.adaptive.actuator.plans import PlanSet
from gpsched.adaptive.config import Config, Reservations
from gpsched.adaptive.driver.errors import ControlError
from gpsched.adaptive.freezer import Freezer
from gpsched.adaptive.node import Node
from gpsched.adaptive.probes.events import Call, CudaEvent, ProcExit
from gpsched.adaptive.workloads import procinfo
from tests.unit.node.test_node import Machine


class Frozen(Machine):
    """A node whose driver refuses everything, with the real freezer."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.freezer = Freezer(self.undo)
        self.restart_node(None)

    def restart_node(self, actuator: Callable[..., object] | None) -> None:
        start = actuator or self.node.steering.execution.start
        self.node = Node(Config(), self.probes, self.undo, start, freezer=self.freezer)  # type: ignore[arg-type]
        self.node.keeper.control = self.gpu.control  # type: ignore[method-assign,assignment]

    def victim(self) -> tuple[int, int]:
        """A latency-critical process, and a best-effort one that is out of control and has earned its budget."""
        lc = self.start("lc")
        self.gpu.failure = ControlError
        be = self.start("be")
        self.node.apply()
        time.sleep(0.01)
        return lc, be

    def call(self, pid: int, call: Call, *, is_return: bool = False) -> None:
        self.node.handle(CudaEvent(time.monotonic_ns(), pid, pid, call, is_return, False, 0, 0, 0))

    def burst(self, pid: int, *, end: bool) -> None:
        if not end:
            self.call(pid, Call.LAUNCH)
            return
        self.call(pid, Call.CTX_SYNC)
        self.call(pid, Call.CTX_SYNC, is_return=True)
        time.sleep(0.05)
        self.node.steering.tick()

    def close(self) -> None:
        self.freezer.close()
        super().close()


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Frozen]:
    machine = Frozen(tmp_path)
    yield machine
    machine.close()


def stopped(pid: int) -> bool:
    """SIGSTOP takes effect when a thread next returns to user space."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt":
            return True
        time.sleep(0.005)
    return False


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "Tt"


def test_a_burst_stops_who_is_out_of_control(frozen: Frozen) -> None:
    lc, be = frozen.victim()
    view = next(view for view in frozen.node.views() if view.pid == be)
    assert view.level == "freeze"
    assert "SET_TIMESLICE" in view.reason
    assert f"stopped during bursts of {lc}" in view.reason
    assert runs(be)  # nobody is busy
    frozen.burst(lc, end=False)
    assert stopped(be)
    frozen.burst(lc, end=True)
    assert runs(be)
    assert frozen.undo.frozen() == []


@pytest.mark.parametrize("end", ["lc exits", "be exits", "detach lc", "detach be", "restore", "reload", "lc again"])
def test_every_end_lets_it_run(frozen: Frozen, end: str) -> None:
    lc, be = frozen.victim()
    frozen.burst(lc, end=False)
    assert be in frozen.freezer.frozen()
    match end:
        case "lc exits":
            frozen.kill(lc)
            frozen.node.handle(ProcExit(0, lc, lc, 0))
        case "be exits":
            frozen.kill(be)
            frozen.node.handle(ProcExit(0, be, be, 0))
        case "detach lc":
            frozen.node.detach(lc)
        case "detach be":
            frozen.node.detach(be)
        case "restore":
            frozen.node.restore_all()
        case "reload":
            frozen.node.reconfigure(Config())
        case _:
            frozen.node.attach(be, "lc", None, None, starting=True)
    assert frozen.freezer.frozen() == frozenset()
    assert frozen.undo.frozen() == []
    if end != "be exits":
        assert runs(be)


def test_without_a_gpu_nobody_is_stopped(frozen: Frozen) -> None:
    lc = frozen.start("lc")
    plain = frozen.process()
    frozen.node.attach(plain, "be", None, None, starting=True)
    time.sleep(0.01)
    frozen.burst(lc, end=False)
    assert frozen.freezer.frozen() == frozenset()
    frozen.probes.counters = lambda _pid: {"launch": 0}  # type: ignore[method-assign]
    frozen.node.apply()
    assert frozen.freezer.frozen() == frozenset()


def test_who_launches_without_a_known_group_is_stopped(frozen: Frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    lc = frozen.start("lc")
    unknown = frozen.process()
    monkeypatch.setattr(procinfo, "has_driver_open", lambda pid: pid == unknown)
    frozen.node.attach(unknown, "be", None, None, starting=True)
    time.sleep(0.01)
    frozen.burst(lc, end=False)
    assert stopped(unknown)
    view = next(view for view in frozen.node.views() if view.pid == unknown)
    assert (view.level, view.reason.split(";")[0]) == (
        "freeze",
        "launches GPU work, but no channel group of it is known",
    )


def test_what_its_user_had_stopped_stays_so(frozen: Frozen) -> None:
    lc, be = frozen.victim()
    os.kill(be, signal.SIGSTOP)
    assert stopped(be)
    frozen.burst(lc, end=False)
    frozen.burst(lc, end=True)
    assert not runs(be)
    os.kill(be, signal.SIGCONT)


def test_the_events_of_a_hindered_process_wake_the_daemon(frozen: Frozen) -> None:
    sent: dict[int, str] = {}
    published: list[PlanSet] = []
    frozen.probes.send_fast = lambda pid, _on, *, at_once, agent, wakes: sent.__setitem__(pid, at_once)  # type: ignore[method-assign]
    reader, writer = os.pipe()
    actuator = SimpleNamespace(pid=1, fileno=lambda: reader, records=list, stop=lambda: None, publish=published.append)
    frozen.restart_node(lambda _files, _ring: actuator)
    lc, be = frozen.start("lc"), frozen.start("be")
    frozen.call(lc, Call.LAUNCH)  # it has a learner now
    critical = frozen.node.registry.get(lc)
    assert critical
    critical.mechanism = "reserve"
    frozen.node.steering.publish()
    assert published[-1].plans
    assert sent[lc] == "nothing"
    best_effort = frozen.node.registry.get(be)
    assert best_effort
    best_effort.out_of_control = True
    frozen.node.steering.freezing.follow(list(frozen.node.registry))
    frozen.node.steering.publish()
    assert sent[lc] == "all"
    assert 1 in frozen.freezer.never
    os.close(reader)
    os.close(writer)


def test_the_level_of_the_configuration_stops_everybody_and_asks_nothing_of_the_driver(frozen: Frozen) -> None:
    lc, be = frozen.start("lc"), frozen.start("be")
    frozen.node.apply()
    assert frozen.slice(lc) == 1_000_000
    frozen.node.reconfigure(Config(reservations=Reservations(level="freeze")))
    frozen.node.apply()
    assert (frozen.slice(lc), frozen.slice(be)) == (2048, 2048)
    levels = {view.pid: view.level for view in frozen.node.views()}
    assert levels[be] == "freeze"
    time.sleep(0.01)
    frozen.burst(lc, end=False)
    assert stopped(be)
    frozen.burst(lc, end=True)
    assert runs(be)
    frozen.node.reconfigure(Config())
    frozen.node.apply()
    assert frozen.slice(be) == 1
