"""A level that makes bursts longer is left out, and tried again ever more rarely."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.model import Level
from gpsched.adaptive.outcomes import Outcomes


RESERVING: list[Level] = ["reserve", "hold"]


def feed(outcomes: Outcomes, level: Level, length_us: float, count: int = 64, now_s: float = 0.0) -> int:
    return sum(bool(outcomes.ended(level, length_us, now_s)) for _ in range(count))


def disprove(outcomes: Outcomes, level: Level, length_us: float, without_us: float, now_s: float = 0.0) -> None:
    """Bursts are longer, a few without the level are looked at, and bursts with it are longer than these."""
    assert feed(outcomes, level, length_us, count=32, now_s=now_s) == 1
    assert outcomes.disproved(now_s).keys() == set(RESERVING)
    assert feed(outcomes, "timeslice", without_us, count=16, now_s=now_s) == 1
    assert level not in outcomes.disproved(now_s)
    assert feed(outcomes, level, length_us, count=32, now_s=now_s) == 1


def test_a_level_that_makes_bursts_longer_is_left_out_for_ever_longer() -> None:
    outcomes = Outcomes()
    feed(outcomes, "timeslice", 2600.0)
    assert feed(outcomes, "hold", 2450.0) == 0
    disprove(outcomes, "reserve", 2800.0, 2600.0)
    assert outcomes.disproved(59.0).keys() == {"reserve"}
    assert not outcomes.disproved(61.0)
    disprove(outcomes, "reserve", 2800.0, 2600.0, now_s=61.0)
    assert outcomes.disproved(61.0 + 119.0).keys() == {"reserve"}
    assert not outcomes.disproved(61.0 + 121.0)


@pytest.mark.parametrize("level", RESERVING)
def test_a_level_is_not_to_blame_for_bursts_that_became_longer(level: Level) -> None:
    """A PyTorch service that launches one by one, whose host sets its pace, lost both its levels on an H200."""
    outcomes = Outcomes()
    feed(outcomes, "timeslice", 12_000.0, count=18)
    assert feed(outcomes, level, 12_500.0, count=32) == 1
    assert feed(outcomes, "timeslice", 12_500.0, count=16) == 1
    assert feed(outcomes, level, 12_500.0, count=500) == 0
    assert not outcomes.disproved(0.0)


def test_who_was_suspected_once_is_not_condemned_by_that_much_later() -> None:
    outcomes = Outcomes()
    feed(outcomes, "timeslice", 100.0)
    feed(outcomes, "hold", 200.0, count=32)
    feed(outcomes, "timeslice", 200.0, count=16)
    assert feed(outcomes, "hold", 200.0, count=64) == 0
    assert feed(outcomes, "hold", 300.0, count=33) == 1
    assert feed(outcomes, "timeslice", 300.0, count=16) == 1
    assert feed(outcomes, "hold", 300.0, count=64) == 0
    assert not outcomes.disproved(0.0)


def test_nothing_is_judged_without_bursts_to_compare_with() -> None:
    outcomes = Outcomes()
    assert feed(outcomes, "hold", 1e6) == 0
    feed(outcomes, "timeslice", 100.0, count=15)
    assert feed(outcomes, "hold", 1e6) == 0


@given(st.lists(st.floats(100.0, 10_000.0), min_size=16, max_size=64), st.sampled_from(RESERVING))
def test_a_level_that_changes_nothing_is_kept(lengths: list[float], level: Level) -> None:
    outcomes = Outcomes()
    for length_us in lengths * 2:
        outcomes.ended("timeslice", length_us, 0.0)
    assert not any(outcomes.ended(level, min(lengths), 0.0) for _ in range(200))
    assert not outcomes.disproved(0.0)


@pytest.mark.parametrize("rounds", [20])
def test_the_pause_is_at_most_an_hour(rounds: int) -> None:
    outcomes, now_s = Outcomes(), 0.0
    feed(outcomes, "timeslice", 100.0)
    for _ in range(rounds):
        disprove(outcomes, "hold", 900.0, 100.0, now_s)
        now_s += 3601.0
        assert not outcomes.disproved(now_s)
