"""Bursts are judged by the reservations of the actuator, whichever is heard of first."""

import itertools

import pytest

from gpsched.adaptive.actuator.records import Reason, Record
from gpsched.adaptive.foresight import Foresight
from gpsched.adaptive.histogram import above


def record(begin_us: int, launch_us: int, end_us: int, reason: Reason = Reason.SYNC) -> Record:
    times = {"trigger_ns": begin_us - 20, "begin_ns": begin_us, "ready_ns": begin_us, "launch_ns": launch_us}
    times |= {"end_ns": end_us, "undone_ns": end_us}
    return Record(
        sequence=1, pid=5, gpu=0, trigger=0, reason=reason, merged=0, controls=1, failures=0, last_status=0,
        **{name: 1000 * us for name, us in times.items()},
    )  # fmt: skip


# Reserved early; late; two bursts in one reservation, the second early by that; none; and one right at its launch.
RECORDS = [record(1000, 1300, 1500), record(2000, 2050, 2300), record(3000, 3250, 3600), record(5010, 5000, 5200)]
LAUNCHES = [1300.0, 2050.0, 3250.0, 3500.0, 4000.0, 5000.0]


@pytest.mark.parametrize("ahead", range(7))
def test_the_order_in_which_both_are_heard_of_does_not_matter(ahead: int) -> None:
    found = Foresight()
    launches = iter(LAUNCHES)
    for launch in itertools.islice(launches, ahead):
        found.began(launch, launch >= 3000.0)
    for one in RECORDS:
        found.reservation(one, None)
        for launch in itertools.islice(launches, 2):
            found.began(launch, launch >= 3000.0)
    margins = found.margin.view()
    assert (sum(margins.counts), margins.sum_us, found.unreserved) == (4, 300.0 + 50.0 + 250.0 + 500.0, 2)
    assert above(margins, 200.0) == 3
    assert (above(found.allowed.view(), 200.0), found.allowed_unreserved) == (2, 2)


def test_a_burst_that_is_told_of_late_has_its_own_reservation() -> None:
    """The learner was told nothing for a while: that of the last burst then had been judged by the next reservation."""
    found = Foresight()
    for one in RECORDS[:3]:
        found.reservation(one, None)
    for launch in (3250.0, 1300.0):
        found.began(launch, True)
    assert (found.margin.view().sum_us, found.unreserved) == (250.0 + 300.0, 0)


def test_bursts_of_a_time_without_reservations_are_judged_in_that_time() -> None:
    """They were counted with those that came later, as if the reservations of then had missed them."""
    found = Foresight()
    for number in range(40):
        found.began(1000.0 + number * 100_000.0, True)
    assert 24 <= found.unreserved == found.allowed_unreserved < 40
    found.reservation(record(3_900_900, 3_901_000, 3_902_000), None)  # of the last one
    assert (found.unreserved, sum(found.margin.view().counts)) == (39, 1)


def test_a_long_burst_waits_for_its_reservation() -> None:
    found = Foresight()
    found.began(1_000.0, True)
    found.began(1_201_000.0, True)
    found.reservation(record(700, 1_000, 1_000_900), None)
    found.reservation(record(1_200_700, 1_201_000, 1_300_000), None)
    assert (sum(found.margin.view().counts), found.unreserved) == (2, 0)


def test_reservations_without_a_launch_are_in_vain() -> None:
    found = Foresight()
    for one in (
        record(1000, 0, 1500, Reason.NO_LAUNCH),
        record(2000, 2100, 2500, Reason.NO_LAUNCH),  # a burst came, but not the one that was announced within it
        record(3000, 0, 3500, Reason.WITHDRAWN),
        record(4000, 0, 4500, Reason.EXIT),
        record(0, 0, 5000, Reason.WITHDRAWN),  # before it began
        record(6000, 6100, 6500, Reason.LIMIT),
    ):
        found.reservation(one, None)
    assert found.in_vain == 3
