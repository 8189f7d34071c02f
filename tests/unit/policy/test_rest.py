"""When the daemon leaves a service to the actuator, and for how long."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.actuator.records import Reason, Record
from gpsched.adaptive.hints.model import Choice, Trigger
from gpsched.adaptive.hints.observations import Matcher, WakeKind
from gpsched.adaptive.policy.rest import Resting, announces_all


READ, CLOCK = Matcher(WakeKind.SOCKET_READ), Matcher(WakeKind.CLOCK)
US = 1_000
RATE = 100


def record(reason: Reason = Reason.SYNC, **fields: Any) -> Record:
    times = {"trigger_ns": 1_000 * US, "begin_ns": 1_100 * US, "ready_ns": 1_300 * US, "launch_ns": 1_500 * US}
    times |= {"end_ns": 3_000 * US, "undone_ns": 3_000 * US}
    rest = dict.fromkeys(("sequence", "gpu", "trigger", "merged", "controls", "failures", "last_status"), 0)
    return Record(**({"pid": 1, "reason": reason} | times | rest | fields))


def trigger(matcher: Matcher, recall: float = 1.0) -> Trigger:
    return Trigger(matcher, 50.0, 2_000.0, 0.0, 1.0, recall, {"p50": 500.0})


class Service:
    """One service that is asked ``RATE`` times a second, and what became of its rests."""

    def __init__(self) -> None:
        self.now_s, self.bursts, self.rested_s = 0.0, 0, 0.0
        self.resting = Resting(lambda: self.now_s)
        self.rests: list[float] = []

    def second(self, *, could: bool = True, rate: int = RATE) -> None:
        for _ in range(10):
            self.now_s += 0.1
            rests = 1 in self.resting.pids
            self.bursts += 0 if rests else rate // 10
            self.rested_s += 0.1 * rests
            if self.resting.due:
                changed = self.resting.update({1: self.bursts} if could else {})
                if changed and 1 in self.resting.pids:
                    self.rests.append(0.0)
            if 1 in self.resting.pids:
                self.rests[-1] += 0.1

    def seconds(self, count: int, **how: Any) -> None:
        for _ in range(count):
            self.second(**how)


def test_it_rests_for_longer_and_longer_up_to_a_bound() -> None:
    service = Service()
    service.seconds(60)
    assert service.rests[0] == pytest.approx(Resting.SHORTEST_S, abs=0.4)
    assert service.rests[1] == pytest.approx(2 * Resting.SHORTEST_S, abs=0.4)
    assert max(service.rests) <= Resting.LONGEST_S + 0.4
    assert service.rested_s > 0.75 * 60
    assert service.bursts >= 60 / (Resting.LONGEST_S + 2) * Resting.OBSERVED


def test_few_bursts_are_not_looked_at_for_less_than_enough_of_them() -> None:
    service = Service()
    service.seconds(10, rate=10)  # 64 bursts take 6.4 s
    assert 0 < service.rested_s < 4


def test_who_may_no_longer_rest_is_observed_at_once() -> None:
    service = Service()
    while not service.resting.pids:
        service.second()
    service.second(could=False)
    assert not service.resting.pids


def test_hints_of_its_own_end_its_rest_and_no_other_s() -> None:
    service = Service()
    while not service.resting.pids:
        service.second()
    service.resting.wake(2)
    assert not service.resting.due or service.resting.update({1: service.bursts}) == frozenset()
    service.resting.wake(1)
    assert service.resting.due
    assert service.resting.update({1: service.bursts}) == {1}
    assert not service.resting.pids


REASONS = st.sampled_from([Reason.SYNC, Reason.QUIET, Reason.NO_LAUNCH, Reason.MISSED, Reason.LIMIT])
BEGINS = st.sampled_from([0, 1_100, 1_600])  # it never began, in time, after the launch


@given(st.lists(st.tuples(REASONS, BEGINS), max_size=Resting.OF))
def test_reservations_that_fail_or_are_late_end_the_rest_and_single_ones_do_not(
    kinds: list[tuple[Reason, int]],
) -> None:
    service = Service()
    service.seconds(40)
    while not service.resting.pids:
        service.second()
    for reason, begin in kinds:
        service.resting.reserved(record(reason, begin_ns=begin * US))
    failed = sum(reason not in (Reason.SYNC, Reason.QUIET) for reason, _ in kinds)
    late = sum(begin != 1_100 for _, begin in kinds)
    bad = failed >= Resting.FAILURES or late >= Resting.LATE
    assert service.resting.due or not bad
    service.now_s += 0.01
    service.resting.update({1: service.bursts})
    assert bool(service.resting.pids) != bad
    if bad:
        service.seconds(10)
        assert service.rests[-1] <= 2 * Resting.SHORTEST_S + 0.4  # it is not trusted as long as before


@pytest.mark.parametrize(
    ("state", "triggers", "all_of_them"),
    [
        ("sure", (trigger(READ),), True),
        ("sure", (trigger(READ, 0.6), trigger(CLOCK, 0.39)), True),
        ("sure", (trigger(READ, 0.9),), False),
        ("sure", (trigger(READ), trigger(Matcher(WakeKind.BURST_END), 0.1)), False),
        ("learning", (trigger(READ),), False),
        ("explicit", (trigger(READ),), False),
        ("sure", (), False),
    ],
)
def test_only_bursts_that_the_actuator_sees_announced_need_no_look(
    state: Any, triggers: tuple[Trigger, ...], all_of_them: bool
) -> None:
    assert announces_all(Choice(state, triggers)) is all_of_them
