"""Windows of a mix under settings: what every arm is judged by, and what the tuner gets to see of it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from gpsched.adaptive.config import Config
from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.knobs import KNOBS, GpuSettings, KnobView, Settings, SettingsView
from gpsched.adaptive.measure import BeMeasure, Crowding, Latencies, LcMeasure, Measurement, latencies
from gpsched.adaptive.model import Level
from gpsched.bench.scenario import Lc
from gpsched.bench.tuner.control import Actuation, LevelName
from gpsched.bench.tuner.mix import Mix
from gpsched.bench.tuner.virtual import Seen, VirtualGpu
from gpsched.tuner.history import Baseline
from gpsched.tuner.meter import Meter
from gpsched.tuner.step import Observed


LEAST_REQUESTS = 20  # fewer in a window tell nothing of a 99th percentile
_MODEL = "embedded GPU"
_WORTH_US = 20.0  # a level that hides less is not chosen by "auto"
_KERNEL_US = 400.0  # a job's launches are counted in these
_EPOCH_S = 1_790_000_000.0


@dataclass(frozen=True)
class Taken:
    """A window. ``latency``: the worst of the services' p99 over their limits; None when requests were too few.

    ``progress``: mean of the jobs' rates over their rates alone; ``observed``: the same as the tuner sees it, where
    anybody is managed.
    """

    progress: float
    latency: float | None
    observed: Observed | None

    @property
    def missed(self) -> bool:
        """Whether an objective was missed."""
        return self.latency is not None and self.latency > 1.0


class Bed(Protocol):
    """A GPU with a mix on it. ``levels``: what its services can have; ``costs``: what they cost on its clock."""

    mix: Mix
    levels: tuple[str, ...]
    costs: dict[str, Costs]

    def change(self) -> None:
        """From now on, the load or the jobs are those after the mix' change."""

    def window(self, how: Settings | Actuation) -> Taken:
        """Run one window under gpsched's settings, or under something else's."""


Beds = Callable[[Mix, int], AbstractContextManager[Bed]]  # with the seed of its requests


def defaults() -> Settings:
    """The settings of a gpsched without a tuner."""
    config = Config()
    return {knob.name: getattr(getattr(config, knob.section), knob.key, knob.gentle) for knob in KNOBS.values()}


def worst_over_limit(mix: Mix, requests: Sequence[Sequence[float]]) -> float | None:
    """The largest of the services' p99 over their limits; None when one had too few requests."""
    if any(len(values) < LEAST_REQUESTS for values in requests):
        return None
    tails = (float(np.quantile(values, 0.99, method="inverted_cdf")) for values in requests)
    return max(tail / limit for tail, limit in zip(tails, mix.limits_us(), strict=True))


class VirtualBed:
    """A mix in virtual time; the same seed gives the same requests in each window, whatever the settings."""

    def __init__(self, mix: Mix, seed: int = 1) -> None:
        self.mix = mix
        self.levels: tuple[str, ...] = ("timeslice", "reserve", "hold")[: 3 if mix.agent else 2]
        self.costs = dict(LEVELS)
        self._changed = False
        self._gpu = VirtualGpu(mix.services, seed)
        self._meter = Meter(NothingKnown())
        self._crowding = [Crowding() for _ in mix.services]
        self._before = Measurement(
            since_us=0.0, now_us=0.0, lost_events=0, models={}, lc=[], be=[], settings=SettingsView()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._gpu.close()

    def change(self) -> None:
        """From now on, the load or the jobs are those after the mix' change."""
        self._changed = True

    def window(self, how: Settings | Actuation) -> Taken:
        """Run one window."""
        mix = self.mix
        settings, actuation = (defaults(), how) if isinstance(how, Actuation) else (how, actuate(how, mix, self.levels))
        seen = self._gpu.window(actuation, mix.rates(self._changed), mix.jobs(self._changed), mix.window_s)
        now = self._measurement(seen, settings, actuation.level)
        (observed,) = self._meter.windows(self._before, now, Config(), _EPOCH_S + now.now_us / 1e6)
        self._before = now
        return Taken(float(np.mean(seen.shares)), worst_over_limit(mix, seen.latencies_us), observed)

    def _measurement(self, seen: Seen, settings: Settings, level: Level) -> Measurement:
        """What the daemon would say of this window."""
        knobs = [
            KnobView(name=name, value=value, default=defaults()[name], owner="tuner")
            for name, value in settings.items()
        ]
        lc = [self._service(index, service, seen, level) for index, service in enumerate(self.mix.services)]
        be = [
            BeMeasure(
                pid=900 + index,
                name="job",
                command=f"job {index + 1}",
                tenant="jobs",
                gpus=[0],
                launches=round(work_us / _KERNEL_US),
            )
            for index, work_us in enumerate(seen.work_us)
        ]
        return Measurement(
            since_us=self._before.now_us,
            now_us=self._before.now_us + self.mix.window_s * 1e6,
            lost_events=0,
            models={0: _MODEL},
            lc=lc,
            be=be,
            settings=SettingsView(gpus=[GpuSettings(gpu=0, knobs=knobs)]),
        )

    def _service(self, index: int, service: Lc, seen: Seen, level: Level) -> LcMeasure:
        values, crowding = seen.latencies_us[index], self._crowding[index]
        for arrival, end in seen.served[index]:
            crowding.served(arrival, end)
        return LcMeasure(
            pid=100 + index,
            name=service.name or "service",
            command=f"service {index + 1}",
            tenant="services",
            gpus=[0],
            slo_us=service.slo_us,
            level=level,
            levels=[_LEVELS[name] for name in self.levels],
            latency=latencies(values),
            covered=Latencies(),
            triggered=len(values),
            over=sum(value > (service.slo_us or 0.0) for value in values),
            busy_us=seen.busy_us[index],
            trigger="a request comes in",
            reservations=0,
            hidden_us=0.0,
            wasted_us=0.0,
            crowd=crowding.of([arrival for arrival, _ in seen.served[index]]),
        )


class NothingKnown:
    """A history without baselines: nobody was ever seen alone."""

    def baseline(self, key: str) -> Baseline | None:  # noqa: ARG002 - the history's form
        """Nothing."""
        return None

    def put_baseline(self, key: str, baseline: Baseline) -> None:
        """Forget it."""


_LEVELS: dict[str, LevelName] = {"timeslice": "timeslice", "reserve": "reserve", "hold": "hold"}


def actuate(settings: Settings, mix: Mix, levels: Sequence[str]) -> Actuation:
    """What gpsched does with these settings: as in its policies, several services keep their own slices."""
    level = str(settings["reservations.level"])
    if level not in levels:
        level = _automatic(mix.services, levels) if level == "auto" else "timeslice"
    return Actuation(
        level=_LEVELS[level],
        lc_slice_us=int(settings["timeslice.lc_us"]) if len(mix.services) == 1 else None,
        be_slice_us=int(settings["timeslice.be_us"]),
        offset_us=float(settings["reservations.offset_shift_us"]),
        quiet_us=float(settings["reservations.quiet_extra_us"]),
        turn_us=float(settings["reservations.turn_us"]),
        be_share=float(settings["reservations.be_share"]),
    )


def _automatic(services: Sequence[Lc], levels: Sequence[str]) -> str:
    """The level that hides most of a switch behind the preparation, if that is worth anything."""
    lead = min(service.prep_us for service in services)
    hidden = {level: LEVELS[level].hidden(lead) for level in levels if level != "timeslice"}
    best = max(hidden, key=lambda level: hidden[level])
    return best if hidden[best] >= _WORTH_US else "timeslice"
