"""The node: events and calls in, controls out. The driver is a stand-in that records; processes are real."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive import node as node_module
from gpsched.adaptive.actuator.actuator import Actuator
from gpsched.adaptive.actuator.errors import ActuatorMissingError
from gpsched.adaptive.config import Config, Rule
from gpsched.adaptive.driver.errors import ControlError, HandleGoneError
from gpsched.adaptive.driver.types import ChannelGroup
from gpsched.adaptive.errors import (
    GpschedError,
    NoGpuError,
    NotLatencyCriticalError,
    NotManagedError,
    ProcessGoneError,
    UsageError,
)
from gpsched.adaptive.knobs import Proposal, TuneParams
from gpsched.adaptive.node import Node
from gpsched.adaptive.probes.events import Call, CudaEvent, ProcExec, ProcExit, ProcFork, RmAlloc, RmControl, RmFree
from gpsched.adaptive.undo import UndoLog
from gpsched.adaptive.workloads import procinfo


SET_TIMESLICE = 0xA06C0103
GROUP = 0x5C000010


class Gpu:
    """Timeslices by (pid, client, handle), as the driver keeps them."""

    def __init__(self) -> None:
        self.slices: dict[tuple[int, int, int], int] = {}
        self.failure: type[GpschedError] | None = None

    def control(self, pid: int) -> "Control":
        return Control(self, pid)


class Control:
    def __init__(self, gpu: Gpu, pid: int) -> None:
        self.gpu, self.pid = gpu, pid

    def get_timeslice(self, group: ChannelGroup) -> int:
        return self.gpu.slices.get((self.pid, *group.key), 2048)

    def set_timeslice(self, group: ChannelGroup, us: int) -> None:
        if self.gpu.failure is not None:
            raise self.gpu.failure("SET_TIMESLICE", self.pid, group.client, group.handle, 0x56)
        self.gpu.slices[self.pid, *group.key] = us

    def gpu_id(self, group: ChannelGroup) -> int:
        return group.client >> 16 & 0xF  # tests name the GPU in the client


class Probes:
    def __init__(self) -> None:
        self.classes: dict[int, str] = {}
        self.forgotten: set[int] = set()
        self.at_once: dict[int, str] = {}

    def manage(self, pid: int, class_: str) -> None:
        self.classes[pid] = class_

    def forget(self, pid: int) -> None:
        self.classes.pop(pid, None)
        self.forgotten.add(pid)

    def counters(self, pid: int) -> dict[str, int]:
        return {"launch": pid}

    def send_fast(self, pid: int, enabled: bool, *, at_once: str, agent: int, wakes: int) -> None:
        assert not enabled, "nobody reads it without an actuator"
        self.at_once[pid] = at_once

    def lost(self) -> int:
        return self.lost_events

    fast_ring = -1
    lost_events = 0


def no_actuator(_files: object, _ring: int) -> Actuator:
    raise ActuatorMissingError(Path("none"))


class Machine:
    """A node with its stand-ins, and real processes for it to manage."""

    def __init__(self, directory: Path, config: Config | None = None) -> None:
        self.gpu, self.probes, self.directory = Gpu(), Probes(), directory
        self.undo = UndoLog(directory)
        self.node = Node(config or Config(), self.probes, self.undo, no_actuator)
        self.node.keeper.control = self.gpu.control  # type: ignore[method-assign,assignment]
        self.children: list[subprocess.Popen[bytes]] = []

    def process(self) -> int:
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        self.children.append(child)
        return child.pid

    def kill(self, pid: int) -> None:
        child = next(child for child in self.children if child.pid == pid)
        child.kill()
        child.wait()
        child.stdin.close()  # type: ignore[union-attr]

    def start(self, class_: str, gpu: int = 0) -> int:
        pid = self.process()
        self.node.attach(pid, class_, None, None, starting=True)
        self.context(pid, gpu)
        return pid

    def rm(self, kind: type, pid: int, parent: int, handle: int, code: int, value: int = 0, gpu: int = 0) -> None:
        client = 0xC1D00000 | gpu << 16
        self.node.handle(kind(0, pid, pid, client, parent, handle, code, value, 5, 0))

    def context(self, pid: int, gpu: int = 0) -> None:
        client = 0xC1D00000 | gpu << 16
        self.rm(RmAlloc, pid, client, client, 0x41, gpu=gpu)
        self.rm(RmAlloc, pid, client, 0x5C000001, 0x80, gpu=gpu)
        self.rm(RmAlloc, pid, 0x5C000001, 0x5C000002, 0x2080, gpu=gpu)
        self.rm(RmAlloc, pid, 0x5C000001, GROUP, 0xA06C, gpu=gpu)
        self.rm(RmAlloc, pid, GROUP, 0x5C000011, 0xC86F, gpu=gpu)
        self.rm(RmAlloc, pid, 0x5C000011, 0x5C000012, 0xCBC0, gpu=gpu)
        self.rm(RmControl, pid, 0, GROUP, SET_TIMESLICE, 2048, gpu=gpu)

    def slice(self, pid: int, gpu: int = 0) -> int:
        return self.gpu.slices.get((pid, 0xC1D00000 | gpu << 16, GROUP), 2048)

    def close(self) -> None:
        for child in self.children:
            if child.poll() is None:
                self.kill(child.pid)
        self.undo.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def test_slices_follow_who_is_there(machine: Machine) -> None:
    lc = machine.start("lc")
    assert machine.slice(lc) == 2048  # nothing to gain alone
    be = machine.start("be")
    assert (machine.slice(lc), machine.slice(be)) == (1_000_000, 1)
    second = machine.start("be")
    assert (machine.slice(be), machine.slice(second)) == (2048, 2048)  # two would starve each other at 1 µs
    machine.kill(second)
    machine.node.handle(ProcExit(0, second, second, 0))
    assert machine.slice(be) == 1
    machine.kill(lc)
    machine.node.handle(ProcExit(0, lc, lc, 0))
    assert machine.slice(be) == 2048
    assert machine.undo.pending() == []


def test_gpus_are_apart_and_a_process_on_two_is_handled_on_both(machine: Machine) -> None:
    lc = machine.start("lc", gpu=0)
    be = machine.start("be", gpu=1)
    assert (machine.slice(lc), machine.slice(be, 1)) == (2048, 2048)
    machine.context(lc, gpu=1)
    assert (machine.slice(lc, 0), machine.slice(lc, 1), machine.slice(be, 1)) == (2048, 1_000_000, 1)


def test_what_cuda_sets_after_creating_a_group_is_overridden_again(machine: Machine) -> None:
    machine.start("lc")
    be = machine.start("be")
    machine.gpu.slices[be, 0xC1D00000, GROUP] = 2048
    machine.rm(RmControl, be, 0, GROUP, SET_TIMESLICE, 2048)
    assert machine.slice(be) == 1


def test_a_slice_the_program_chose_later_is_what_it_gets_back(machine: Machine) -> None:
    lc = machine.start("lc")
    be = machine.start("be")
    machine.rm(RmControl, be, 0, GROUP, SET_TIMESLICE, 500)
    assert machine.slice(be) == 1
    machine.node.detach(lc)
    assert machine.slice(be) == 500


def test_restore_puts_everything_back(machine: Machine) -> None:
    lc, be = machine.start("lc"), machine.start("be")
    assert len(machine.undo.pending()) == 2
    assert machine.node.restore_all() == 2
    assert (machine.slice(lc), machine.slice(be)) == (2048, 2048)
    assert machine.undo.pending() == []
    assert machine.probes.forgotten == {lc, be}
    assert len(machine.node.registry) == 0


def test_what_cannot_be_restored_stays_on_disk(machine: Machine) -> None:
    machine.start("lc")
    machine.start("be")
    machine.gpu.failure = ControlError
    assert machine.node.restore_all() == 0
    assert len(machine.undo.pending()) == 2


def test_a_dead_handle_is_no_failure_of_the_daemon(machine: Machine) -> None:
    machine.start("lc")
    machine.gpu.failure = HandleGoneError
    machine.start("be")
    assert machine.node.keeper.failures == 0


def test_a_refused_control_is_counted_and_shown(machine: Machine) -> None:
    machine.start("lc")
    machine.gpu.failure = ControlError
    be = machine.start("be")
    view = next(view for view in machine.node.views() if view.pid == be)
    assert machine.node.keeper.failures > 0
    assert view.level == "observe"
    assert "SET_TIMESLICE" in view.reason


def test_a_freed_group_leaves_nothing_to_restore(machine: Machine) -> None:
    machine.start("lc")
    be = machine.start("be")
    machine.rm(RmFree, be, 0xC1D00000, GROUP, 0)
    assert {setting.pid for setting in machine.undo.pending()} != {be}
    machine.context(be)  # the same handles again: a new group with its own default
    assert machine.slice(be) == 1


def test_children_inherit_and_exec_starts_anew(machine: Machine) -> None:
    machine.start("lc")
    be = machine.start("be")
    child = machine.process()
    machine.node.handle(ProcFork(0, child, child, be, "child"))
    process = machine.node.registry.get(child)
    assert process is not None
    assert (process.class_, process.source) == ("be", f"child of {be}")
    machine.node.handle(ProcExec(0, be, be, "other"))
    again = machine.node.registry.get(be)
    assert again is not None
    assert again.groups == {}
    assert {setting.pid for setting in machine.undo.pending()}.isdisjoint({be})


def test_rules_classify_who_opens_the_driver(tmp_path: Path) -> None:
    rule = Rule(name="py", class_="be", exe="*python*", tenant="batch")
    machine = Machine(tmp_path, Config(rule=[rule]))
    try:
        pid = machine.process()
        machine.context(pid)
        process = machine.node.registry.get(pid)
        assert process is not None
        assert (process.class_, process.source, process.tenant) == ("be", "rule py", "batch")
        assert len(process.groups) == 1
    finally:
        machine.close()


def test_what_no_rule_names_is_never_touched(machine: Machine) -> None:
    machine.start("lc")
    pid = machine.process()
    machine.context(pid)
    assert machine.node.registry.get(pid) is None
    assert pid in machine.probes.forgotten
    assert machine.slice(pid) == 2048


def test_an_end_whose_event_was_lost_is_noticed(machine: Machine) -> None:
    machine.start("lc")
    be = machine.start("be")
    machine.kill(be)
    machine.node.tick()
    assert machine.node.registry.get(be) is None
    assert {setting.pid for setting in machine.undo.pending()}.isdisjoint({be})


def test_lost_events_reach_the_learner(machine: Machine) -> None:
    lc = machine.start("lc")
    machine.node.handle(CudaEvent(1, lc, lc, Call.LAUNCH, False, True, 0, 0, 0))
    machine.probes.lost_events = 5
    machine.node.tick()
    machine.node.tick()
    assert machine.node.hints(lc).lost_events == 5


def test_only_latency_critical_processes_have_hints(machine: Machine) -> None:
    be = machine.start("be")
    with pytest.raises(NotLatencyCriticalError, match="best-effort"):
        machine.node.hints(be)
    with pytest.raises(NotManagedError):
        machine.node.hints(1)


@pytest.mark.parametrize("changes", [False, True])
def test_bursts_under_other_slices_tell_of_a_level_no_more(machine: Machine, changes: bool) -> None:
    """The tuner's slices made bursts longer; the level was blamed, left, and its settings tried at another one."""
    service = machine.start("lc")
    machine.start("be")
    levels, process = machine.node.steering._levels, machine.node.registry.get(service)
    assert process is not None
    for _ in range(20):
        levels.ended(process, 100.0)
    if changes:
        proposal = Proposal(gpu=0, values={"timeslice.be_us": 2_500})
        machine.node.settings.tune(TuneParams(pid=os.getpid(), lease_s=60.0, proposals=[proposal]))
    machine.node.apply()
    process.mechanism = "hold"
    assert any(levels.ended(process, 200.0) for _ in range(32)) is not changes


def test_a_reused_pid_is_another_process(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    be = machine.start("be")
    real = procinfo.read
    later = lambda pid: procinfo.msgspec.structs.replace(real(pid), start_ticks=1)  # noqa: E731
    monkeypatch.setattr(node_module.procinfo, "read", later)
    machine.node.attach(be, "lc", None, None, starting=True)
    process = machine.node.registry.get(be)
    assert process is not None
    assert process.groups == {}


@pytest.mark.parametrize("class_", ["LC", "", "unmanaged", "best-effort"])
def test_attach_refuses_unknown_classes(machine: Machine, class_: str) -> None:
    with pytest.raises(UsageError, match="lc, be"):
        machine.node.attach(machine.process(), class_, None, None, starting=True)


def test_attach_refuses_what_it_cannot_manage(machine: Machine) -> None:
    with pytest.raises(NoGpuError):
        machine.node.attach(machine.process(), "be", None, None, starting=False)
    with pytest.raises(UsageError, match="--slo"):
        machine.node.attach(machine.process(), "be", 5000.0, None, starting=True)
    gone = machine.process()
    machine.kill(gone)
    with pytest.raises(ProcessGoneError):
        machine.node.attach(gone, "be", None, None, starting=True)
    with pytest.raises(NotManagedError):
        machine.node.detach(gone)
    assert machine.probes.classes == {}
