"""Several latency-critical processes on one GPU: who is kept off for whom, and never for longer than its own limit."""

import time

import pytest

from gpsched.adaptive.actuator import GpuPlan, Mechanism, Plan, Role, Trigger
from gpsched.adaptive.actuator.plans import Member
from gpsched.adaptive.probes.events import Call, Kind
from tests.unit.actuator.rig import until


KEEPS_OFF = Mechanism.ORDER | Mechanism.START_ON_LAUNCH
LAUNCHES = (Trigger(kind=Kind.CUDA_ENTER, call=Call.COPY_H2D), Trigger(kind=Kind.CUDA_ENTER, call=Call.LAUNCH))


@pytest.fixture
def pair(make_rig):
    """A rig with two latency-critical processes and a best-effort one."""
    rig = make_rig(best_effort=2)
    rig.second = rig.be.pop(0)
    return rig


def publish(rig, first, second, mechanism=KEEPS_OFF, limit_us=2_000_000):
    """``first`` and ``second``: rank and due time of the two."""
    plans = [
        Plan(pid, LAUNCHES, mechanism, limit_us, rank=rank, due_us=due_us)
        for pid, (rank, due_us) in ((rig.lc, first), (rig.second, second))
    ]
    members = [Member(pid, rig.group(pid), Role.LC, waits=True) for pid in (rig.lc, rig.second)]
    rig.publish(*plans, members=[*members, rig.member(rig.be[0])])


def both_in_a_burst(rig, first, second):
    rig.launch(pid=first)
    rig.launch(pid=second)
    until(lambda: rig.actuator.counters().reservations == 2)


@pytest.mark.parametrize("comes_first", [True, False], ids=["preempts", "waits"])
def test_the_higher_rank_goes_first(pair, comes_first):
    publish(pair, (1, 0), (0, 0))
    both_in_a_burst(pair, *((pair.lc, pair.second) if comes_first else (pair.second, pair.lc)))
    until(lambda: pair.is_disabled(pair.second))
    assert not pair.is_disabled(pair.lc)
    assert not pair.is_disabled(pair.be[0])  # this mechanism says nothing about best-effort work
    pair.sync(pid=pair.lc)
    until(lambda: not pair.is_disabled(pair.second))
    assert pair.record().pid == pair.lc


def test_a_process_without_a_burst_is_left_alone(pair):
    publish(pair, (1, 0), (0, 0))
    pair.launch()
    until(lambda: pair.actuator.counters().reservations == 1)
    time.sleep(0.02)
    assert pair.controls() == []


@pytest.mark.parametrize(("due_us", "waiting"), [((50_000, 900_000), 1), ((900_000, 50_000), 0), ((0, 900_000), 0)])
def test_the_earlier_due_time_goes_first(pair, due_us, waiting):
    publish(pair, (0, due_us[0]), (0, due_us[1]))
    both_in_a_burst(pair, pair.lc, pair.second)
    kept_off = (pair.lc, pair.second)[waiting]
    until(lambda: pair.is_disabled(kept_off))
    assert not pair.is_disabled((pair.lc, pair.second)[1 - waiting])


def test_who_was_triggered_long_ago_may_be_due_before_a_shorter_objective(pair):
    publish(pair, (0, 300_000), (0, 200_000))
    pair.launch(pid=pair.lc)
    time.sleep(0.15)
    pair.launch(pid=pair.second)  # due in 200 ms, the other in 150
    until(lambda: pair.is_disabled(pair.second))
    assert not pair.is_disabled(pair.lc)


def test_neither_before_the_other_means_no_control(pair):
    publish(pair, (0, 0), (0, 0))
    both_in_a_burst(pair, pair.lc, pair.second)
    time.sleep(0.02)
    assert pair.controls() == []


def test_both_keep_best_effort_off_and_one_of_them_the_other(pair):
    publish(pair, (1, 0), (0, 0), KEEPS_OFF | Mechanism.DISABLE)
    both_in_a_burst(pair, pair.second, pair.lc)
    until(lambda: pair.is_disabled(pair.second) and pair.is_disabled(pair.be[0]))
    pair.sync(pid=pair.lc)
    until(lambda: not pair.is_disabled(pair.second))
    assert pair.is_disabled(pair.be[0])
    pair.sync(pid=pair.second)
    until(lambda: not pair.is_disabled(pair.be[0]))


def test_nobody_waits_longer_than_its_own_limit(pair):
    publish(pair, (1, 0), (0, 0), limit_us=60_000)
    pair.launch(pid=pair.second)
    time.sleep(0.03)
    pair.launch(pid=pair.lc)
    until(lambda: pair.is_disabled(pair.second))
    until(lambda: not pair.is_disabled(pair.second))
    disabled, enabled = (entry for entry in pair.rm.entries[: pair.rm.number] if entry.client & 0xFFFFF == pair.second)
    assert enabled.begin_ns - disabled.begin_ns < 60_000_000


def test_a_place_in_the_order_is_not_at_the_expense_of_the_floor(pair):
    plans = [Plan(pid, LAUNCHES, KEEPS_OFF, 900_000, rank=rank) for pid, rank in ((pair.lc, 1), (pair.second, 0))]
    members = [Member(pid, pair.group(pid), Role.LC, waits=True) for pid in (pair.lc, pair.second)]
    pair.publish(*plans, members=[*members, pair.member(pair.be[0])], gpus=(GpuPlan(max_reserved=0.01),))
    both_in_a_burst(pair, pair.lc, pair.second)
    time.sleep(0.05)  # five times the budget
    assert pair.actuator.records() == []
    assert pair.is_disabled(pair.second)


@pytest.mark.parametrize("gone", ["lc", "second"])
def test_whoever_dies_leaves_nobody_off(pair, gone):
    publish(pair, (1, 0), (0, 0))
    both_in_a_burst(pair, pair.second, pair.lc)
    until(lambda: pair.is_disabled(pair.second))
    pair.exit(getattr(pair, gone))
    until(lambda: pair.actuator.counters().disabled == 0)
    assert gone == "second" or not pair.is_disabled(pair.second)


def test_another_policy_lets_it_run_at_once(pair):
    publish(pair, (1, 0), (0, 0))
    both_in_a_burst(pair, pair.second, pair.lc)
    until(lambda: pair.is_disabled(pair.second))
    publish(pair, (0, 0), (0, 0), Mechanism.START_ON_LAUNCH | Mechanism.DISABLE)
    until(lambda: not pair.is_disabled(pair.second))


def test_the_survivor_enables_who_waited(pair, monkeypatch):
    enabled = []

    class Control:
        def __init__(self, files):
            self.files = files

        def enable(self, _group):
            enabled.append(self.files.pid)

    monkeypatch.setattr("gpsched.adaptive.actuator.undo.StockControl", Control)
    publish(pair, (1, 0), (0, 0))
    assert pair.actuator.undo() == []
    assert sorted(enabled) == sorted([pair.lc, pair.second, *pair.be])
