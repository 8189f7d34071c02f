"""When an actuator is started, and what is left when plans are refused or it dies. The actuator is a stand-in."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.actuator.errors import ActuatorGoneError, ActuatorMissingError, PlanRefusedError
from gpsched.adaptive.actuator.plans import GpuPlan, Mechanism, Member, Plan, PlanSet, Role, Trigger
from gpsched.adaptive.actuator.records import Counters, Reason, Record
from gpsched.adaptive.driver.types import Channel, ChannelGroup
from gpsched.adaptive.errors import GpschedError, ProcessGoneError
from gpsched.adaptive.execution import Execution
from gpsched.adaptive.probes.events import Kind
from gpsched.adaptive.reckoning import Due
from gpsched.adaptive.workloads import procinfo
from gpsched.adaptive.workloads.registry import Group, Process, Registry


GROUP = ChannelGroup(fd=7, client=1, handle=2, channels=(Channel(1, 3),), engine="compute", gpu_id=0)
NOTHING = PlanSet(gpus=())


class _Actuator:
    pid = 4242

    def __init__(self, end: int) -> None:
        self._end = end
        self.taken: list[PlanSet] = []
        self.failure: GpschedError | None = None
        self.stopped = False
        self.beside = 0

    def fileno(self) -> int:
        return self._end

    def publish(self, plan_set: PlanSet) -> None:
        if self.failure is not None:
            raise self.failure
        self.taken.append(plan_set)

    def check(self) -> None:
        self.publish(NOTHING)

    def announce(self, _event: bytes) -> None:
        self.publish(NOTHING)

    def counters(self) -> Counters:
        return Counters(**dict.fromkeys(Counters.__struct_fields__, 0) | {"beside": self.beside})

    def stop(self) -> None:
        self.stopped = True


def test_when_a_reservation_was_due_is_known_but_for_the_programs_own_hints() -> None:
    execution = Execution(None, None, None, None, started=None, renew=None)  # type: ignore[arg-type]
    triggers = (Trigger(kind=Kind.WAKE, offset_us=70), Trigger(kind=Kind.HINT), Trigger(kind=Kind.HINT, before_us=300))
    execution.published = PlanSet(plans=(Plan(5, triggers, Mechanism.HOLD, 1000),))
    nothing = dict.fromkeys(Record.__struct_fields__, 0) | {"reason": Reason.SYNC, "pid": 5}
    dues = [execution.due(Record(**nothing | {"trigger": trigger})) for trigger in range(4)]  # type: ignore[arg-type]
    assert dues == [Due(70.0), Due(0.0, foretold=True), None, None]


class _Keeper:
    """Remembers on whose channels it was told to look out."""

    def __init__(self) -> None:
        self.guarded: list[tuple[int, bool]] = []

    def files(self, _pid: int) -> None:
        raise AssertionError("the stand-in asks for no descriptors")

    def guard(self, process: Process, _group: Group) -> None:
        self.guarded.append((process.pid, True))

    def unguard(self, process: Process, _group: Group) -> None:
        self.guarded.append((process.pid, False))


class _Bed:
    def __init__(self, end: int) -> None:
        self.pid = os.getpid()
        self.registry, self.keeper, self.actuator = Registry(), _Keeper(), _Actuator(end)
        self.group = Group(GROUP, timeslice_us=1, original_us=2048)
        process = Process(procinfo.read(self.pid), "be", "attach", "me", groups={self.group.key: self.group})
        self.registry.put(process)
        self.missing = False
        self.started: list[int] = []
        self.renewed = 0
        self.execution = Execution(
            self.registry,
            self.keeper,  # type: ignore[arg-type]
            lambda: -1,
            self._start,  # type: ignore[arg-type]
            started=self.started.append,
            renew=self._renew,
        )
        self.plans = PlanSet((GpuPlan(),), (Member(self.pid, GROUP, Role.BE, original_us=2048),))

    def _start(self, _files: object, _ring: int) -> _Actuator:
        if self.missing:
            raise ActuatorMissingError(Path("none"))
        return self.actuator

    def _renew(self) -> None:
        self.renewed += 1


@pytest.fixture
def bed() -> Iterator[_Bed]:
    ends = os.pipe()
    yield _Bed(ends[0])
    for end in ends:
        os.close(end)


def test_an_actuator_is_started_for_the_first_plan_and_told_what_is_new(bed: _Bed) -> None:
    assert not bed.execution.publish(NOTHING)
    assert bed.started == []
    assert bed.execution.publish(bed.plans)
    assert not bed.execution.publish(bed.plans)
    assert bed.started == [4242]
    assert bed.actuator.taken == [bed.plans]
    assert bed.execution.publish(NOTHING)
    assert bed.keeper.guarded == [(bed.pid, True), (bed.pid, False)]


def test_where_it_is_missing_nothing_is_tried_again(bed: _Bed) -> None:
    bed.missing = True
    assert not bed.execution.publish(bed.plans)
    bed.missing = False
    assert not bed.execution.publish(bed.plans)
    assert not bed.execution.may_run
    assert bed.execution.records() == []


@pytest.mark.parametrize(
    ("failure", "renewed"),
    [(ProcessGoneError(1), 1), (PlanRefusedError("plans", 7, "E2BIG"), 0)],
    ids=["gone", "refused"],
)
def test_what_it_does_not_take_leaves_the_earlier_plans(bed: _Bed, failure: GpschedError, renewed: int) -> None:
    bed.execution.publish(bed.plans)
    bed.actuator.failure = failure
    assert not bed.execution.publish(NOTHING)
    assert bed.execution.published == bed.plans
    assert bed.renewed == renewed
    bed.actuator.failure = None
    assert bed.execution.publish(NOTHING)


@pytest.mark.parametrize("noticed", ["publish", "check", "announce"])
def test_its_death_leaves_slices_as_they_were_and_it_is_not_started_at_once(bed: _Bed, noticed: str) -> None:
    bed.execution.publish(bed.plans)
    bed.actuator.failure = ActuatorGoneError(-9)
    arguments = {"publish": (NOTHING,), "check": (), "announce": (b"",)}[noticed]
    assert not getattr(bed.execution, noticed)(*arguments)
    assert bed.group.timeslice_us == 2048  # the actuator, or who survived it, restored what was recorded
    assert bed.actuator.stopped
    assert bed.renewed == 1
    assert bed.execution.published == NOTHING
    assert not bed.execution.may_run
    assert not bed.execution.publish(bed.plans)
    bed.execution.announce(b"")  # to nobody


def test_where_it_waits_is_told_while_it_runs(bed: _Bed) -> None:
    bed.actuator.beside = 77
    assert bed.execution.beside == 0
    bed.execution.publish(bed.plans)
    assert bed.execution.beside == 77
