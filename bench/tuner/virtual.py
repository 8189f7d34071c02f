"""A GPU in virtual time on which windows are run: seconds of load in a fraction of a second, the same each time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpsched.adaptive.simgpu.virtual import World
from gpsched.bench.scenario import Lc
from gpsched.bench.tuner.actors import ScriptedJob, ScriptedService, arrivals
from gpsched.bench.tuner.control import Actuation, Control
from gpsched.bench.tuner.mix import Mix


_SETTLE_US = 20_000.0  # from new settings to the first request that counts


@dataclass(frozen=True)
class Seen:
    """What one window showed of each service and job.

    ``served``: when each request that was answered arrived, and when it was; ``busy_us`` from a launch to its end,
    summed; ``shares`` of the GPU's time; ``work_us``: GPU time since the job's start.
    """

    served: list[list[tuple[float, float]]]
    busy_us: list[float]
    shares: list[float]
    work_us: list[float]

    @property
    def latencies_us(self) -> list[list[float]]:
        """From arrival to answer."""
        return [[end - arrival for arrival, end in requests] for requests in self.served]


class VirtualGpu:
    """Services and jobs that stay while settings, rates and the number of jobs change.

    ``seed``: of the requests, which are the same in each window whatever the settings, and of the hosts' noise.
    """

    def __init__(self, services: Sequence[Lc], seed: int = 1) -> None:
        self._seed, self._number = seed, 0
        noise = np.random.default_rng(seed)
        self._world = World()
        self._services = [ScriptedService(self._world, lc, i, noise) for i, lc in enumerate(services)]
        self._jobs: list[ScriptedJob] = []
        self._control = Control(self._world, self._services, self._jobs)

    def close(self) -> None:
        """Free the engine."""
        self._world.close()

    def window(self, actuation: Actuation, rates: Sequence[float], jobs: int, seconds: float) -> Seen:
        """Run a window with so many requests a second for each service, beside the first ``jobs`` jobs."""
        while len(self._jobs) < jobs:
            self._jobs.append(ScriptedJob(self._world))
        self._control.apply(actuation, self._jobs)
        self._world.run(self._world.now + _SETTLE_US)
        start, length = self._world.now, seconds * 1e6
        self._number += 1
        random = np.random.default_rng([self._seed, self._number])
        for service, rate in zip(self._services, rates, strict=True):
            service.served.clear()
            service.busy_us = 0.0
            for time in arrivals(service.lc, rate, start, length, random) if rate else ():
                self._world.at(time, service.arrive)
        before = [job.work_us() for job in self._jobs]
        self._world.run(start + length)
        work = [job.work_us() for job in self._jobs]
        return Seen(
            served=[list(service.served) for service in self._services],
            busy_us=[service.busy_us for service in self._services],
            shares=[(now - was) / length for now, was in zip(work, before, strict=True)],
            work_us=work,
        )


def alone_us(mix: Mix, windows: int) -> list[float]:
    """Return the worst p99 of each service of a mix in so many windows without any job."""
    gpu = VirtualGpu(mix.services)
    try:
        seen = [gpu.window(Actuation(), mix.rates(False), 0, mix.window_s) for _ in range(windows)]
    finally:
        gpu.close()
    return worst_p99([each.latencies_us for each in seen])


def worst_p99(windows: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """Return the largest p99 of each service in these windows of latencies."""
    tails = [[float(np.quantile(values, 0.99, method="inverted_cdf")) for values in window] for window in windows]
    return [max(of_one) for of_one in zip(*tails, strict=True)]
