"""The node with the driver module: what goes through it, what does not, and what happens when it comes or goes."""

import errno
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kernel_side import OWN, Driver

from gpsched.adaptive.actuator.errors import ActuatorMissingError
from gpsched.adaptive.config import Config
from gpsched.adaptive.driver.module_abi import Feature
from gpsched.adaptive.driver.module_level import ModuleLevel, describe
from gpsched.adaptive.driver.types import Channel, ChannelGroup
from gpsched.adaptive.model import ProcessView
from gpsched.adaptive.node import Node
from gpsched.adaptive.probes.events import ProcExit, RmAlloc, RmControl
from gpsched.adaptive.slices import SliceKeeper
from gpsched.adaptive.undo import UndoLog
from gpsched.adaptive.verify import verify
from gpsched.adaptive.workloads.procinfo import ProcessInfo
from gpsched.adaptive.workloads.registry import Group, Process


CLIENT, GROUP = 0xC1D00000, 0x5C000010
SET_TIMESLICE = 0xA06C0103


class Probes:
    fast_ring = -1

    def manage(self, pid: int, class_: str) -> None: ...
    def forget(self, pid: int) -> None: ...
    def send_fast(self, pid: int, enabled: bool, *, at_once: str, agent: int, wakes: int) -> None: ...
    def lost(self) -> int:
        return 0

    def counters(self, pid: int) -> dict[str, int]:
        return {}


def no_actuator(_files: object, _ring: int) -> None:
    raise ActuatorMissingError(Path("none"))


class Machine:
    """A node, a driver with the module in it, and programs."""

    def __init__(self, directory: Path, driver: Driver) -> None:
        self.driver, self.undo = driver, UndoLog(directory)
        self.module = ModuleLevel(driver.open, lambda: driver.now)
        self.node = Node(Config(), Probes(), self.undo, no_actuator, module=self.module)  # type: ignore[arg-type]
        self.node.keeper.control = driver.stock  # type: ignore[method-assign,assignment]
        self.programs: list[subprocess.Popen[bytes]] = []

    def start(self, class_: str) -> int:
        program = subprocess.Popen(["sleep", "600"])
        self.programs.append(program)
        self.node.attach(program.pid, class_, None, None, starting=True)
        group = ChannelGroup(CLIENT, GROUP, "compute", (Channel(CLIENT, 0x5C000011),), 0x5C000002, 0x100)
        self.driver.program(program.pid, group)
        tree = ((CLIENT, CLIENT, 0x41), (CLIENT, 0x5C000001, 0x80), (0x5C000001, 0x5C000002, 0x2080),
                (0x5C000001, GROUP, 0xA06C), (GROUP, 0x5C000011, 0xC86F), (0x5C000011, 0x5C000012, 0xCBC0))  # fmt: skip
        for parent, handle, code in tree:
            self.node.handle(RmAlloc(0, program.pid, program.pid, CLIENT, parent, handle, code, 0, 5, 0))
        return program.pid

    def owner_sets(self, pid: int, us: int) -> None:
        self.driver.owner_sets((pid, CLIENT, GROUP), us)
        self.node.handle(RmControl(0, pid, pid, CLIENT, 0, GROUP, SET_TIMESLICE, us, 5, 0))

    def pass_time(self, seconds: float) -> None:
        self.driver.now += seconds
        self.node.tick()

    def slice(self, pid: int) -> int:
        return self.driver.slices[pid, CLIENT, GROUP]

    def held(self, pid: int) -> bool:
        return (pid, CLIENT, GROUP) in self.driver.holds

    def view(self, pid: int) -> ProcessView:
        return next(view for view in self.node.views() if view.pid == pid)

    def close(self) -> None:
        for program in self.programs:
            program.kill()
            program.wait()
        self.undo.close()


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def machine(tmp_path: Path, driver: Driver) -> Iterator[Machine]:
    machine = Machine(tmp_path, driver)
    yield machine
    machine.close()


def test_slices_go_through_the_module_and_the_level_says_so(machine: Machine) -> None:
    lc, be = machine.start("lc"), machine.start("be")
    assert (machine.slice(lc), machine.slice(be)) == (1_000_000, 1)
    assert machine.held(lc)
    assert machine.held(be)
    assert machine.driver.stock_calls == []
    for pid in (lc, be):
        assert machine.view(pid).level == "module"
        assert "by the driver module" in machine.view(pid).reason
    assert machine.view(be).gpus == machine.view(lc).gpus
    assert {setting.original_us for setting in machine.undo.pending()} == {OWN}, (
        "the originals are on disk all the same"
    )
    assert {(check.live_us, check.problem) for check in verify(machine.node.registry, machine.node.keeper)} == {
        (1_000_000, None),
        (1, None),
    }


def test_lease_is_renewed_on_the_tick(machine: Machine) -> None:
    machine.start("lc")
    be = machine.start("be")
    for _ in range(100):
        machine.pass_time(0.5)
        machine.driver.expire()
    assert machine.slice(be) == 1
    assert len(machine.driver.links) == 1


def test_daemon_that_is_killed_leaves_nothing(machine: Machine) -> None:
    lc, be = machine.start("lc"), machine.start("be")
    machine.driver.links[0].close()  # what the kernel does with the sockets of a dead process
    assert (machine.slice(lc), machine.slice(be)) == (OWN, OWN)


def test_restore_gives_the_programs_own_slice_back(machine: Machine) -> None:
    lc, be = machine.start("lc"), machine.start("be")
    machine.owner_sets(be, 500)
    assert machine.slice(be) == 1
    machine.node.detach(lc)
    assert machine.slice(be) == 500
    assert machine.node.restore_all() == 0
    assert machine.driver.holds == {}
    assert machine.undo.pending() == []


def test_module_that_goes_in_the_middle(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    lc, be = machine.start("lc"), machine.start("be")
    machine.driver.unload()
    assert machine.slice(be) == OWN
    with caplog.at_level(logging.WARNING):
        machine.pass_time(0.5)
    machine.pass_time(0.5)
    assert (machine.slice(lc), machine.slice(be)) == (1_000_000, 1)
    assert not machine.held(be)
    assert (machine.view(be).level, machine.view(lc).level) == ("timeslice", "timeslice")
    assert caplog.text.count("the driver module is lost") == 1
    machine.node.restore_all()
    assert (machine.slice(lc), machine.slice(be)) == (OWN, OWN)
    assert machine.undo.pending() == []


def test_module_that_goes_between_two_ticks_is_noticed_by_the_next_control(machine: Machine) -> None:
    lc = machine.start("lc")
    machine.driver.unload()
    be = machine.start("be")
    machine.pass_time(0.5)
    assert (machine.slice(lc), machine.slice(be)) == (1_000_000, 1)
    assert not machine.module.present


def test_module_that_comes_later_gets_the_new_processes(machine: Machine) -> None:
    machine.driver.unload()
    machine.pass_time(0.5)
    lc, be = machine.start("lc"), machine.start("be")
    machine.driver.loaded = True
    machine.pass_time(60)
    assert not machine.held(be), "a slice that the stock control has set stays with it"
    assert machine.view(be).level == "timeslice"
    machine.node.detach(lc)
    assert machine.slice(be) == OWN
    late = machine.start("lc")
    assert (machine.slice(late), machine.slice(be)) == (1_000_000, 1)
    assert machine.held(late)
    assert machine.held(be), "given back in between, so the module may have it"
    machine.node.restore_all()
    assert (machine.slice(late), machine.slice(be)) == (OWN, OWN)


def test_lease_that_ran_out_is_taken_anew(machine: Machine) -> None:
    """The machine slept, or the daemon was stopped for long: the kernel has undone everything."""
    lc, be = machine.start("lc"), machine.start("be")
    machine.driver.now += 60
    machine.driver.expire()
    assert machine.slice(be) == OWN
    machine.pass_time(0)
    machine.pass_time(0.5)
    assert (machine.slice(lc), machine.slice(be)) == (1_000_000, 1)
    assert machine.held(be)
    assert machine.view(be).level == "module"
    assert [link.closed for link in machine.driver.links] == [True, False]


def test_lease_that_ran_out_while_the_module_went_too(machine: Machine) -> None:
    machine.start("lc")
    be = machine.start("be")
    machine.driver.unload()
    machine.pass_time(60)
    machine.pass_time(0.5)
    assert machine.slice(be) == 1
    assert machine.view(be).level == "timeslice"


@pytest.mark.parametrize("older", [True, False])
def test_no_module_or_an_older_one_is_no_fault(tmp_path: Path, driver: Driver, older: bool) -> None:
    driver.version, driver.loaded = 0 if older else 1, older
    machine = Machine(tmp_path, driver)
    try:
        lc, be = machine.start("lc"), machine.start("be")
        machine.pass_time(30)
        assert (machine.slice(lc), machine.slice(be)) == (1_000_000, 1)
        assert machine.view(be).level == "timeslice"
        assert "module" not in machine.view(be).reason
        assert machine.node.keeper.failures == 0
        assert ("speaks version 0" if older else "no driver module with gpsched in it") in machine.module.reason
    finally:
        machine.close()


def test_what_the_companion_missed_is_left_to_the_stock_control(machine: Machine) -> None:
    lc = machine.start("lc")
    old = machine.start("be")
    machine.node.detach(old)
    machine.driver.missed.add(old)
    machine.node.attach(old, "be", None, None, starting=True)
    group = ChannelGroup(CLIENT, GROUP, "compute", (Channel(CLIENT, 0x5C000011),), 0x5C000002, 0x100)
    process = machine.node.registry.get(old)
    assert process is not None
    machine.node.registry.set_groups(old, [group])
    machine.node.apply()
    assert (machine.slice(lc), machine.slice(old)) == (1_000_000, 1)
    assert machine.held(lc)
    assert not machine.held(old)
    assert (machine.view(lc).level, machine.view(old).level) == ("module", "timeslice")


def test_busy_module_is_not_lost(machine: Machine) -> None:
    machine.start("lc")
    be = machine.start("be")
    machine.driver.refusal = errno.EBUSY
    machine.pass_time(0.5)
    assert machine.module.present
    machine.driver.refusal = 0
    machine.pass_time(0.5)
    assert machine.held(be)


@pytest.mark.parametrize("request_", ["list", "control"])
def test_what_the_module_refuses_is_left_to_the_stock_control(machine: Machine, request_: str) -> None:
    machine.start("lc")
    machine.driver.refusal, machine.driver.refused = errno.ENOSPC, request_
    be = machine.start("be")
    machine.pass_time(0.5)
    assert machine.slice(be) == 1
    assert not machine.held(be)
    assert machine.view(be).level == "timeslice"
    assert machine.module.present
    machine.driver.refusal = 0
    machine.node.restore_all()
    assert machine.slice(be) == OWN


def test_right_that_was_lost_ends_the_use_of_the_module(machine: Machine) -> None:
    machine.start("lc")
    be = machine.start("be")
    machine.driver.refusal = errno.EPERM
    machine.pass_time(0.5)
    machine.pass_time(0.5)
    assert not machine.module.present
    assert "CAP_SYS_ADMIN" in machine.module.reason
    assert (machine.slice(be), machine.held(be)) == (1, False)


def test_processes_that_end_leave_nothing_behind(machine: Machine) -> None:
    for _ in range(3):
        pid = machine.start("be")
        machine.start("lc")
        machine.node.handle(ProcExit(0, pid, pid, 0))
    machine.node.restore_all()
    assert machine.node.keeper._in_module == {}
    assert machine.module._controls == {}


def test_a_handle_used_again_is_another_group(machine: Machine) -> None:
    machine.start("lc")
    be = machine.start("be")
    machine.driver.program(be, machine.driver.groups[be, CLIENT, GROUP].group)
    machine.owner_sets(be, OWN)
    machine.pass_time(0.5)
    machine.pass_time(0.5)
    assert machine.slice(be) == 1


@pytest.mark.parametrize(
    ("features", "word"),
    [(Feature.KFUNCS, "with BPF calls"), (Feature(0), "without BPF"), (Feature.COMPANION, "companion"),
     (Feature.TEST, "TEST BUILD")],
)  # fmt: skip
def test_what_the_module_is(driver: Driver, features: Feature, word: str) -> None:
    driver.features = features
    level = ModuleLevel(driver.open, lambda: 0.0)
    assert word in level.reason
    assert "550.163.01" in describe(driver.open().info)


class Keeping(RuleBasedStateMachine):
    """One group, and whatever may happen around it in any order: nothing of its own slice is ever lost."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.group = ChannelGroup(CLIENT, GROUP, "compute")
        self.key = (7, CLIENT, GROUP)
        self.driver.program(7, self.group)
        self.own = OWN
        self.wanted: int | None = None
        self.module = ModuleLevel(self.driver.open, lambda: self.driver.now)
        self.keeper = SliceKeeper(_NoUndo(), module=self.module)  # type: ignore[arg-type]
        self.keeper.control = self.driver.stock  # type: ignore[method-assign,assignment]
        info = ProcessInfo(
            pid=7, start_ticks=1, parent=1, name="p", exe="", command="", user="u", cgroup="/", container=None, env={}
        )
        self.process = Process(info, "be", "attach", "t")
        self.entry = Group(self.group)
        self.process.groups[self.entry.key] = self.entry

    @rule(us=st.sampled_from([1, 500, None]))
    def decide(self, us: int | None) -> None:
        self.wanted = us
        self.keeper.want(self.process, self.entry, us)

    @rule(seconds=st.sampled_from([0.5, 60.0]))
    def tick(self, seconds: float) -> None:
        self.driver.now += seconds
        self.driver.expire()
        self.keeper.renew()

    @precondition(lambda self: self.driver.loaded)
    @rule()
    def unload(self) -> None:
        self.driver.unload()

    @precondition(lambda self: not self.driver.loaded)
    @rule()
    def load(self) -> None:
        self.driver.loaded = True

    @rule(us=st.sampled_from([OWN, 777]))
    def program_sets_its_own(self, us: int) -> None:
        self.own = us
        self.driver.owner_sets(self.key, us)
        self.keeper.owner_set(self.process, self.entry, us)

    @invariant()
    def settles_on_what_is_wanted(self) -> None:
        for _ in range(3):
            self.keeper.renew()
            self.keeper.want(self.process, self.entry, self.wanted)
        assert self.driver.slices[self.key] == (self.own if self.wanted is None else self.wanted)

    def teardown(self) -> None:
        self.keeper.want(self.process, self.entry, None)
        self.keeper.renew()
        self.keeper.want(self.process, self.entry, None)
        self.module.close()
        assert self.driver.slices[self.key] == self.own
        assert self.driver.holds == {}


class _NoUndo:
    def changing(self, setting: object) -> None: ...
    def restored(self, setting: object) -> None: ...


TestKeeping = Keeping.TestCase
TestKeeping.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
