"""The baseline forecast: a linear model in the manner of GFS's OrgLinear, fitted in closed form.

A moving average splits the last week into trend and rest; linear heads on both and on the calendar give the mean of
the demand in each of the next hours, and the residuals give sigma. Organizations' means and variances are added
(independence assumed), as in GFS. Differences from the authors' network: ridge regression in place of Adam, a week of
input in place of four, no attention.
"""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gpsched.tuner.cluster.forecast import Matrix, series_scale


SEQUENCE_H = 168
AVERAGE_H = 25
AHEAD_H = 4


class DecompositionLinear:
    """Fit on tenants' hourly demand (rows), then `quantile` of their sum for each of the next four hours."""

    def __init__(self, ridge: float = 10.0) -> None:
        self.ridge = ridge
        self._weights: Matrix | None = None
        self._sigma: NDArray[np.float64] = np.zeros(0)

    def fit(self, history: Matrix, clock: int) -> None:
        """Least squares over every window of ``history`` [tenants, hours]; too short a history leaves the model as it
        was."""
        values = np.nan_to_num(history)
        scale = series_scale(values)
        ends = range(SEQUENCE_H - 1, values.shape[1] - AHEAD_H, 3)
        if len(ends) < 10:
            return
        width = values.shape[1]
        inputs = np.concatenate([self._inputs(values, scale, end, clock - (width - 1 - end)) for end in ends])
        targets = np.concatenate([values[:, end + 1 : end + 1 + AHEAD_H] / scale[:, None] for end in ends])
        gram = inputs.T @ inputs + self.ridge * np.eye(inputs.shape[1])
        self._weights = np.linalg.solve(gram, inputs.T @ targets)
        residual = (targets - inputs @ self._weights).reshape(len(ends), values.shape[0], AHEAD_H)
        self._sigma = residual.std(axis=0)

    def quantile(self, history: Matrix, clock: int, level: float) -> NDArray[np.float64]:
        """Gaussian quantile of the sum over tenants, GPUs, for each of the next four hours."""
        values = np.nan_to_num(history)
        scale = series_scale(values)
        if self._weights is None or values.shape[1] < SEQUENCE_H:
            return np.full(AHEAD_H, values[:, -1].sum() if values.shape[1] else 0.0)
        mean = (self._inputs(values, scale, values.shape[1] - 1, clock) @ self._weights) * scale[:, None]
        sigma = np.zeros_like(mean)
        rows = min(len(self._sigma), len(mean))
        sigma[:rows] = self._sigma[:rows] * scale[:rows, None]
        total: NDArray[np.float64] = mean.sum(axis=0) + NormalDist().inv_cdf(level) * np.sqrt((sigma**2).sum(axis=0))
        return np.maximum(total, 0.0)

    @staticmethod
    def _inputs(values: Matrix, scale: NDArray[np.float64], end: int, clock: int) -> Matrix:
        window = values[:, end + 1 - SEQUENCE_H : end + 1] / scale[:, None]
        padded = np.pad(window, ((0, 0), (AVERAGE_H // 2, AVERAGE_H // 2)), mode="edge")
        sums = np.cumsum(np.pad(padded, ((0, 0), (1, 0))), axis=1)
        trend = (sums[:, AVERAGE_H:] - sums[:, :-AVERAGE_H]) / AVERAGE_H
        day = 2 * np.pi * (clock % 24) / 24
        calendar = [1.0, np.sin(day), np.cos(day), float((clock // 24) % 7 >= 5)]
        return np.concatenate([trend[:, ::6], window - trend, np.tile(calendar, (len(values), 1))], axis=1)
