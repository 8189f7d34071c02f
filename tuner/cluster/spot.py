"""Our policy: forecast quotas for guarantees, cheapest victims over all nodes, short work first.

Spot jobs start where GPUs are free. One gets a guarantee (1, 2 or 4 h) when the quota for it has room; others run
without and are the first to go. The order of the spot queue is submission time plus a multiple of the expected run
time, so that short work passes and no job waits for ever.
"""
# ruff: noqa: D102, ARG002 - what is overridden is described in Policy

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from gpsched.tuner.cluster.demand import TOTAL
from gpsched.tuner.cluster.forecast import ForecastSettings, QuantileForecaster
from gpsched.tuner.cluster.model import HOUR_S, Job, JobClass
from gpsched.tuner.cluster.placement import best_fit
from gpsched.tuner.cluster.policy import Policy
from gpsched.tuner.cluster.pool import Pool, Run
from gpsched.tuner.cluster.predict import DurationHistory
from gpsched.tuner.cluster.quota import QuotaSettings, adjust_eta, grant, spot_quota
from gpsched.tuner.cluster.reserve import ArrivalRates, leaves, slots_to_keep
from gpsched.tuner.cluster.victims import CostModel, cheapest


if TYPE_CHECKING:
    from gpsched.tuner.cluster.engine import Simulation


HISTORY_H = 1344


@dataclass(frozen=True)
class SpotSettings:
    """What the policy is tuned by.

    ``aging``: seconds of waiting that one second of expected run time is worth in the spot queue; ``size_power``: how
    much the gang's size weighs in that order. ``reserve``: share of the forecast rise of HP demand within the hour
    that spot leaves free; ``deviations``: slots it leaves for the HP jobs expected meanwhile, in their standard
    deviations: a small buffer absorbs most HP arrivals, because what finishes refills it before spot may start.
    """

    aging: float = 300.0
    size_power: float = 0.5
    reserve: float = 0.05
    deviations: float = 1.0
    quota: QuotaSettings = field(default_factory=QuotaSettings)
    forecast: ForecastSettings = field(default_factory=lambda: ForecastSettings(level=0.95, rate=0.05))
    cost: CostModel = field(default_factory=CostModel)


class SpotPolicy(Policy):
    """Ours; the Slurm controller takes the same decisions from the same functions."""

    name: ClassVar[str] = "ours"

    def __init__(self, settings: SpotSettings | None = None) -> None:
        self.settings = settings or SpotSettings()

    def begin(self, sim: "Simulation") -> None:
        self.forecaster = QuantileForecaster(self.settings.forecast)
        self.durations = DurationHistory()
        self.demand: dict[str, dict[int, float]] = {
            model: dict.fromkeys(self.settings.forecast.horizons, float(pool.capacity))
            for model, pool in sim.pools.items()
        }
        self.quota: dict[str, dict[int, int]] = {model: {} for model in sim.pools}
        self.eta = dict.fromkeys(sim.pools, 1.0)
        self.recent: dict[str, list[tuple[float, bool]]] = {model: [] for model in sim.pools}
        self.arrivals = {model: ArrivalRates() for model in sim.pools}
        self._hour = -1
        self._sim = sim

    def tick(self, sim: "Simulation") -> None:
        if sim.demand.hours != self._hour:
            self._hour = sim.demand.hours
            keys = [(model, TOTAL) for model in sim.pools]
            quantiles = self.forecaster.step(keys, sim.demand.matrix(keys, HISTORY_H), self._hour - 1)
            for (model, _), row in zip(keys, quantiles, strict=True):
                self.demand[model] = dict(zip(self.settings.forecast.horizons, row.tolist(), strict=True))
        for model, pool in sim.pools.items():
            now = float(sim.demand.now(model))
            demand = {hours: max(now, value) for hours, value in self.demand[model].items()}
            self.eta[model] = self._feedback(model, sim)
            self.quota[model] = spot_quota(pool.capacity, demand, self.eta[model])

    def _feedback(self, model: str, sim: "Simulation") -> float:
        since = sim.now_s - 4 * HOUR_S
        recent = self.recent[model] = [one for one in self.recent[model] if one[0] >= since]
        failed = sum(bad for _, bad in recent)
        if sim.queues[model][JobClass.HP] and any(r.guarantee_until_s > sim.now_s for r in sim.pools[model].spot_runs):
            return max(self.settings.quota.eta_min, self.eta[model] / self.settings.quota.step)
        wait_s = sim.queues[model][JobClass.SPOT].oldest_wait_s(sim.now_s)
        return adjust_eta(self.eta[model], failed, len(recent) - failed, wait_s, self.settings.quota)

    def submitted(self, job: Job, now_s: float) -> None:
        if job.cls is JobClass.HP and now_s > 0:  # at time 0 come those that ran before the trace
            self.arrivals[job.gpu_model].add(job.gpus, now_s)

    def expect_s(self, run: Run) -> float:
        """Run time still to come, as far as the past tells, seconds."""
        return self.durations.expect_s(run.job, max(0.0, run.job.duration_s + run.lost_s - run.remaining_s))

    def spot_rank(self, run: Run) -> float:
        weight: float = run.job.total_gpus**self.settings.size_power
        return run.job.submit_s + self.settings.aging * self.expect_s(run) * weight

    def admit(self, pool: Pool, run: Run, nodes: tuple[int, ...], now_s: float) -> float | None:
        request = run.job.total_gpus
        expected_s = self.expect_s(run)
        if not self._leaves_room(pool, run.job, nodes, min(HOUR_S, expected_s), now_s):
            return None
        if self._sim.queues[pool.model][JobClass.HP]:  # no guarantee may stand in the way of a waiting HP gang
            return 0.0
        held = sum(one.job.total_gpus for one in pool.spot_runs if one.guarantee_until_s > now_s)
        hours = grant(self.quota[pool.model], held, request, expected_s)
        return hours * HOUR_S

    def _leaves_room(self, pool: Pool, job: Job, nodes: tuple[int, ...], exposed_s: float, now_s: float) -> bool:
        """Whether the job leaves free what HP arrivals may need in ``exposed_s``, as GPUs and as slots of their
        sizes; spot that holds nothing always may: a gang as large as the pool would wait for ever."""
        if not pool.used[JobClass.SPOT]:
            return True
        rise = min(self.demand[pool.model].values()) - self._sim.demand.now(pool.model)
        if pool.free_gpus - job.total_gpus < self.settings.reserve * rise * exposed_s / HOUR_S:
            return False
        expected = self.arrivals[pool.model].expected(now_s, exposed_s)
        return leaves(pool, nodes, job.gpus, slots_to_keep(expected, self.settings.deviations))

    def place(self, pool: Pool, job: Job, now_s: float) -> tuple[int, ...] | None:
        return best_fit(pool, job, now_s)

    def victims(self, pool: Pool, job: Job, now_s: float) -> list[Run] | None:
        return cheapest(pool, job, now_s, self.settings.cost)

    def evicted(self, run: Run, ran_s: float, now_s: float) -> None:
        self.recent[run.job.gpu_model].append((now_s, True))

    def finished(self, run: Run, now_s: float) -> None:
        self.durations.add(run.job, run.job.duration_s)
        if run.job.cls is JobClass.SPOT:
            self.recent[run.job.gpu_model].append((now_s, False))

    def quota_of(self, model: str, pool: Pool) -> int:
        return max(self.quota[model].values(), default=0)
