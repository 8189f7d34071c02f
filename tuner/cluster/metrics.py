"""What a simulation measured, and the table of figures made of it."""

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpsched.tuner.cluster.model import JobClass
from gpsched.tuner.cluster.pool import Run


HP_SLO_S = 300.0  # an HP job that starts within this many seconds met its objective


@dataclass
class Usage:
    """GPU-seconds held inside the horizon, by class; `move` is called before each change."""

    horizon_s: float
    gpu_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _last_s: float = 0.0

    def move(self, now_s: float, used: list[int]) -> None:
        """Account for the time since the last change, during which ``used`` was held."""
        until = min(now_s, self.horizon_s)
        if until > self._last_s:
            self.gpu_s[0] += used[0] * (until - self._last_s)
            self.gpu_s[1] += used[1] * (until - self._last_s)
            self._last_s = until


@dataclass
class Collector:
    """Sums over finished jobs and events of one simulation. Times in seconds, lists by JobClass."""

    waits: "list[array[float]]" = field(default_factory=lambda: [array("d"), array("d")])
    first_waits: "list[array[float]]" = field(default_factory=lambda: [array("d"), array("d")])
    turnarounds: "list[array[float]]" = field(default_factory=lambda: [array("d"), array("d")])
    finished: list[int] = field(default_factory=lambda: [0, 0])
    evicted_jobs: int = 0
    evictions: int = 0
    starts: int = 0
    lost_gpu_s: float = 0.0
    restart_gpu_s: float = 0.0
    lost_in_horizon_gpu_s: float = 0.0
    spot_work_gpu_s: float = 0.0
    guarantees_given: int = 0
    guarantees_broken: int = 0

    def finish(self, run: Run, now_s: float) -> None:
        """Account for a completed job."""
        cls = run.job.cls
        self.finished[cls] += 1
        self.waits[cls].append(run.waited_s)
        self.first_waits[cls].append(run.first_wait_s)
        self.turnarounds[cls].append(now_s - run.job.submit_s)
        if cls is JobClass.SPOT:
            self.spot_work_gpu_s += run.job.total_gpus * run.job.duration_s
            self.evicted_jobs += run.evictions > 0

    def figures(self, usage: dict[str, Usage], capacity: dict[str, int]) -> dict[str, float]:
        """The figures of the proof tables; rates are shares of 1, times seconds."""
        total = sum(capacity[model] * one.horizon_s for model, one in usage.items())
        held = sum(sum(one.gpu_s) for one in usage.values())
        hp, spot = np.array(self.waits[JobClass.HP]), np.array(self.waits[JobClass.SPOT])
        first, turn = np.array(self.first_waits[JobClass.SPOT]), np.array(self.turnarounds[JobClass.SPOT])
        return {
            "evictions": float(self.evictions),
            "eviction_rate": self.evictions / max(1, self.starts),
            "evicted_jobs": self.evicted_jobs / max(1, self.finished[JobClass.SPOT]),
            "lp_wait_mean_s": _mean(spot),
            "lp_wait_p95_s": _p(spot, 95),
            "lp_first_wait_mean_s": _mean(first),
            "lp_turnaround_mean_s": _mean(turn),
            "lost_gpu_h": (self.lost_gpu_s + self.restart_gpu_s) / 3600.0,
            "lost_share": (self.lost_gpu_s + self.restart_gpu_s) / max(1.0, self.spot_work_gpu_s),
            "allocation": held / total,
            "useful_allocation": (held - self.lost_in_horizon_gpu_s) / total,
            "hp_wait_mean_s": _mean(hp),
            "hp_wait_p95_s": _p(hp, 95),
            "hp_wait_p99_s": _p(hp, 99),
            "hp_slo": float(np.mean(hp <= HP_SLO_S)) if hp.size else 1.0,
            "hp_jobs": float(self.finished[JobClass.HP]),
            "lp_jobs": float(self.finished[JobClass.SPOT]),
            "guarantees_given": float(self.guarantees_given),
            "guarantees_broken": float(self.guarantees_broken),
        }


def _mean(values: "np.ndarray[Any, Any]") -> float:
    return float(values.mean()) if values.size else 0.0


def _p(values: "np.ndarray[Any, Any]", percentile: float) -> float:
    return float(np.percentile(values, percentile)) if values.size else 0.0
