"""Figures of latency samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.bench import figures, outcome, stats
from gpsched.bench.scenario import Lc


LATENCIES = st.lists(st.floats(min_value=1.0, max_value=1e6), min_size=1, max_size=200)


def test_summary_of_known_samples() -> None:
    summary = stats.summarize(range(1, 101))
    assert (summary.count, summary.mean, summary.p50, summary.max) == (100, 50.5, 50.5, 100)
    assert summary.p90 == pytest.approx(90.1)
    assert summary.p99 == pytest.approx(99.01)


def test_bootstrap_interval_covers_what_theory_says() -> None:
    samples = np.random.default_rng(7).normal(1000, 100, size=400)
    interval = stats.summarize(samples).mean_interval
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * 100 / 20, rel=0.25)
    assert interval.low < samples.mean() < interval.high


def test_ratio_interval_holds_the_ratio_and_excludes_one() -> None:
    generator = np.random.default_rng(3)
    interval = stats.mean_ratio_interval(generator.normal(500, 20, 200), generator.normal(1500, 60, 200))
    assert interval.low < 1 / 3 < interval.high < 0.4


@given(LATENCIES)
def test_figures_are_ordered(samples: list[float]) -> None:
    summary = stats.summarize(samples)
    assert min(samples) <= summary.p50 <= summary.p90 <= summary.p99 <= summary.max == max(samples)


@given(LATENCIES, st.integers(min_value=1, max_value=40))
def test_histogram_loses_no_sample(samples: list[float], bins: int) -> None:
    counts = stats.histogram(samples, stats.log_edges(samples, bins))
    assert len(counts) == bins
    assert sum(counts) == len(samples)


def test_histogram_puts_samples_outside_into_the_end_bins() -> None:
    edges = stats.log_edges([10.0, 1000.0], 2)
    assert stats.histogram([1.0, 99.0, 101.0, 5000.0], edges) == [2, 2]


@pytest.mark.parametrize("function", [stats.summarize, lambda samples: stats.log_edges(samples, 3)])
def test_no_samples_is_an_error(function: object) -> None:
    with pytest.raises(ValueError, match="no samples"):
        function([])  # type: ignore[operator]


@pytest.mark.parametrize(("late_us", "share"), [(0.0, 1.0), (1e5, 0.5), (9e5, 0.1)])
def test_a_service_that_falls_behind_is_told_by_its_last_request(late_us: float, share: float) -> None:
    run = outcome.LcRun(latency_us=[500.0] * 10, scheduled_us=[500.0 + late_us * i / 9 for i in range(10)])
    block = outcome.Block(lc=[run], be=[], real_s=1.0)
    found = figures.lc_figures(0, "service", Lc(rate=100.0), 100.0, [block], [], None)
    assert found.kept_up == pytest.approx(share)
