"""Upper quantiles of the maximum HP demand over the next 1, 2 and 4 hours.

One gradient-boosting quantile model per horizon, pooled over all series (a series is one GPU model and tenant, or a
GPU model's total), on the CHANGE from now divided by the series' scale; an offset per series and horizon then moves
with every miss so that the coverage holds when the data drift. A total is forecast as a series of its own: quantiles
of tenants do not add. Demand is in GPUs, time in hours; NaN marks a missing hour.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from gpsched.tuner.cluster.quota import GUARANTEES_H


Matrix = NDArray[np.float64]

LAGS = (1, 2, 3, 4, 6, 12, 24, 48, 168)
WINDOWS = (6, 24, 168)
MIN_ROWS = 200  # (series, hour) pairs below which no model is fitted
KEEP_H = 1344  # hours of history used for fitting: eight weeks


@dataclass(frozen=True)
class ForecastSettings:
    """``level`` is the quantile; ``rate`` how fast the offset follows misses, in shares of a typical error."""

    level: float = 0.9
    horizons: tuple[int, ...] = GUARANTEES_H
    rate: float = 0.1
    iterations: int = 40
    retrain_h: int = 24


def series_scale(history: Matrix) -> NDArray[np.float64]:
    """What each series (row) is divided by: its largest value, at least 1 GPU."""
    peak = np.nanmax(np.where(np.isnan(history), 0.0, history), axis=1, initial=0.0)
    scale: NDArray[np.float64] = np.maximum(peak, 1.0)
    return scale


def features(history: Matrix, scale: NDArray[np.float64], clock: int) -> NDArray[np.float64]:
    """What is known at the end of each hour: [series, hours, features], NaN where unknown.

    ``clock`` is the number of the last column's hour since a midnight that began a week.
    """
    level = history / scale[:, None]
    columns = [level, *(level - _shift(level, lag) for lag in LAGS)]
    steps = level - _shift(level, 1)
    for width in WINDOWS:
        mean, count = _trailing_mean(level, width)
        peak = maximum_filter1d(
            np.where(np.isnan(level), -np.inf, level), width, axis=1, origin=(width - 1) // 2, mode="nearest"
        )
        columns += [np.where(count > 0, peak, np.nan) - level, mean - level]
        columns.append(np.sqrt(_trailing_mean(steps**2, width)[0]))
    hours = clock - np.arange(level.shape[1])[::-1]
    day = 2 * np.pi * (hours % 24) / 24
    columns += [np.broadcast_to(row, level.shape) for row in (np.sin(day), np.cos(day), (hours // 24) % 7)]
    columns.append(np.broadcast_to(np.log(scale)[:, None], level.shape))
    return np.stack(columns, axis=2)


def _shift(values: Matrix, lag: int) -> Matrix:
    out = np.full_like(values, np.nan)
    out[:, lag:] = values[:, : max(0, values.shape[1] - lag)]
    return out


def _trailing_mean(values: Matrix, width: int) -> tuple[Matrix, Matrix]:
    """Mean and count of the known values among the last ``width`` up to each column; NaN where none is known."""
    known = ~np.isnan(values)
    sums = np.pad(np.cumsum(np.where(known, values, 0.0), axis=1), ((0, 0), (width, 0)))
    counts = np.pad(np.cumsum(known, axis=1), ((0, 0), (width, 0))).astype(float)
    total, count = sums[:, width:] - sums[:, :-width], counts[:, width:] - counts[:, :-width]
    return np.where(count > 0, total / np.maximum(count, 1.0), np.nan), count


def future_peaks(history: Matrix, hours: int) -> Matrix:
    """Maximum over the ``hours`` after each column; NaN when one of them is missing or not there yet."""
    out = np.full_like(history, np.nan)
    width = history.shape[1] - hours
    if width > 0:
        out[:, :width] = np.max([history[:, 1 + ahead : 1 + ahead + width] for ahead in range(hours)], axis=0)
    return out


@cache
def _openmp() -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


def _one_thread() -> Any:
    """Context in which OpenMP uses one thread: on small data its threads spin and wait for each other."""
    return _openmp().limit(limits=1, user_api="openmp")


class QuantileForecaster:
    """Fits once a day, predicts every hour; call `step` once per closed hour with the history up to then."""

    def __init__(self, settings: ForecastSettings | None = None) -> None:
        self.settings = settings or ForecastSettings()
        self._models: dict[int, Any] = {}
        self._fitted_at = -(10**9)
        self._offsets: dict[int, dict[Any, float]] = {h: {} for h in self.settings.horizons}
        self._spread: dict[Any, float] = {}  # (horizon, key) -> typical error
        self._pending: list[_Pending] = []

    def step(self, keys: Sequence[Any], history: Matrix, clock: int) -> Matrix:
        """Forecast for each key (row of ``history``, last column = the hour just closed): [series, horizons], GPUs.

        ``clock`` is the number of the closed hour. Rows never decrease with the horizon. Never fails for want of
        data: a new series or a short history gets a cautious guess from what there is.
        """
        self._score(keys, history, clock)
        if clock - self._fitted_at >= self.settings.retrain_h:
            self.fit(history[:, -KEEP_H:], clock)
        scale = series_scale(history)
        last = history.shape[1] - 1
        now = _last_known(history)
        if last >= 0 and self._models:
            recent = _filled_now(history[:, -WINDOWS[-1] - 1 :], now)
            table = features(recent, scale, clock)[:, -1]
        columns = []
        for hours in self.settings.horizons:
            if hours in self._models:
                with _one_thread():
                    raw = self._models[hours].predict(table)
            else:
                raw = _cold_guess(history, scale, hours, self.settings.level)
            offset = np.array([self._offsets[hours].get(key, 0.0) for key in keys])
            self._pending.append(
                _Pending(clock, hours, dict(zip(keys, zip(now, scale, raw, strict=True), strict=True)))
            )
            columns.append(now + scale * (raw + offset))
        result: Matrix = np.maximum.accumulate(np.maximum(np.stack(columns, axis=1), 0.0), axis=1)
        return result

    def fit(self, history: Matrix, clock: int) -> None:
        """Fit one model per horizon on all hours of ``history``; leaves the old ones when there is too little."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        scale = series_scale(history)
        width = history.shape[1]
        if width < 2:
            return
        start = min(24, width // 2)
        table = features(history, scale, clock)[:, start:].reshape(history.shape[0] * (width - start), -1)
        for hours in self.settings.horizons:
            target = ((future_peaks(history, hours) - history) / scale[:, None])[:, start:].ravel()
            known = ~np.isnan(target)
            if known.sum() < MIN_ROWS:
                continue
            model = HistGradientBoostingRegressor(
                loss="quantile",
                quantile=self.settings.level,
                max_iter=self.settings.iterations,
                max_leaf_nodes=10,
                learning_rate=0.15,
                min_samples_leaf=20,
                max_bins=63,
                early_stopping=False,
                random_state=0,
            )
            with _one_thread():
                self._models[hours] = model.fit(table[known], target[known])
        self._fitted_at = clock

    def _score(self, keys: Sequence[Any], history: Matrix, clock: int) -> None:
        """Move each offset by the forecasts whose horizon has just ended (quantile tracking)."""
        row = {key: index for index, key in enumerate(keys)}
        due = [one for one in self._pending if one.clock + one.hours <= clock]
        self._pending = [one for one in self._pending if one.clock + one.hours > clock]
        for one in due:
            offsets = self._offsets[one.hours]
            end = history.shape[1] - 1 - (clock - one.clock)
            window = history[:, end + 1 : end + 1 + one.hours] if end >= 0 else history[:, :0]
            seen = window.max(axis=1) if window.shape[1] == one.hours else np.full(len(keys), np.nan)
            for key, (now, scale, raw) in one.guesses.items():
                actual = seen[row[key]] if key in row else np.nan
                if np.isnan(actual) or np.isnan(now):
                    continue
                error = (actual - now) / scale - raw
                # A step of fixed size, whatever the error's: one in proportion to it would settle at an expectile.
                spread = 0.95 * self._spread.get((one.hours, key), abs(error)) + 0.05 * abs(error)
                self._spread[one.hours, key] = spread
                offset = offsets.get(key, 0.0)
                share = self.settings.level if error > offset else self.settings.level - 1.0
                offsets[key] = offset + self.settings.rate * max(spread, 0.002) * share


@dataclass
class _Pending:
    clock: int
    hours: int
    guesses: dict[Any, tuple[float, float, float]] = field(default_factory=dict)


def _last_known(history: Matrix) -> NDArray[np.float64]:
    """The latest value of each row that is not missing; 0 for a row without any."""
    out = np.zeros(history.shape[0])
    for row, values in enumerate(history):
        known = np.flatnonzero(~np.isnan(values))
        out[row] = values[known[-1]] if known.size else 0.0
    return out


def _filled_now(history: Matrix, now: NDArray[np.float64]) -> Matrix:
    filled = history.copy()
    filled[:, -1] = np.where(np.isnan(filled[:, -1]), now, filled[:, -1])
    return filled


def _cold_guess(history: Matrix, scale: NDArray[np.float64], hours: int, level: float) -> NDArray[np.float64]:
    """The change's own past quantile (in units of scale) where a day is known, else a tenth of the scale."""
    guess = np.full(history.shape[0], 0.1)
    for row, values in enumerate((future_peaks(history, hours) - history) / scale[:, None]):
        known = values[~np.isnan(values)]
        if known.size >= 24:
            guess[row] = np.quantile(known, level)
    return guess
