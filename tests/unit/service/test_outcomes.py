"""A level that makes bursts longer is left out, and tried again ever more rarely."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.model import Level
from gpsched.adaptive.outcomes import Outcomes


RESERVING: list[Level] = ["reserve", "hold"]


def feed(outcomes: Outcomes, level: Level, length_us: float, count: int = 64, now_s: float = 0.0) -> int:
    return sum(outcomes.ended(level, length_us, now_s) for _ in range(count))


def test_a_level_that_makes_bursts_longer_is_left_out_for_ever_longer() -> None:
    outcomes = Outcomes()
    feed(outcomes, "timeslice", 2600.0)
    assert feed(outcomes, "hold", 2450.0) == 0
    assert feed(outcomes, "reserve", 2800.0, count=32) == 1
    assert outcomes.disproved(59.0).keys() == {"reserve"}
    assert not outcomes.disproved(61.0)
    assert feed(outcomes, "reserve", 2800.0, count=32, now_s=61.0) == 1
    assert outcomes.disproved(61.0 + 119.0).keys() == {"reserve"}
    assert not outcomes.disproved(61.0 + 121.0)


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
        assert feed(outcomes, "hold", 900.0, count=32, now_s=now_s) == 1
        now_s += 3601.0
        assert not outcomes.disproved(now_s)
