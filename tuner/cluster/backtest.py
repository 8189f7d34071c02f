"""How good a forecast was on a known demand series: pinball loss, coverage, reserve, hour by hour as it would have
run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gpsched.tuner.cluster.errors import HistoryError, UnknownNameError
from gpsched.tuner.cluster.forecast import KEEP_H, ForecastSettings, Matrix, QuantileForecaster, future_peaks
from gpsched.tuner.cluster.linear import AHEAD_H, SEQUENCE_H, DecompositionLinear


METHODS = ("boosting", "linear", "last-value")


@dataclass(frozen=True)
class Score:
    """One method on one series and horizon. ``pinball`` and ``reserve`` (mean of forecast less actual peak) in GPUs."""

    method: str
    series: str
    hours: int
    pinball: float
    pinball_share: float
    coverage: float
    reserve: float
    steps: int


@dataclass(frozen=True)
class Backtest:
    """Scores, and for plots ``forecasts[method][h]`` and ``actual[h]``: [series, steps]."""

    names: list[str]
    first_hour: int
    scores: list[Score]
    forecasts: dict[str, dict[int, Matrix]]
    actual: dict[int, Matrix]


def backtest(
    series: Mapping[str, list[float]],
    train_h: int,
    test_h: int,
    methods: tuple[str, ...] = METHODS,
    settings: ForecastSettings | None = None,
    progress: Callable[[float], None] | None = None,
) -> Backtest:
    """Forecast each hour after ``train_h`` from the hours up to it; HistoryError when the series are too short.

    Every series is forecast on its own; to score a pool, give its total as a series.
    """
    settings = settings or ForecastSettings()
    for method in methods:
        if method not in METHODS:
            raise UnknownNameError("method", method, list(METHODS))
    names = list(series)
    history = np.array([series[name] for name in names])
    longest = max(settings.horizons)
    if history.ndim != 2 or history.shape[1] < train_h + longest + 2:
        raise HistoryError(history.shape[-1], train_h + longest + 2)
    last = min(train_h + test_h, history.shape[1] - longest)
    steps = range(train_h - 1, last - 1)
    actual = {hours: future_peaks(history, hours)[:, list(steps)] for hours in settings.horizons}
    forecasts: dict[str, dict[int, Matrix]] = {}
    for index, method in enumerate(methods):
        forecasts[method] = _run(method, names, history, steps, settings, _part(progress, index, len(methods)))
    scores = [
        _score(method, name, hours, forecasts[method][hours][row], actual[hours][row], settings.level)
        for method in methods
        for hours in settings.horizons
        for row, name in enumerate(names)
    ]
    return Backtest(names, train_h, scores, forecasts, actual)


def _part(progress: Callable[[float], None] | None, index: int, count: int) -> Callable[[float], None]:
    return lambda share: progress((index + share) / count) if progress else None


def _run(
    method: str,
    names: list[str],
    history: Matrix,
    steps: range,
    settings: ForecastSettings,
    progress: Callable[[float], None],
) -> dict[int, Matrix]:
    out = {hours: np.empty((len(names), len(steps))) for hours in settings.horizons}
    boosting = QuantileForecaster(settings)
    linear = [DecompositionLinear() for _ in names]
    for column, end in enumerate(steps):
        past = history[:, max(0, end + 1 - KEEP_H) : end + 1]
        if method == "boosting":
            rows = boosting.step(names, past, end)
        elif method == "linear":
            rows = _linear_step(linear, past, end, column % settings.retrain_h == 0, settings)
        else:
            rows = _last_value(past, settings)
        for index, hours in enumerate(settings.horizons):
            out[hours][:, column] = rows[:, index]
        progress((column + 1) / len(steps))
    return out


def _linear_step(
    models: list[DecompositionLinear], past: Matrix, end: int, fit: bool, settings: ForecastSettings
) -> Matrix:
    """Each series alone: the maximum over the hours of their Gaussian quantiles, as GFS uses them."""
    rows = []
    for row, model in enumerate(models):
        one = past[row : row + 1]
        if fit:
            model.fit(one, end)
        quantiles = model.quantile(one[:, -SEQUENCE_H:], end, settings.level)
        rows.append([quantiles[: min(hours, AHEAD_H)].max() for hours in settings.horizons])
    return np.array(rows)


def _last_value(past: Matrix, settings: ForecastSettings) -> Matrix:
    """Now plus the quantile of past changes."""
    recent = past[:, -672:]
    now = np.nan_to_num(recent[:, -1:])
    columns = []
    for hours in settings.horizons:
        change = future_peaks(recent, hours) - recent
        known = np.where(np.all(np.isnan(change), axis=1, keepdims=True), 0.0, change)
        columns.append(now[:, 0] + np.nanquantile(known, settings.level, axis=1))
    return np.stack(columns, axis=1)


def _score(method: str, name: str, hours: int, forecast: Matrix, actual: Matrix, level: float) -> Score:
    known = ~np.isnan(actual)
    error = actual[known] - forecast[known]
    count = int(known.sum())
    if not count:
        return Score(method, name, hours, 0.0, 0.0, 0.0, 0.0, 0)
    pinball = float(np.maximum(level * error, (level - 1.0) * error).mean())
    mean = float(actual[known].mean())
    covered, reserve = float((error <= 0).mean()), float(-error.mean())
    return Score(method, name, hours, pinball, pinball / max(mean, 1e-9), covered, reserve, count)
