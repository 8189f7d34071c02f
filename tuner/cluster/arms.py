"""The policies that a comparison runs, by name: baselines from practice and from GFS, and ours (spot.py)."""
# ruff: noqa: D102, ARG002 - what is overridden is described in Policy

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gpsched.tuner.cluster.clairvoyant import Clairvoyant, ClairvoyantHour, ClairvoyantNow
from gpsched.tuner.cluster.demand import TOTAL
from gpsched.tuner.cluster.errors import UnknownNameError
from gpsched.tuner.cluster.linear import AHEAD_H, DecompositionLinear
from gpsched.tuner.cluster.model import HOUR_S, Job, JobClass
from gpsched.tuner.cluster.placement import fgd_fit, fill
from gpsched.tuner.cluster.policy import Policy
from gpsched.tuner.cluster.pool import Pool, Run
from gpsched.tuner.cluster.quota import admits, spot_quota
from gpsched.tuner.cluster.spot import SpotPolicy
from gpsched.tuner.cluster.victims import gfs


if TYPE_CHECKING:
    from gpsched.tuner.cluster.engine import Simulation


class Fifo(Policy):
    """Strict FIFO with preemption: the head of each queue holds up those behind it."""

    name: ClassVar[str] = "fifo"
    strict: ClassVar[bool] = True


class StaticQuota(Policy):
    """A fixed spot quota per GPU model: capacity less a quantile of the HP demand of the weeks before; else as
    fifo-skip."""

    name: ClassVar[str] = "static-quota"
    quantile: ClassVar[float] = 0.5

    def begin(self, sim: "Simulation") -> None:
        self.quota: dict[str, int] = {}
        for model, pool in sim.pools.items():
            past = sim.demand.series.get((model, TOTAL), [])
            reserve = float(np.nanquantile(past, self.quantile)) if past else 0.0
            self.quota[model] = max(0, pool.capacity - int(reserve))

    def admit(self, pool: Pool, run: Run, nodes: tuple[int, ...], now_s: float) -> float | None:
        quota, held = self.quota[pool.model], pool.used[JobClass.SPOT]
        alone = held == 0 and run.job.total_gpus > quota  # a gang larger than the quota would wait for ever
        return 0.0 if alone or admits(quota, held, run.job.total_gpus) else None

    def quota_of(self, model: str, pool: Pool) -> int:
        return self.quota[model]


class StaticQuotaTight(StaticQuota):
    """The same with the 90th percentile: a careful operator's quota."""

    name: ClassVar[str] = "static-quota-p90"
    quantile: ClassVar[float] = 0.9


class Fgd(Policy):
    """fifo-skip with placement by least growth of fragmentation (FGD)."""

    name: ClassVar[str] = "fgd"

    def place(self, pool: Pool, job: Job, now_s: float) -> tuple[int, ...] | None:
        return fgd_fit(pool, job, now_s)


class Leases(Policy):
    """In the manner of Chronus: HP may take GPUs at 300 s lease ends, spot starts at 1,200 s ones; nothing is lost
    but 120 s."""

    name: ClassVar[str] = "leases"
    restart_s: ClassVar[float] = 120.0

    def hp_gate(self, now_s: float) -> bool:
        return now_s % 300.0 == 0.0

    def spot_gate(self, now_s: float) -> bool:
        return now_s % 1200.0 == 0.0

    def lost_s(self, run: Run, now_s: float) -> float:
        return 0.0


class GfsPaper(Policy):
    """GFS as described: forecast quota with feedback, size-ordered queues, victims by waste and eviction rate on all
    nodes."""

    name: ClassVar[str] = "gfs-paper"
    as_coded: ClassVar[bool] = False
    base: ClassVar[float] = 3.0  # m of the node's eviction score
    level: ClassVar[float] = 0.9

    def begin(self, sim: "Simulation") -> None:
        self.forecasts = {model: DecompositionLinear() for model in sim.pools}
        self.usage = dict.fromkeys(sim.pools, 0.0)
        self.quota = dict.fromkeys(sim.pools, 0)
        self.eta = dict.fromkeys(sim.pools, 1.0)
        self.periods: dict[str, deque[tuple[float, bool]]] = {model: deque() for model in sim.pools}
        self._hour = -1
        self._trained_h = -(10**9)

    def tick(self, sim: "Simulation") -> None:
        if sim.demand.hours != self._hour:
            self._hour = sim.demand.hours
            self._forecast(sim)
        for model, pool in sim.pools.items():
            if not self.as_coded:
                self.eta[model] = self._feedback(model, sim)
            self.quota[model] = spot_quota(pool.capacity, {1: self.usage[model]}, self.eta[model])[1]

    def _forecast(self, sim: "Simulation") -> None:
        train = self._hour - self._trained_h >= 24
        for model, forecast in self.forecasts.items():
            keys = sorted(key for key in sim.demand.series if key[0] == model and key[1] != TOTAL)
            history = sim.demand.matrix(keys, 672)
            if train:
                forecast.fit(history, self._hour)
            quantiles = forecast.quantile(history, self._hour, self.level) if keys else np.zeros(AHEAD_H)
            self.usage[model] = float(quantiles[0])
        if train:
            self._trained_h = self._hour

    def _feedback(self, model: str, sim: "Simulation") -> float:
        periods = self.periods[model]
        while periods and periods[0][0] < sim.now_s - 4 * HOUR_S:
            periods.popleft()
        target, eta = 1.0 - self.level, self.eta[model]
        rate = sum(failed for _, failed in periods) / len(periods) if periods else 0.0
        if rate >= 1.5 * target:
            eta *= target / rate
        elif rate <= 0.5 * target and sim.queues[model][JobClass.SPOT].oldest_wait_s(sim.now_s) > HOUR_S:
            eta *= 1.5 - rate / target
        return min(1.25, max(0.25, eta))

    def admit(self, pool: Pool, run: Run, nodes: tuple[int, ...], now_s: float) -> float | None:
        request, held = run.job.total_gpus, pool.used[JobClass.SPOT]
        if self.as_coded:  # counts the GPUs of one worker for the whole gang
            request, held = run.job.gpus, sum(one.job.gpus for one in pool.spot_runs)
        return 0.0 if admits(self.quota[pool.model], held, request) else None

    def hp_rank(self, run: Run) -> float:
        return -run.job.gpus * 1e9 + run.job.submit_s

    def spot_rank(self, run: Run) -> float:
        return -run.job.gpus * 1e12 + run.job.workers * 1e8 + run.job.submit_s

    def place(self, pool: Pool, job: Job, now_s: float) -> tuple[int, ...] | None:
        def score(node: int) -> float:
            same = pool.hp_on[node] if job.cls is JobClass.HP else sum(pool.spot_on[node].values())
            health = 0.0 if self.as_coded else max(0.0, 1.0 - 0.01 * self.base ** pool.heat(node, now_s))
            return -same - (health if job.cls is JobClass.SPOT else -health)

        return fill(pool, job, range(job.gpus, pool.largest + 1), score)

    def victims(self, pool: Pool, job: Job, now_s: float) -> list[Run] | None:
        periods = self.periods[pool.model]
        failed = 0 if self.as_coded else sum(bad for _, bad in periods)
        kept = 0 if self.as_coded else len(periods) - failed
        return gfs(pool, job, now_s, failed, kept, self.as_coded)

    def evicted(self, run: Run, ran_s: float, now_s: float) -> None:
        self._count_periods(run, ran_s, now_s, failed=True)

    def finished(self, run: Run, now_s: float) -> None:
        if run.job.cls is JobClass.SPOT:
            self._count_periods(run, now_s - run.start_s, now_s, failed=False)

    def _count_periods(self, run: Run, ran_s: float, now_s: float, failed: bool) -> None:
        periods = self.periods[run.job.gpu_model]
        periods.extend([(now_s, False)] * min(4, int(ran_s // HOUR_S)))
        periods.append((now_s, failed))

    def quota_of(self, model: str, pool: Pool) -> int:
        return self.quota[model]


class GfsCode(GfsPaper):
    """GFS with the defects of the authors' published code: dead feedback, gangs counted as one worker, few nodes
    searched."""

    name: ClassVar[str] = "gfs-code"
    as_coded: ClassVar[bool] = True
    base: ClassVar[float] = 2.0


PROPOSED = (Fifo, Policy, StaticQuota, StaticQuotaTight, Fgd, Leases, GfsCode, GfsPaper, SpotPolicy)
BOUNDS = (Clairvoyant, ClairvoyantHour, ClairvoyantNow)  # compared only when asked for
ARMS: dict[str, Callable[[], Policy]] = {arm.name: arm for arm in (*PROPOSED, *BOUNDS)}


def make_arm(name: str) -> Policy:
    """A fresh policy by name; UnknownNameError for a name not in `ARMS`."""
    if name not in ARMS:
        raise UnknownNameError("arm", name, list(ARMS))
    return ARMS[name]()
