"""What reservations cost on this machine: learned reactions, and when a hold had the GPU."""

import pytest

from gpsched.adaptive.actuator.records import Reason, Record
from gpsched.adaptive.hints.costs import LEVELS
from gpsched.adaptive.hints.observations import WakeKind
from gpsched.adaptive.reckoning import Due, Reaction, Reckoning, reacted_us


def record(**times_ns: int) -> Record:
    fields = dict.fromkeys(Record.__struct_fields__, 0) | times_ns | {"pid": 5, "reason": Reason.SYNC}
    return Record(**fields)  # type: ignore[arg-type]


def test_reaction_counts_from_when_a_reservation_was_due() -> None:
    one = record(trigger_ns=980_000, begin_ns=1_000_000)
    dues = (Due(0.0), Due(5.0), None, Due(500.0))
    assert [reacted_us(one, due) for due in dues] == [20.0, 15.0, None, None]
    assert reacted_us(record(trigger_ns=1), Due(0.0)) is None  # it never began
    held = record(trigger_ns=980_000, begin_ns=1_000_000, ready_ns=1_045_000)
    assert reacted_us(held, Due(5.0), hold=True) == 60.0
    assert reacted_us(one, Due(5.0), hold=True) is None  # its kernels were never launched


def test_the_usual_reaction_is_reckoned_with_and_how_much_longer_the_slowest_take() -> None:
    reaction = Reaction(100, 60)
    assert not any(reaction.add(15.0) for _ in range(63))
    assert (reaction.us, reaction.spread_us) == (100, 60)
    assert reaction.add(15.0)
    assert (reaction.us, reaction.spread_us) == (15, 0)
    changed = [reaction.add(57.0 if index % 5 else 97.0) for index in range(64 * 8)]
    assert 1 <= changed.count(True) <= 2
    assert (reaction.us, reaction.spread_us) == (57, 40)
    assert not any(reaction.add(58.0 if index % 5 else 99.0) for index in range(64 * 8))  # no difference to speak of
    for _ in range(64 * 8):
        reaction.add(1e6)
    assert (reaction.us, reaction.spread_us) == (300, 0)  # a machine that is too busy


def test_a_wide_spread_is_news_only_when_it_is_much_wider() -> None:
    reaction = Reaction(50, 100)
    for slow_us, spread_us in ((150.0, 100), (172.0, 100), (190.0, 140)):
        for index in range(64 * 8):
            reaction.add(50.0 if index % 5 else slow_us)
        assert (reaction.us, reaction.spread_us) == (50, spread_us)


def began(after_us: float) -> Record:
    """A hold that was launched so long after its trigger."""
    ready_ns = 1_000_000 + round(after_us * 1000)
    return record(trigger_ns=1_000_000, begin_ns=ready_ns, ready_ns=ready_ns)


def test_a_level_needs_as_much_more_as_its_reservations_begin_late() -> None:
    reckoning = Reckoning(LEVELS)
    assert reckoning.costs()["hold"].need_us == LEVELS["hold"].need_us + 40
    assert reckoning.costs()["hold"].spread_us == 60
    learned = [reckoning.learn("hold", began(520.0), Due(500.0)) for _ in range(64)]
    assert learned == [False] * 63 + [True]
    costs = reckoning.costs()
    assert costs["hold"].need_us == LEVELS["hold"].need_us + 20
    assert costs["hold"].spread_us == 0
    assert costs["reserve"].need_us == LEVELS["reserve"].need_us + 10  # nothing was learned of it
    assert costs["timeslice"] == LEVELS["timeslice"]
    assert not any(reckoning.learn("module", began(520.0), Due(500.0)) for _ in range(64))


def test_events_find_the_actuator_asleep_and_what_is_awaited_does_not() -> None:
    """Both had one reaction: what is foretold seemed to begin as late as what is due at its event."""
    reckoning = Reckoning(LEVELS)
    for index in range(64):
        reckoning.learn("hold", began(250.0 if index % 20 == 0 else 90.0), Due(30.0))
        reckoning.learn("hold", began(25.0), Due(0.0, foretold=True))
    costs = reckoning.costs()["hold"]
    assert (costs.need_us, costs.spread_us) == (LEVELS["hold"].need_us + 25, 0)
    assert (costs.wake_us, costs.wake_most_us) == (65, 225)
    clock = costs.of(WakeKind.CLOCK)
    assert (clock.need_us, clock.lead_us) == (costs.need_us, costs.early_us)
    assert costs.of(WakeKind.SOCKET_READ) == costs


@pytest.mark.parametrize(
    ("level", "launch_us", "hidden_us", "waste_us"),
    [("hold", 350, 200, 145), ("hold", 120, 115, 0), ("hold", 0, None, 795), ("reserve", 350, 5, 345)],
)
def test_what_a_hold_hides_is_reckoned_by_its_costs(
    level: str, launch_us: int, hidden_us: float | None, waste_us: float
) -> None:
    """Its agent launches it 5 us after the bell; it gets the GPU when the other context is out, which nobody sees."""
    times = {"trigger_ns": 1, "begin_ns": 1_000_000, "ready_ns": 1_005_000, "end_ns": 2_000_000, "undone_ns": 2_000_000}
    one = record(**times, launch_ns=1_000_000 + launch_us * 1000 if launch_us else 0)
    found = Reckoning(LEVELS).reckoned(level, one)
    assert (found.hidden_us, found.waste_us) == (hidden_us, waste_us)
