"""The load of the next minutes, from the recent past: so that best-effort work is cut before a busy phase, not in it.

A linear quantile regression predicts the largest load within the horizon from the last windows and, where the load has
a rhythm, from the same phase of earlier periods.
"""

import warnings
from collections import deque

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import QuantileRegressor


Series = npt.NDArray[np.float64]

KEPT = 2_400  # windows: more than an hour
_LEAST = 90  # windows before anything is forecast
_ROWS = 300
_EVERY = 30  # windows between two fits
_RHYTHM = 0.4  # autocorrelation from which a period counts


class Forecast:
    """``horizon``: windows ahead; ``quantile``: how sure the forecast must be not to be exceeded."""

    def __init__(self, horizon: int = 30, quantile: float = 0.9) -> None:
        self.horizon, self.quantile = horizon, quantile
        self.period: int | None = None
        self._loads: deque[float] = deque(maxlen=KEPT)
        self._model: QuantileRegressor | None = None
        self._scale = 1.0
        self._due = 0

    def add(self, load: float) -> None:
        """Take the load of a window."""
        self._loads.append(load)
        self._due -= 1
        if len(self._loads) >= _LEAST + self.horizon and self._due <= 0:
            self._fit()
            self._due = _EVERY

    def predict(self) -> float | None:
        """Return the largest load that is to be expected within the horizon; None while too little is known."""
        if self._model is None:
            return None
        series = np.array(self._loads) / self._scale
        found = float(self._model.predict([self._features(series, len(series) - 1)])[0])
        return max(found, 0.0) * self._scale

    def _fit(self) -> None:
        series = np.array(self._loads)
        self._scale = max(float(series.mean()), 1e-9)
        series = series / self._scale
        self.period = _period(series, 2 * self.horizon // 3)
        first = max(self._reach(), 1)
        ends = np.arange(first, len(series) - self.horizon)
        if len(ends) < 30:
            return
        ends = ends[:: max(1, len(ends) // _ROWS)]
        rows = np.array([self._features(series, int(end)) for end in ends])
        targets = np.array([series[end + 1 : end + 1 + self.horizon].max() for end in ends])
        model = QuantileRegressor(quantile=self.quantile, alpha=1e-3, solver="highs")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit that does not converge is used as it is, and renewed soon
            self._model = model.fit(rows, targets)

    def _reach(self) -> int:
        return max(60, self.period or 0)

    def _features(self, series: Series, end: int) -> Series:
        """What is known at window ``end``."""
        now = [series[end], series[max(0, end - 4) : end + 1].mean(), series[max(0, end - 9) : end + 1].max()]
        now.append(series[max(0, end - 59) : end + 1].mean())
        if self.period:
            start = end + 1 - self.period  # the horizon's windows, one period ago
            past = series[max(0, start) : max(1, start + self.horizon)]
            now += [past.max(), past.mean()]
        return np.array(now)


def _period(series: Series, shortest: int) -> int | None:
    """The lag of the highest autocorrelation beyond ``shortest``; None without a clear one, seen at least twice."""
    centred = series - series.mean()
    power = float(centred @ centred)
    longest = len(series) // 2
    if power <= 1e-12 or longest <= shortest:
        return None
    size = 1 << (2 * len(series) - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    correlation = np.fft.irfft(spectrum * np.conj(spectrum), size)[: longest + 1] / power
    lags = np.arange(longest + 1)
    correlation *= len(series) / (len(series) - lags)  # longer lags have fewer pairs
    lag = shortest + int(np.argmax(correlation[shortest:]))
    rises = 0 < lag < longest and correlation[lag] >= correlation[lag - 1]
    return lag if rises and correlation[lag] > _RHYTHM else None
