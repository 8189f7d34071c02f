"""A bound, not a policy: what could be reached if the future were known.

It knows every HP job to come and how long each spot job still runs, orders the spot queue by that, and starts a spot
job only where HP demand leaves room for it as long as it looks ahead. What it cannot reach, no forecast will.
"""
# ruff: noqa: D102, ARG002 - what is overridden is described in Policy

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpsched.tuner.cluster.model import HOUR_S, Job, JobClass
from gpsched.tuner.cluster.pool import Pool, Run
from gpsched.tuner.cluster.spot import SpotPolicy


if TYPE_CHECKING:
    from gpsched.tuner.cluster.engine import Simulation


STEP_S = 300.0  # the future is known as maxima over steps of this length


class Clairvoyant(SpotPolicy):
    """Ours with the future in place of forecasts and guesses; evicts only where free GPUs are too scattered."""

    name: ClassVar[str] = "clairvoyant"
    look_s: ClassVar[float] = float("inf")  # how far ahead a start must not meet an HP rise

    def begin(self, sim: "Simulation") -> None:
        super().begin(sim)
        self._steps = int(2 * sim.workload.horizon_s / STEP_S) + 2
        hp = [job for job in sim.workload.jobs if job.cls is JobClass.HP]
        self._hp = {m: self._peaks([job for job in hp if job.gpu_model == m]) for m in sim.pools}
        self._spot = {model: np.zeros(self._steps) for model in sim.pools}

    def _peaks(self, jobs: list[Job]) -> NDArray[np.float64]:
        """GPUs of HP jobs by step, as if each started when it was submitted."""
        demand = np.zeros(self._steps + 1)
        for job in jobs:
            steps = self._span(job.submit_s, job.submit_s + job.duration_s)
            demand[steps.start] += job.total_gpus
            demand[steps.stop] -= job.total_gpus
        return np.cumsum(demand)[:-1]

    def _span(self, start_s: float, end_s: float) -> slice:
        first = min(self._steps - 1, int(start_s / STEP_S))
        return slice(first, max(first + 1, int(min(self._steps, end_s / STEP_S + 1))))

    def tick(self, sim: "Simulation") -> None:
        """Nothing to forecast."""

    def expect_s(self, run: Run) -> float:
        return run.remaining_s

    def admit(self, pool: Pool, run: Run, nodes: tuple[int, ...], now_s: float) -> float | None:
        seen = self._span(now_s, now_s + min(run.remaining_s, self.look_s))
        hp, spot, request = self._hp[pool.model], self._spot[pool.model], run.job.total_gpus
        if (hp[seen] + spot[seen]).max() + request > pool.capacity:
            return None
        if not self._leaves_room(pool, run.job, nodes, min(HOUR_S, self.look_s, run.remaining_s), now_s):
            return None
        spot[self._span(now_s, now_s + run.remaining_s)] += request
        return 0.0

    def evicted(self, run: Run, ran_s: float, now_s: float) -> None:
        lost_s = min(self.lost_s(run, now_s), ran_s) + self.restart_s
        planned = self._span(run.start_s, run.start_s + run.remaining_s + ran_s - lost_s)
        ahead = slice(self._span(now_s, now_s).start, planned.stop)
        self._spot[run.job.gpu_model][ahead] -= run.job.total_gpus

    def finished(self, run: Run, now_s: float) -> None:
        """Nothing to learn."""

    def quota_of(self, model: str, pool: Pool) -> int:
        return pool.capacity


class ClairvoyantHour(Clairvoyant):
    """The same, looking an hour ahead: more evictions, less waiting."""

    name: ClassVar[str] = "clairvoyant-1h"
    look_s: ClassVar[float] = HOUR_S


class ClairvoyantNow(Clairvoyant):
    """Knows run times alone and starts whatever fits: the least waiting that their order can give."""

    name: ClassVar[str] = "clairvoyant-0h"
    look_s: ClassVar[float] = 0.0
