"""The ladder: the level that hides most, within the waste budget, and steady under noise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.model import Level
from gpsched.adaptive.policy.levels import Prospect, choose_level, within


BUDGET = 0.01


def _prospects(reserve: float, hold: float | None = None, waste: float = 0.0) -> dict[str, Prospect]:
    found = {"reserve": Prospect(reserve, waste)}
    return found if hold is None else found | {"hold": Prospect(hold, waste)}


@pytest.mark.parametrize(
    ("reserve", "hold", "level"),
    [(0, None, "timeslice"), (115, None, "reserve"), (115, 170, "hold"), (115, 20, "reserve"), (-200, 9, "timeslice")],
)
def test_the_most_hidden_wins(reserve: float, hold: float | None, level: str) -> None:
    chosen, reason = choose_level(_prospects(reserve, hold), "timeslice", BUDGET)  # type: ignore[arg-type]
    assert chosen == level
    assert reason


def test_waste_above_the_budget_counts_as_impossible() -> None:
    prospects = {"reserve": Prospect(50, 0.001), "hold": Prospect(170, 0.02)}
    assert choose_level(prospects, "hold", BUDGET)[0] == "reserve"  # type: ignore[arg-type]


def test_a_level_at_the_edge_of_the_budget_does_not_come_and_go() -> None:
    prospects: dict[Level, Prospect] = {"reserve": Prospect(100, 0.0), "hold": Prospect(160, 0.011)}
    assert choose_level(prospects, "hold", BUDGET)[0] == "hold"
    assert choose_level(prospects, "timeslice", BUDGET)[0] == "reserve"


def test_no_level_available_is_timeslice() -> None:
    assert choose_level({}, "hold", BUDGET)[0] == "timeslice"


@given(st.floats(6, 19))
def test_a_level_is_entered_for_more_than_it_is_left_for(hidden: float) -> None:
    assert choose_level(_prospects(hidden), "timeslice", BUDGET)[0] == "timeslice"  # type: ignore[arg-type]
    assert choose_level(_prospects(hidden), "reserve", BUDGET)[0] == "reserve"  # type: ignore[arg-type]


@given(st.floats(100, 110), st.floats(100, 110))
def test_noise_does_not_switch_levels(reserve: float, hold: float) -> None:
    prospects = _prospects(reserve, hold)
    assert choose_level(prospects, "hold", BUDGET)[0] == "hold"  # type: ignore[arg-type]
    assert choose_level(prospects, "reserve", BUDGET)[0] == "reserve"  # type: ignore[arg-type]


def test_a_level_that_a_process_cannot_have_is_the_next_below() -> None:
    assert within("auto", ("reserve", "hold")) == ("reserve", "hold")
    assert within("reserve", ("reserve", "hold")) == ("reserve",)
    assert within("hold", ("reserve", "hold")) == ("hold",)
    assert within("hold", ("reserve",)) == ("reserve",)  # no agent was loaded into it
