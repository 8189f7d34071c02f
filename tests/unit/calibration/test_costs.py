"""What measured figures mean for the levels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.calibration.costs import to_costs
from gpsched.adaptive.calibration.measure import _Bench
from gpsched.adaptive.calibration.model import Figure
from gpsched.adaptive.hints.costs import LEVELS
from tests.unit.calibration.samples import calibration, figure


def test_the_h200s_figures_give_the_h200s_costs() -> None:
    costs = to_costs(calibration())
    reserve, hold = costs["reserve"], costs["hold"]
    assert costs["timeslice"] == LEVELS["timeslice"]
    assert hold == LEVELS["hold"]
    assert (reserve.switch_us, reserve.residual_us, reserve.need_us) == (190.0, 75.0, 700.0)
    assert reserve.late_us == pytest.approx(LEVELS["reserve"].late_us, rel=0.01)
    assert reserve.control_us == 640.0


def test_the_delay_is_the_one_that_was_measured_at_that_margin() -> None:
    reserve = to_costs(calibration(late=345.0, margin=200.0))["reserve"]
    added = reserve.switch_us - float(reserve.hidden(200.0))
    assert added == pytest.approx(345.0, abs=0.1)


def test_less_than_the_margin_that_was_enough_promises_nothing() -> None:
    """As an H200 measured it: 337 us ahead were as good as 1000, which tells nothing of a copy 40 us ahead."""
    reserve = to_costs(calibration(switch=181.0, early=80.0, late=77.0, margin=337.0))["reserve"]
    assert float(reserve.hidden(397.0)) == pytest.approx(101.0, abs=1.0)
    assert float(reserve.hidden(40.0)) < 0.0


def test_a_margin_that_was_enough_for_half_is_not_enough_for_the_slowest_controls() -> None:
    """On an H200 370 us were enough by the median; of bursts 400 us ahead one in ten was late, of 500 us none."""
    reserve = to_costs(calibration(switch=181.0, early=80.0, late=77.0, margin=337.0))["reserve"]
    assert reserve.need_us == 397.0  # disabling takes 640 to 700
    assert to_costs(calibration(early=80.0, late=77.0, margin=690.0))["reserve"].need_us == 700.0


def test_costs_are_in_the_daemons_time() -> None:
    once, five = to_costs(calibration()), to_costs(calibration(scale=5.0))
    for level, costs in once.items():
        assert five[level].switch_us == pytest.approx(5 * costs.switch_us)
        assert five[level].need_us == pytest.approx(5 * costs.need_us)
        assert five[level].waste_budget == costs.waste_budget


def test_what_the_driver_refused_keeps_its_default() -> None:
    reserve = to_costs(calibration(reserved=False, switch=100.0))["reserve"]
    assert reserve.switch_us == 100.0
    assert reserve.need_us == LEVELS["reserve"].need_us


us = st.floats(min_value=0.0, max_value=5000.0)


@given(switch=us, early=us, late=us, margin=st.floats(min_value=-5000.0, max_value=5000.0))
def test_no_figure_makes_costs_that_promise_more_than_a_switch(
    switch: float, early: float, late: float, margin: float
) -> None:
    for costs in to_costs(calibration(switch=switch, early=early, late=late, margin=margin)).values():
        assert 0.0 <= costs.residual_us <= costs.switch_us
        assert costs.late_us >= 0.0
        assert costs.need_us > 0.0
        assert float(costs.hidden(1e6)) <= costs.switch_us


@given(st.lists(us, min_size=2, max_size=40))
def test_a_figure_lies_within_its_samples(samples: list[float]) -> None:
    found = Figure.of(samples)
    assert min(samples) - 0.1 <= found.p10_us <= found.median_us <= found.p90_us <= max(samples) + 0.1
    assert found.samples == len(samples)


@pytest.mark.parametrize(
    ("delays_us", "margin_us"), [((5.0, 150.0), 450.0), ((90.0, 150.0), 300.0), ((90.0, 5.0), 450.0)]
)
def test_the_shortest_lead_that_is_enough_is_told_or_what_a_shorter_one_costs(
    monkeypatch: pytest.MonkeyPatch, delays_us: tuple[float, float], margin_us: float
) -> None:
    bench = object.__new__(_Bench)
    delays = dict(zip((450.0, 300.0), delays_us, strict=True))
    monkeypatch.setattr(bench, "bursts", lambda *, disable_before: figure(400.0))
    monkeypatch.setattr(bench, "_late_burst", lambda lead_us: (400.0 + delays[lead_us], lead_us))
    reserved = bench.reserved_bursts(figure(1000.0))
    assert reserved is not None
    assert reserved.late_margin_us == margin_us
    assert reserved.delay_us == delays[margin_us]
