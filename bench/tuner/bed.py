"""Windows of a mix under settings, in virtual time: what the tuner, its rivals and the grid are given to judge."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpsched.adaptive.hints.costs import LEVELS
from gpsched.adaptive.knobs import Settings
from gpsched.bench.scenario import Lc
from gpsched.bench.tuner.control import Actuation, LevelName
from gpsched.bench.tuner.mix import Mix
from gpsched.bench.tuner.virtual import Seen, VirtualGpu
from gpsched.tuner import objective
from gpsched.tuner.model import BeWindow, LcWindow, Objective, Window


_MODEL = "embedded GPU"
_WORTH_US = 20.0  # a level that hides less is not chosen by "auto"
_EPOCH_S = 1_790_000_000.0


class Bed(Protocol):
    """A GPU with a mix on it. ``levels``: what its services can have."""

    mix: Mix
    levels: tuple[str, ...]

    def change(self) -> None:
        """From now on, the load or the jobs are those after the mix' change."""

    def window(self, how: Settings | Actuation) -> Window:
        """Run one window under gpsched's settings, or under something else's."""


Beds = Callable[[Mix, int], AbstractContextManager[Bed]]  # with the seed of its requests


class VirtualBed:
    """A mix in virtual time; the same seed gives the same requests in each window, whatever the settings."""

    def __init__(self, mix: Mix, seed: int = 1) -> None:
        self.mix = mix
        self.levels: tuple[str, ...] = ("timeslice", "reserve", "hold")[: 3 if mix.agent else 2]
        self.changed = False
        self._gpu = VirtualGpu(mix.services, seed)
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._gpu.close()

    def change(self) -> None:
        """From now on, the load or the jobs are those after the mix' change."""
        self.changed = True

    def window(self, how: Settings | Actuation) -> Window:
        """Run one window."""
        mix = self.mix
        actuation = how if isinstance(how, Actuation) else actuate(how, mix, self.levels)
        seen = self._gpu.window(actuation, mix.rates(self.changed), mix.jobs(self.changed), mix.window_s)
        self._number += 1
        return _window(mix, seen, how if isinstance(how, dict) else {}, actuation.level, self._number)


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


_LEVELS: dict[str, LevelName] = {"timeslice": "timeslice", "reserve": "reserve", "hold": "hold"}


def _automatic(services: Sequence[Lc], levels: Sequence[str]) -> str:
    """The level that hides most of a switch behind the preparation, if that is worth anything."""
    lead = min(service.prep_us for service in services)
    hidden = {level: LEVELS[level].hidden_once(lead) for level in levels if level != "timeslice"}
    best = max(hidden, key=lambda level: hidden[level])
    return best if hidden[best] >= _WORTH_US else "timeslice"


def _window(mix: Mix, seen: Seen, settings: Settings, level: str, number: int) -> Window:
    lc = [_lc_window(index, service, seen, level, mix.window_s) for index, service in enumerate(mix.services)]
    be = [
        BeWindow(
            pid=900 + index,
            name=f"job {index + 1}",
            program=f"job-{index + 1}",
            tenant="jobs",
            rate_hz=share * 1000.0,
            solo_hz=1000.0,
            progress=share,
        )
        for index, share in enumerate(seen.shares)
    ]
    return Window(
        time_s=_EPOCH_S + number * mix.window_s,
        length_s=mix.window_s,
        gpu=0,
        gpu_model=_MODEL,
        key="+".join([_MODEL, *(one.program for one in lc), *(one.program for one in be)]),
        settings=settings,
        lc=lc,
        be=be,
        verdict=objective.verdict(lc),
        margin=objective.margin(lc, be, {}),
        progress=objective.progress(be),
        load=sum(one.rate_hz for one in lc),
    )


def _lc_window(index: int, service: Lc, seen: Seen, level: str, seconds: float) -> LcWindow:
    values, limit = np.array(seen.latencies_us[index]), service.slo_us or 0.0
    alone = alone_us(service)
    mean, p50, p90, p99, largest = _figures(values)
    known = LcWindow(
        pid=100 + index,
        name=service.name or f"service {index + 1}",
        program=f"service-{index + 1}",
        tenant="services",
        objective=Objective(kind="slo", statistic="p99", limit_us=limit),
        bursts=len(values),
        rate_hz=len(values) / seconds,
        over=int((values > limit).sum()),
        triggered=1.0,
        alone_us=alone,
        busy_share=len(values) * service.steps * service.kernels * service.kernel_us / (seconds * 1e6),
        level=level,
        trigger="a request comes in",
        mean_us=mean,
        p50_us=p50,
        p90_us=p90,
        p99_us=p99,
        max_us=largest,
    )
    return msgspec.structs.replace(known, verdict=objective.lc_verdict(known))


def _figures(values: NDArray[np.float64]) -> tuple[float, ...]:
    """Mean, p50, p90, p99 and largest; nearest ranks, as the daemon has them."""
    if not len(values):
        return (0.0,) * 5
    ranks = np.quantile(values, [0.5, 0.9, 0.99], method="inverted_cdf")
    return tuple(round(float(value), 1) for value in (values.mean(), *ranks, values.max()))


def alone_us(service: Lc) -> float:
    """Latency of a request with the GPU to itself, about: preparation, launches, kernels, copies."""
    work = service.kernels * service.kernel_us
    if service.mode == "eager":
        work = service.kernels * max(service.kernel_us, service.gap_us + 4.0)
    return service.prep_us + service.steps * (work + 60.0) + (service.steps - 1) * service.step_gap_us
