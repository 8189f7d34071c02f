"""Synthetic GPUs: known latency and progress of any settings, with noise, for the search to be judged by."""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from gpsched.adaptive.config import Config
from gpsched.adaptive.knobs import KNOBS, Settings
from gpsched.tuner import objective
from gpsched.tuner.gpu import GpuTuner
from gpsched.tuner.model import BeWindow, LcWindow, Objective, Point, Window
from gpsched.tuner.prior import Demand
from gpsched.tuner.space import BE_SLICE, LEVEL, QUIET, SHARE, SHIFT, TURN, Space, Work
from gpsched.tuner.step import Observed, Step


DEFAULTS: Settings = {name: getattr(getattr(Config(), knob.section), knob.key) for name, knob in KNOBS.items()}
LEVELS = ("timeslice", "reserve", "hold")
ALONE_US = 365.0


def work(jobs: int = 1, **changes: object) -> Work:
    fields = {"services": 1, "jobs": jobs, "levels": LEVELS, "busy": False, "defaults": DEFAULTS, "closed": {}}
    return Work(**(fields | changes))  # type: ignore[arg-type]


class Surface:
    """Not what the tuner's prior says: other costs, other shapes. ``limit_us`` is the objective at p99."""

    def __init__(
        self, limit_us: float, jobs: int = 1, rate_hz: float = 100.0, noise: tuple[float, float] = (0.03, 0.006)
    ):
        self.limit_us, self.jobs, self.rate_hz, self.noise = limit_us, jobs, rate_hz, noise
        self.slower: dict[str, float] = {}  # drift: µs more at a level
        self.crowding = 0.0  # mean ln of how requests crowd
        self.steeper: dict[str, float] = {}  # power of the crowd that latencies grow with at a level, less 1

    def latency_us(self, settings: Settings) -> float:
        level, shift = settings[LEVEL], float(settings[SHIFT])
        be = float(settings[BE_SLICE])
        if level == "timeslice":
            added = 190 + be
        elif level == "reserve":
            added = 75 + np.clip((shift + 200) / 900, 0, 1) * 430
        else:
            added = 15 + np.clip(shift / 300, 0, 1) * 200 + max(0.0, be - 150)
        if self.jobs > 1:
            added += 20 * math.log(float(settings[TURN]) / 5000)
        added += self.slower.get(str(level), 0.0)
        return ALONE_US + float(added) * float(settings[SHARE])

    def progress(self, settings: Settings) -> float:
        shift = float(settings[SHIFT])
        cost = {"timeslice": 220.0, "reserve": 560 - 0.5 * np.clip(shift + 200, 0, 600)}.get(
            str(settings[LEVEL]), 420 - 0.6 * np.clip(shift, 0, 300)
        )
        left = 1 - self.rate_hz * (cost + 0.2 * float(settings[QUIET]) + ALONE_US) / 1e6
        left += 0.03 * math.log(float(settings[BE_SLICE])) / math.log(1e4)
        if self.jobs > 1:
            left *= 1 - 700 / float(settings[TURN])
        return float(left) * float(settings[SHARE])

    def oracle(self) -> float:
        """The most progress of settings that keep the objective in nearly every window."""
        space = Space(work(self.jobs))
        grid = space.sample(1500, np.random.default_rng(1))
        most = self.limit_us * math.exp(-2 * self.noise[0])
        return max(self.progress(each) for each in grid if self.latency_us(each) <= most)


def window(
    settings: Settings,
    latency_us: float,
    progress: float | None,
    limit_us: float | None,
    bursts: int = 200,
    *,
    time_s: float = 0.0,
    key: str = "k",
    triggered: float = 1.0,
    crowd: float = 1.0,
) -> Window:
    goal = Objective(kind="slo", statistic="p99", limit_us=limit_us)
    lc = LcWindow(
        pid=1,
        name="lc",
        program="lc:1",
        tenant="a",
        objective=goal,
        bursts=bursts,
        rate_hz=bursts / 2,
        mean_us=latency_us,
        p99_us=latency_us,
        triggered=triggered,
        crowd=crowd,
    )
    lc = msgspec.structs.replace(lc, verdict=objective.lc_verdict(lc))
    be = BeWindow(pid=2, name="be", program="be:1", tenant="b", rate_hz=progress or 0.0, progress=progress)
    return Window(
        time_s=time_s,
        length_s=2.0,
        gpu=0,
        gpu_model="synthetic",
        key=key,
        settings=dict(settings),
        lc=[lc],
        be=[be],
        verdict=lc.verdict,
        margin=objective.margin([lc], [be], {}),
        progress=progress,
        load=bursts / 2,
        crowd=crowd,
    )


class Run:
    """Windows of a surface, one after another. ``missed`` and ``reached`` (true progress) grow with each."""

    def __init__(self, surface: Surface, seed: int = 0, points: Sequence[Point] = (), tuner: GpuTuner | None = None):
        self.surface, self._random = surface, np.random.default_rng(seed)
        self.tuner = tuner or GpuTuner(lambda _key: points, seed=seed)
        self.settings: Settings = dict(DEFAULTS)
        self.work = work(surface.jobs)
        self.missed: list[bool] = []
        self.reached: list[float] = []
        self.steps: list[Step] = []

    def windows(self, count: int, each: Callable[[Step], None] = lambda _step: None) -> None:
        for _ in range(count):
            each(self.one())

    def one(self) -> Step:
        surface = self.surface
        actual = self.settings | {LEVEL: "hold"} if self.settings[LEVEL] == "auto" else self.settings
        crowd = math.exp(self._random.exponential(surface.crowding)) if surface.crowding else 1.0
        latency = surface.latency_us(actual) * math.exp(self._random.normal(0, surface.noise[0]))
        latency *= crowd ** (1.0 + surface.steeper.get(str(actual[LEVEL]), 0.0))
        truth = surface.progress(actual)
        measured = truth * (1 + self._random.normal(0, surface.noise[1]))
        bursts = int(self._random.poisson(2 * surface.rate_hz))
        now_s = 2.0 * len(self.steps)
        seen = window(self.settings, latency, measured, surface.limit_us, bursts, time_s=now_s, crowd=crowd)
        demand = Demand(surface.rate_hz, ALONE_US, surface.rate_hz * ALONE_US / 1e6, surface.limit_us, surface.jobs)
        step = self.tuner.step(Observed(seen, self.work, demand))
        self.settings = step.settings or dict(DEFAULTS)
        self.missed.append(latency > surface.limit_us)
        self.reached.append(truth)
        self.steps.append(step)
        return step
