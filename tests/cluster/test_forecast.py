"""The forecast: coverage, drift, holes, new tenants, cold start."""

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.tuner.cluster.backtest import backtest
from gpsched.tuner.cluster.demand import TOTAL, DemandRecorder, hourly_peaks
from gpsched.tuner.cluster.errors import HistoryError, UnknownNameError
from gpsched.tuner.cluster.forecast import ForecastSettings, QuantileForecaster, future_peaks
from gpsched.tuner.cluster.linear import DecompositionLinear
from gpsched.tuner.cluster.model import HOUR_S, Job, JobClass
from gpsched.tuner.cluster.traces import read_helios_demand, read_model_demand


DATA = Path(__file__).parent / "data"


def demand(hours: int, rows: int = 3, seed: int = 0, noise: float = 5.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    base = 100 + 30 * np.sin(2 * np.pi * np.arange(hours) / 24)
    return np.maximum(
        0.0, base + rng.normal(0, noise, (rows, hours)).cumsum(axis=1) * 0.3 + rng.normal(0, noise, (rows, hours))
    )


def coverage(history: np.ndarray, start: int, forecaster: QuantileForecaster) -> float:
    keys = list(range(len(history)))
    hits = []
    for clock in range(start, history.shape[1] - 4):
        rows = forecaster.step(keys, history[:, : clock + 1], clock)
        for index, hours in enumerate((1, 2, 4)):
            hits.append(rows[:, index] >= future_peaks(history, hours)[:, clock])
        assert (np.diff(rows, axis=1) >= 0).all(), "a longer horizon has a smaller peak"
    return float(np.mean(hits))


def test_coverage_is_near_the_level() -> None:
    assert 0.84 < coverage(demand(700), 400, QuantileForecaster()) < 0.96


def test_coverage_holds_when_the_data_drift() -> None:
    """After training the noise triples: the adaptive offset must follow, a fixed one must not."""
    calm, rough = demand(500, seed=1), demand(300, seed=2, noise=15.0)
    history = np.concatenate([calm, rough], axis=1)
    moving = coverage(history, 480, QuantileForecaster(ForecastSettings(retrain_h=10_000)))
    fixed = coverage(history, 480, QuantileForecaster(ForecastSettings(retrain_h=10_000, rate=0.0)))
    assert moving > fixed + 0.05
    assert moving > 0.80


def test_better_than_the_last_value_and_the_linear_model_on_real_demand() -> None:
    found = backtest(read_model_demand(DATA / "demand_by_model_excerpt.csv"), 250, 140)
    share = {
        method: np.mean([one.pinball_share for one in found.scores if one.method == method and one.hours == 1])
        for method in ("boosting", "linear", "last-value")
    }
    assert share["boosting"] < share["last-value"]
    assert share["boosting"] < share["linear"]


def test_missing_hours_and_new_tenants() -> None:
    history = demand(400, rows=4)
    history[0, 200:230] = np.nan
    history[1, -1] = np.nan
    history[2, :390] = np.nan  # a tenant ten hours old
    history[3] = np.nan  # a tenant without any value
    forecaster = QuantileForecaster()
    rows = forecaster.step(list("abcd"), history, 399)
    assert rows.shape == (4, 3)
    assert np.isfinite(rows).all()
    assert (rows >= 0).all()
    rows = forecaster.step(list("abcde"), np.vstack([history, demand(400, rows=1)]), 400)
    assert np.isfinite(rows).all()


@pytest.mark.parametrize("hours", [0, 1, 2, 5, 30])
def test_cold_start_gives_a_cautious_guess(hours: int) -> None:
    history = demand(hours) if hours else np.empty((3, 0))
    rows = QuantileForecaster().step([1, 2, 3], history, max(0, hours - 1))
    assert np.isfinite(rows).all()
    if hours:
        assert (rows >= history[:, -1:] * 0.9).all()


def test_a_step_for_a_hundred_tenants_is_quick() -> None:
    """A step between two trainings takes less than the training it follows (seconds are in the docs)."""
    history = demand(700, rows=100)
    forecaster = QuantileForecaster()
    begun = time.process_time()
    forecaster.step(list(range(100)), history[:, :-1], 698)
    training = time.process_time() - begun
    begun = time.process_time()
    forecaster.step(list(range(100)), history, 699)
    assert time.process_time() - begun < training


def test_linear_model_learns_a_daily_wave() -> None:
    history = demand(600, rows=2, noise=0.5)
    model = DecompositionLinear()
    model.fit(history[:, :500], 499)
    middle = model.quantile(history[:, :550], 549, 0.5)
    assert middle == pytest.approx(history[:, 550:554].sum(axis=0), rel=0.1)
    assert (model.quantile(history[:, :550], 549, 0.9) > middle).all()


def test_backtest_refuses_short_series_and_unknown_methods() -> None:
    with pytest.raises(HistoryError, match="100 hours"):
        backtest({"a": [1.0] * 100}, 200, 10)
    with pytest.raises(UnknownNameError, match="boosting"):
        backtest({"a": [1.0] * 300}, 200, 10, ("magic",))


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 9_000), st.integers(1, 8)), min_size=1, max_size=20))
def test_recorder_and_hourly_peaks_agree(spans: list[tuple[int, int, int]]) -> None:
    """Event by event and in one go, the same hourly maxima come out ."""
    jobs = [Job(str(i), "t", "m", JobClass.HP, 1, g, s + 0.5, d + 0.25) for i, (s, d, g) in enumerate(spans)]
    events = sorted(
        [(one.submit_s, one.gpus) for one in jobs] + [(one.submit_s + one.duration_s, -one.gpus) for one in jobs]
    )
    recorder = DemandRecorder()
    for time_s, change in events:
        recorder.roll(time_s)
        recorder.add("m", "t", change)
    recorder.roll(10 * HOUR_S)
    peaks = hourly_peaks(jobs, 0.0, 10)
    assert np.nan_to_num(recorder.matrix([("m", TOTAL)], 10))[0].tolist() == peaks


def test_helios_excerpt_reads() -> None:
    series, capacity = read_helios_demand(DATA / "helios_excerpt.csv")
    assert len(series) == 3
    assert all(len(values) == 240 for values in series.values())
    assert capacity > 0
