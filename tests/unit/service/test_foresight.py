"""Bursts are judged by the reservations of the actuator, whichever is heard of first."""

import itertools

import pytest
from msgspec.structs import replace

from gpsched.adaptive.actuator.records import Reason, Record
from gpsched.adaptive.foresight import Foresight, Reaction, reacted_us
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
        found.began(launch)
    for one in RECORDS:
        found.reservation(one, None)
        for launch in itertools.islice(launches, 2):
            found.began(launch)
    margins = found.margin.view()
    assert (sum(margins.counts), margins.sum_us, found.unreserved) == (4, 300.0 + 50.0 + 250.0 + 500.0, 2)
    assert above(margins, 200.0) == 3


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


def test_reaction_counts_from_when_a_reservation_was_due() -> None:
    one = record(1000, 1300, 1500)
    assert [reacted_us(one, due) for due in (0.0, 5.0, None, 500.0)] == [20.0, 15.0, None, None]
    assert reacted_us(record(0, 1300, 1500), 0.0) is None
    assert reacted_us(replace(one, ready_ns=one.begin_ns + 45_000), 5.0, hold=True) == 60.0
    assert reacted_us(replace(one, ready_ns=0), 5.0, hold=True) is None  # its kernels were never launched


def test_the_usual_reaction_is_reckoned_with() -> None:
    reaction = Reaction(100)
    first = reaction.us
    assert not any(reaction.add(15.0) for _ in range(63))
    assert reaction.add(15.0)
    assert reaction.us == 20 < first
    assert [reaction.add(57.0 if index % 5 else 15.0) for index in range(64 * 8)].count(True) == 1
    assert reaction.us == 60
    for _ in range(64 * 8):
        reaction.add(1e6)
    assert reaction.us == 300  # a machine that is too busy
