"""Several latency-critical processes on one GPU: the order, and what each means for slices and reservations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.config import ORDERS, Order, Policy
from gpsched.adaptive.policy.order import Contender, Means, Standing, standings


MEANS = Means(first_us=1_000_000, gives_way_us=1, control_us=700.0)
LONG = 5_000.0


def _order(order: Order, *contenders: Contender, best_effort: bool = True) -> list[Standing]:
    found = standings(contenders, Policy(order=order), MEANS, best_effort=best_effort)
    return [found[each.pid] for each in contenders]


def test_priority_gives_the_first_the_long_slice_and_the_others_a_short_one() -> None:
    high, low = _order("priority", Contender(1, priority=2), Contender(2, priority=1))
    assert (high.slice_us, low.slice_us) == (1_000_000, 1_000)
    assert (high.rank, low.rank) == (1, 0)
    assert (high.reason, low.reason) == (
        "2 latency-critical by priority: 1 after it",
        "2 latency-critical by priority: 1 before it",
    )


def test_without_best_effort_work_one_of_two_can_give_way_at_once() -> None:
    pair = Contender(1, priority=1), Contender(2)
    assert _order("priority", *pair, best_effort=False)[1].slice_us == 1
    third = Contender(3)
    assert _order("priority", *pair, third, best_effort=False)[1].slice_us == 1_000  # two at 1 µs starve each other


def test_deadlines_are_those_of_the_arrivals() -> None:
    short, long, none = _order("deadline", Contender(1, 2_000), Contender(2, 9_000), Contender(3))
    assert (short.due_us, long.due_us, none.due_us) == (2_000, 9_000, 0)
    assert (short.rank, long.rank, none.rank) == (1, 1, 0)
    assert (short.slice_us, long.slice_us, none.slice_us) == (1_000_000, 1_000, 1_000)


def test_laxity_puts_long_bursts_first() -> None:
    short_burst, long_burst = _order("laxity", Contender(1, 5_000, 100.0), Contender(2, 6_000, 4_000.0))
    assert (short_burst.due_us, long_burst.due_us) == (4_900, 2_000)
    assert long_burst.slice_us == 1_000_000
    overdue, _ = _order("laxity", Contender(1, 1_000, 4_000.0), Contender(2, 6_000))
    assert overdue.due_us == 1  # 0 would say that it is never due


def test_shares_are_slices_in_proportion() -> None:
    large, small = _order("share", Contender(1, weight=3.0), Contender(2, weight=1.0))
    assert (large.slice_us, small.slice_us) == (6_000, 2_000)
    assert "75 %" in large.reason or "75%" in large.reason
    assert not large.keeps_off
    assert large.rank == small.rank == 0


@pytest.mark.parametrize("order", ["deadline", "laxity", "priority"])
def test_equals_alone_keep_their_own_slices(order: Order) -> None:
    equals = Contender(1, 5_000), Contender(2, 5_000), Contender(3, 5_000)
    for standing in _order(order, *equals, best_effort=False):
        assert (standing.slice_us, standing.keeps_off, standing.due_us, standing.rank) == (None, False, 0, 0)


@pytest.mark.parametrize("order", ["deadline", "laxity"])
def test_of_equal_deadlines_the_earlier_arrival_ends_first(order: Order) -> None:
    """Slices longer than the bursts do that, and cost nothing; the driver's would let them all take turns."""
    for standing in _order(order, Contender(1, 30_000, 4_000.0), Contender(2, 30_000, 4_000.0), best_effort=False):
        assert standing.slice_us == 10_000
        assert "who came first ends first" in standing.reason
    short = _order(order, Contender(1, 5_000, 900.0), Contender(2, 5_000, 900.0), best_effort=False)
    assert [standing.slice_us for standing in short] == [None, None]


def test_who_has_no_deadline_is_as_without_us() -> None:
    for order, slo_us in (("deadline", None), ("priority", 5_000.0)):
        equals = Contender(1, slo_us, LONG), Contender(2, slo_us, LONG)
        assert [each.slice_us for each in _order(order, *equals, best_effort=False)] == [None, None]  # type: ignore[arg-type]


@pytest.mark.parametrize(("burst_us", "slice_us"), [(0.0, 10_000), (6_000.0, 10_000), (9_000.0, 20_000), (1e6, 50_000)])
def test_no_best_effort_work_comes_between_equals_within_a_burst(burst_us: float, slice_us: int) -> None:
    """Nor does one of them that never rests block the others for long."""
    equals = _order("deadline", Contender(1, 5_000, 100.0), Contender(2, 5_000, burst_us))
    assert [standing.slice_us for standing in equals] == [slice_us] * 2
    one, other, last = _order("priority", Contender(1, None, burst_us, 1), Contender(2, priority=1), Contender(3))
    assert (one.slice_us, other.slice_us, last.slice_us) == (slice_us, slice_us, 1_000)


def test_two_leaders_alone_do_not_block_each_other() -> None:
    contenders = Contender(1, priority=1), Contender(2, priority=1), Contender(3)
    one, other, last = _order("priority", *contenders, best_effort=False)
    assert (one.slice_us, other.slice_us, last.slice_us) == (None, None, 1_000)


def test_others_are_kept_off_only_where_their_bursts_outlast_the_control() -> None:
    high, low = _order("priority", Contender(1, priority=1, burst_us=LONG), Contender(2, burst_us=LONG))
    assert (high.keeps_off, low.keeps_off) == (True, False)
    high, low = _order("priority", Contender(1, priority=1, burst_us=LONG), Contender(2, burst_us=300.0))
    assert (high.keeps_off, low.keeps_off) == (False, False)
    short, long = _order("deadline", Contender(1, 2_000, LONG), Contender(2, 9_000, LONG))
    assert (short.keeps_off, long.keeps_off) == (True, True)  # a later arrival may be due later despite its objective
    timed, none = _order("deadline", Contender(1, 2_000, LONG), Contender(2, None, LONG))
    assert (timed.keeps_off, none.keeps_off) == (True, False)


def test_who_gives_way_at_once_need_not_be_kept_off() -> None:
    pair = Contender(1, 2_000, LONG, priority=1), Contender(2, 9_000, LONG)
    high, low = _order("priority", *pair, best_effort=False)
    assert (low.slice_us, high.keeps_off, low.keeps_off) == (1, False, False)
    short, long = _order("deadline", *pair, best_effort=False)
    assert (short.keeps_off, long.keeps_off) == (False, True)  # the arrivals may put the long one first


CONTENDERS = st.lists(
    st.builds(
        Contender,
        pid=st.integers(1, 99),
        slo_us=st.none() | st.floats(1, 1e6),
        burst_us=st.floats(0, 1e5),
        priority=st.integers(-3, 3),
        weight=st.floats(0.01, 100),
    ),
    min_size=2,
    max_size=6,
    unique_by=lambda each: each.pid,
)


@given(CONTENDERS, st.sampled_from(ORDERS), st.booleans())
def test_whatever_they_are(contenders: list[Contender], order: Order, best_effort: bool) -> None:
    found = standings(contenders, Policy(order=order), MEANS, best_effort=best_effort)
    assert set(found) == {each.pid for each in contenders}
    slices = [standing.slice_us for standing in found.values()]
    assert slices.count(1_000_000) <= 1  # two would block each other
    assert slices.count(1) <= 1  # two would starve each other
    assert 1 not in slices or not best_effort
    assert all(us is None or us >= 1 for us in slices)
    assert all(standing.reason and standing.rank >= 0 and standing.due_us >= 0 for standing in found.values())


@given(CONTENDERS)
def test_shares_sum_to_the_period(contenders: list[Contender]) -> None:
    found = standings(contenders, Policy(order="share"), MEANS, best_effort=False)
    total = sum(each.weight for each in contenders)
    for each in contenders:
        us = found[each.pid].slice_us
        assert us is not None
        assert us == max(200, round(8_000 * each.weight / total))
