"""What the controller learns from what it sees: HP demand and its forecast, arrivals, and eta from what befell spot
jobs. Times are Unix seconds."""

import time
from collections.abc import Collection
from typing import Any

from gpsched.tuner.cluster.decide import hp_demand
from gpsched.tuner.cluster.demand import TOTAL, DemandRecorder, Key, hourly_peaks
from gpsched.tuner.cluster.forecast import ForecastSettings, QuantileForecaster
from gpsched.tuner.cluster.model import HOUR_S, Job, JobClass
from gpsched.tuner.cluster.quota import QuotaSettings, adjust_eta
from gpsched.tuner.cluster.reserve import ArrivalRates, Slots, slots_to_keep
from gpsched.tuner.cluster.slurm import PastJob
from gpsched.tuner.cluster.snapshot import Snapshot


HISTORY_H = 1344
FEEDBACK_EVERY_S = 300.0


class Learner:
    """Fed with every snapshot by `see`. ``forecast[model]`` is h -> upper quantile of HP demand, ``eta[model]`` the
    quota's feedback factor."""

    def __init__(self, past: dict[Key, list[float]], epoch_s: float, eta: dict[str, float]) -> None:
        self.forecast: dict[str, dict[int, float]] = {}
        self.eta = eta
        self._epoch_s = epoch_s
        self._demand = DemandRecorder(past)
        self._levels: dict[Key, int] = {}
        self._forecaster = QuantileForecaster(ForecastSettings(level=0.95))
        self._ended: list[tuple[float, str, bool]] = []  # (when a spot run ended, its GPU model, whether by eviction)
        self._running: dict[int, str] = {}  # spot run -> GPU model
        self._feedback_s = 0.0
        self._begin_s = time.time()
        self._arrivals: dict[str, ArrivalRates] = {}
        self._seen: set[int] = set()

    def see(self, shot: Snapshot, now_s: float, spot: Collection[str], evicted: Collection[int]) -> None:
        """Learn from the state of the cluster; ``spot`` names the spot QOS, ``evicted`` the jobs that we requeued."""
        self._count_arrivals(shot, now_s)
        self._record_demand(shot, now_s)
        running = {
            number: run.job.gpu_model
            for number, run in shot.runs.items()
            if run.nodes and shot.jobs[number].qos in spot
        }
        ended = self._running.keys() - running
        self._ended += [(now_s, self._running[number], number in evicted) for number in ended]
        self._running = running
        if now_s - self._feedback_s >= FEEDBACK_EVERY_S:
            self._feedback_s = now_s
            self._adjust(shot, now_s, spot)

    def keep(self, now_s: float, deviations: float) -> dict[str, list[Slots]]:
        """Slots that spot leaves to the HP jobs of the next hour, by GPU model."""
        expected = {model: rates.expected(now_s, HOUR_S) for model, rates in self._arrivals.items()}
        return {model: slots_to_keep(some, deviations) for model, some in expected.items()}

    def state(self) -> dict[str, Any]:
        """What a restart needs."""
        return {
            "eta": self.eta,
            "epoch_s": self._epoch_s + self._demand.hours_closed * HOUR_S,
            "demand": {"&&".join(key): values[-HISTORY_H:] for key, values in self._demand.series.items()},
        }

    def _count_arrivals(self, shot: Snapshot, now_s: float) -> None:
        """How often HP jobs come, by the GPUs that they want on a node; those from before our start do not count."""
        for number, run in shot.runs.items():
            if run.job.cls is JobClass.HP and number not in self._seen and run.job.submit_s >= self._begin_s:
                self._arrivals.setdefault(run.job.gpu_model, ArrivalRates(self._begin_s)).add(run.job.gpus, now_s)
        self._seen = set(shot.runs)

    def _record_demand(self, shot: Snapshot, now_s: float) -> None:
        closed = self._demand.roll(now_s - self._epoch_s)
        for model in shot.pools:
            seen = hp_demand(model, shot)
            for key in {key for key in self._levels if key[0] == model} | {(model, account) for account in seen}:
                level = seen.get(key[1], 0)
                self._demand.add(model, key[1], level - self._levels.get(key, 0))
                self._levels[key] = level
        if closed or not self.forecast:
            keys = [(model, TOTAL) for model in shot.pools]
            rows = self._forecaster.step(keys, self._demand.matrix(keys, HISTORY_H), self._demand.hours - 1)
            horizons = self._forecaster.settings.horizons
            self.forecast = {
                model: dict(zip(horizons, row.tolist(), strict=True))
                for (model, _), row in zip(keys, rows, strict=True)
            }

    def _adjust(self, shot: Snapshot, now_s: float, spot: Collection[str]) -> None:
        self._ended = [event for event in self._ended if event[0] > now_s - 4 * HOUR_S]
        waiting = [one for one in shot.jobs.values() if one.state == "PENDING" and one.qos in spot]
        for model in shot.pools:
            ended = [bad for _, where, bad in self._ended if where == model]
            oldest_s = min((one.submit_s for one in waiting if one.gpu_model == model), default=now_s)
            failed, kept = ended.count(True), ended.count(False)
            self.eta[model] = adjust_eta(self.eta.get(model, 1.0), failed, kept, now_s - oldest_s, QuotaSettings())


def past_demand(jobs: list[PastJob], until_s: float, hours: int) -> dict[tuple[str, str], list[float]]:
    """Hourly maxima by model and account, and in total, of the ``hours`` before ``until_s``, from the first job on."""
    first_s = min((job.start_s for job in jobs), default=until_s)
    hours = min(hours, max(0, int((until_s - first_s) // HOUR_S)))
    start_s = until_s - hours * HOUR_S
    spans: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        end_s = job.end_s or until_s + HOUR_S
        if hours and end_s > start_s and job.start_s < until_s:
            one = Job("", job.account, job.gpu_model, JobClass.HP, 1, job.gpus, job.start_s, end_s - job.start_s)
            for tenant in (job.account, TOTAL):
                spans.setdefault((job.gpu_model, tenant), []).append(one)
    return {key: hourly_peaks(some, start_s, hours) for key, some in spans.items()}
