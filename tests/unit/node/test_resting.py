"""Services that are left to the actuator for a while: who is told what, and what its records tell instead."""

import random
import time
from types import SimpleNamespace
from typing import cast

import pytest

from gpsched.adaptive.actuator.plans import GpuPlan, Mechanism, Plan, PlanSet
from gpsched.adaptive.actuator.plans import Trigger as Cause
from gpsched.adaptive.actuator.records import Reason
from gpsched.adaptive.execution import Execution
from gpsched.adaptive.hints.costs import LEVELS
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.hints.outputs import BurstBegan, BurstEnded, Output, Release, Reserve
from gpsched.adaptive.learning import Learners
from gpsched.adaptive.policy.rest import Resting
from gpsched.adaptive.probes.events import Hint, HintEvent, Kind, decode
from gpsched.adaptive.resting import Rests, outputs
from gpsched.adaptive.workloads.registry import Registry
from tests.unit.hints.obedient import with_ticks
from tests.unit.hints.streams import Stream, plain_loop
from tests.unit.node.test_contention import _process
from tests.unit.policy.test_rest import CLOCK, READ, US, record, trigger


PID = 1
PERIOD_US = 10_000.0


def service(lead_us: float, count: int = 300) -> Stream:
    """It has been asked at a rhythm until now: what is learned are times of the real clock."""
    rng = random.Random(1)
    start = time.monotonic() * 1e6 - count * PERIOD_US
    times = [start + number * PERIOD_US + rng.uniform(0, 60) for number in range(count)]
    return plain_loop(times, rng, prepare=lambda _: lead_us)


class Bed:
    """One service with a learner that knows it, and its plan in force."""

    def __init__(self, lead_us: float, *, predicts: bool) -> None:
        self.stream, self.announced = service(lead_us), cast(list[bytes], [])
        registry = Registry()
        process = _process(PID, "lc")
        process.mechanism = "hold"
        registry.put(process)
        self.learners = Learners(registry, LEVELS["hold"])
        learner = self.learners.of(PID)
        assert learner is not None
        self.learner = learner
        for observation in with_ticks(self.stream.sorted(), 4_000.0):
            learner.observe(observation)
        plan = Plan(PID, (Cause(kind=Kind.HINT),), Mechanism.HOLD, 1_000)
        self.execution = SimpleNamespace(published=PlanSet((GpuPlan(),), (), (plan,)), announce=self.announced.append)
        execution = cast(Execution, self.execution)
        self.shift_us = 20.0
        self.rests = Rests(registry, self.learners, execution, lambda _plan: predicts, lambda _pid: self.shift_us)
        self.now_s = 0.0
        self.rests._resting = Resting(lambda: self.now_s)
        self.bursts = self.learner.bursts

    def second(self, watched: frozenset[int] = frozenset()) -> list[Output]:
        """A second passes, in which it is observed often enough."""
        self.now_s += 1.0
        self.learner._table.burst += 100
        changed = self.rests.change(watched)
        return [output for pid in changed for output in self.rests.tell(pid, time.monotonic() * 1e6)]


def test_a_service_that_is_known_rests_and_is_looked_at_again() -> None:
    bed = Bed(1_000.0, predicts=False)
    states = []
    for _ in range(12):
        bed.second()
        states.append(PID in bed.rests.pids)
    assert states.count(True) > states.count(False) > 2
    assert bed.announced == []


@pytest.mark.parametrize("why", ["watched", "somebody wants all events", "two GPUs", "level", "no plan"])
def test_who_must_be_observed_does_not_rest(why: str) -> None:
    bed = Bed(1_000.0, predicts=False)
    for _ in range(2):
        bed.second()
    assert PID in bed.rests.pids
    watched = frozenset({PID}) if why == "watched" else frozenset[int]()
    plans = bed.execution.published.plans
    if why == "somebody wants all events":
        bed.rests.must_observe = lambda: True
    elif why == "two GPUs":
        bed.execution.published = PlanSet((GpuPlan(), GpuPlan()), (), plans * 2)
    elif why == "level":
        process = bed.rests._registry.get(PID)
        assert process is not None
        process.mechanism = "timeslice"
    elif why == "no plan":
        bed.execution.published = PlanSet(gpus=())
    for _ in range(10):
        bed.second(watched)
        assert PID not in bed.rests.pids


def test_the_actuator_foretells_what_the_clock_announced() -> None:
    bed = Bed(0.0, predicts=True)
    assert str(bed.learner.chosen().triggers[0].matcher) == "clock"
    expected = bed.learner.rhythm
    assert expected is not None
    followed: list[Output] = []
    while PID not in bed.rests.pids:
        followed = bed.second()
    assert not followed or isinstance(followed[-1], Release)  # what was foretold is taken back first
    (word,) = bed.announced
    event = decode(word)
    assert isinstance(event, HintEvent)
    assert event.hint is Hint.RESERVE
    later = (event.time_ns / 1000 - expected.start_us - 20.0) / expected.every_us
    assert later == pytest.approx(round(later), abs=0.001)
    assert event.time_ns > time.monotonic_ns() - 1_000_000
    again = bed.learner.rhythm
    assert again is not None, "the rhythm is kept"


def test_a_clock_without_a_rhythm_cannot_be_left_to_it() -> None:
    bed = Bed(0.0, predicts=True)
    bed.learner._clock.reset()
    for _ in range(5):
        bed.second()
    assert not bed.rests.pids


def test_a_rhythm_that_is_to_be_reserved_behind_its_launches_is_not_left_to_it() -> None:
    """It follows the launches: after a while it would reserve at them, whatever was asked for."""
    bed = Bed(0.0, predicts=True)
    bed.shift_us = 2_000.0
    for _ in range(5):
        bed.second()
    assert not bed.rests.pids


def test_only_bursts_that_nobody_told_of_are_told_by_their_records() -> None:
    bed = Bed(1_000.0, predicts=False)
    before = round(time.monotonic() * 1e9) - 10_000 * US
    while PID not in bed.rests.pids:
        bed.second()
    after = time.monotonic_ns() + 10_000 * US
    kinds = []
    for start in (before, after):
        times = {"trigger_ns": start, "begin_ns": start + 1, "launch_ns": start + 500 * US, "end_ns": start + 900 * US}
        kinds.append([type(output) for output in bed.rests.reserved(record(Reason.SYNC, **times))])
    assert kinds == [[], [Reserve, BurstBegan, BurstEnded]]


def test_a_record_tells_what_the_learner_would_have() -> None:
    asked, began, ended = outputs(record(), Choice("sure", (trigger(READ),)), 400.0)
    assert asked == Reserve(1_050.0, 3_000.0, READ)
    assert began == BurstBegan(1_500.0, 400.0, allowed=True)
    assert isinstance(ended, BurstEnded)
    assert (ended.burst.start_us, ended.burst.end_us, ended.burst.closed_by) == (1_500.0, 3_000.0, "sync")


def test_a_lead_that_was_too_short_is_told_as_such() -> None:
    _, began, _ = outputs(record(begin_ns=1_600 * US), Choice("sure", (trigger(READ),)), 600.0)
    assert began == BurstBegan(1_500.0, None, allowed=False)


def test_what_was_foretold_asks_for_nothing_again() -> None:
    """It would be announced to the actuator a second time."""
    kinds = [type(output) for output in outputs(record(), Choice("sure", (trigger(CLOCK),)), 100.0)]
    assert kinds == [BurstBegan, BurstEnded]


@pytest.mark.parametrize("reason", [Reason.NO_LAUNCH, Reason.MISSED])
def test_no_burst_is_told_of_where_none_was_served(reason: Reason) -> None:
    launch = 0 if reason is Reason.NO_LAUNCH else 1_500 * US
    kinds = [type(each) for each in outputs(record(reason, launch_ns=launch), Choice("sure", (trigger(READ),)), 1.0)]
    assert kinds == [Reserve]
