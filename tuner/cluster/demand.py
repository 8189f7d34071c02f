"""HP demand over time: GPUs that HP jobs run on or wait for, by GPU model and tenant, as hourly maxima."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpsched.tuner.cluster.model import HOUR_S, Job


Key = tuple[str, str]  # (GPU model, tenant); tenant "*" is the sum over tenants
TOTAL = "*"


class DemandRecorder:
    """Keeps the current demand and closes an hour at a time; hours in which a tenant was unknown are NaN."""

    def __init__(self, history: Mapping[Key, list[float]] | None = None) -> None:
        self.series: dict[Key, list[float]] = {key: list(values) for key, values in (history or {}).items()}
        self.hours = max(map(len, self.series.values()), default=0)
        self._now: dict[Key, int] = {}
        self._peak: dict[Key, int] = {}
        self._next_s = HOUR_S
        self.hours_closed = 0  # since construction

    def add(self, model: str, tenant: str, gpus: int) -> None:
        """Change the demand of a tenant by ``gpus`` (negative: less)."""
        for key in ((model, tenant), (model, TOTAL)):
            now = self._now.get(key, 0) + gpus
            self._now[key] = now
            if now > self._peak.get(key, 0):
                self._peak[key] = now

    def now(self, model: str, tenant: str = TOTAL) -> int:
        """GPUs demanded at this moment."""
        return self._now.get((model, tenant), 0)

    def roll(self, now_s: float) -> bool:
        """Close every hour that ended by ``now_s``; returns whether any did."""
        closed = False
        while self._next_s <= now_s:
            self._close()
            self._next_s += HOUR_S
            closed = True
        return closed

    def _close(self) -> None:
        for key, peak in self._peak.items():
            if key not in self.series:
                self.series[key] = [float("nan")] * self.hours
            self.series[key].append(float(peak))
        for key, values in self.series.items():
            if key not in self._peak:
                values.append(0.0)
        self.hours += 1
        self.hours_closed += 1
        self._peak = dict(self._now)

    def matrix(self, keys: list[Key], last: int) -> NDArray[np.float64]:
        """The last ``last`` hours of the series, one row a key, padded in front with NaN."""
        out = np.full((len(keys), min(last, self.hours)), np.nan)
        for row, key in enumerate(keys):
            values = self.series.get(key, [])[-out.shape[1] :] if out.shape[1] else []
            out[row, out.shape[1] - len(values) :] = values
        return out


def hourly_peaks(jobs: list[Job], start_s: float, hours: int) -> list[float]:
    """The maximum, in each hour from ``start_s``, of the GPUs of jobs that run from submission for their duration."""
    jobs = [job for job in jobs if job.submit_s + job.duration_s > start_s]
    times = np.array([t for job in jobs for t in (max(job.submit_s, start_s), job.submit_s + job.duration_s)])
    change = np.array([d for job in jobs for d in (job.total_gpus, -job.total_gpus)])
    order = np.argsort(times, kind="stable")
    level = np.cumsum(change[order])
    hour = np.floor((times[order] - start_s) / HOUR_S).astype(int)
    peaks = np.zeros(hours)
    inside = hour < hours
    np.maximum.at(peaks, hour[inside], level[inside])
    carried = np.zeros(hours + 1)
    for index, value in zip(hour[inside], level[inside], strict=True):
        carried[index + 1] = value  # the last change of an hour is what the next one starts with
    present = np.zeros(hours + 1, dtype=bool)
    present[hour[inside] + 1] = True
    last = np.maximum.accumulate(np.where(present, np.arange(hours + 1), 0))
    found: list[float] = np.maximum(peaks, carried[last][:hours]).tolist()
    return found
