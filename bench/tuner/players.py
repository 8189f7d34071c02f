"""Who sets a mix' settings, window by window: the tuner, and what it is compared with."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Protocol, cast

import numpy as np

from gpsched.adaptive.errors import GpschedError
from gpsched.adaptive.knobs import Settings
from gpsched.bench.tuner.bed import Bed, Taken, defaults
from gpsched.bench.tuner.control import Actuation, LevelName
from gpsched.tuner.gpu import GpuTuner
from gpsched.tuner.model import Change, Point, Window
from gpsched.tuner.space import Space, Work


_EXPLORE = 30  # windows that searches without a sense of danger spend before they settle for the best they saw
_HOLD_AHEAD_US = 100.0  # of the first launch: when GPreempt's holds begin


class OptunaMissingError(GpschedError):
    """The rival ``tpe`` needs optuna."""

    def __init__(self) -> None:
        super().__init__("the rival tpe needs optuna: pip install 'gpsched[compare]', or leave it out with --arms")


def need_optuna() -> ModuleType:
    """Return optuna; raises ``OptunaMissingError``."""
    try:
        import optuna
    except ImportError as error:
        raise OptunaMissingError from error
    return cast(ModuleType, optuna)


class Player(Protocol):
    """Chooses for the next window, then sees it."""

    def choose(self) -> Settings | Actuation:
        """What is to be in force during the next window."""

    def see(self, taken: Taken) -> None:
        """The window that was run so."""


class Fixed:
    """The same all the time."""

    def __init__(self, how: Settings | Actuation) -> None:
        self._how = how

    def choose(self) -> Settings | Actuation:
        """The same."""
        return self._how

    def see(self, taken: Taken) -> None:
        """Learn nothing."""


def driver(_bed: Bed) -> Player:
    """Nobody manages anything: the driver's own slices."""
    return Fixed(Actuation())


def untuned(_bed: Bed) -> Player:
    """gpsched's own defaults."""
    return Fixed(defaults())


def gpreempt(bed: Bed) -> Player:
    """GPreempt's constants: slices of 1 s and 1 µs, a hold 100 µs before the work; jobs take no turns."""
    level: LevelName = "hold" if "hold" in bed.levels else "timeslice"
    return Fixed(Actuation(level=level, lc_slice_us=1_000_000, be_slice_us=1, offset_us=200.0 - _HOLD_AHEAD_US))


class _Explorer(ABC):
    """Tries for some windows, then stays with the best that kept the objectives; drops it when it misses after all."""

    def __init__(self, bed: Bed) -> None:
        self.space = Space(
            Work(
                services=len(bed.mix.services),
                jobs=bed.mix.jobs(False),
                levels=bed.levels,
                busy=False,
                defaults=defaults(),
                closed={},
            )
        )
        self._seen: list[tuple[float, Settings]] = []
        self._left, self._now = _EXPLORE, defaults()

    def choose(self) -> Settings | Actuation:
        self._now = self.suggest() if self._left > 0 else max(self._seen, key=lambda one: one[0], default=_NOTHING)[1]
        return self._now

    def see(self, taken: Taken) -> None:
        kept = not taken.missed
        if self._left > 0:
            self._left -= 1
            self.scored(score(taken))
        if kept:
            self._seen.append((taken.progress, self._now))
        else:
            self._seen = [one for one in self._seen if one[1] != self._now]

    @abstractmethod
    def suggest(self) -> Settings:
        """Return the next settings to try."""

    def scored(self, value: float) -> None:  # noqa: B027 - who does not learn from it needs none
        """What the last suggestion was worth."""


_NOTHING: tuple[float, Settings] = (0.0, defaults())


class Random(_Explorer):
    """Random search."""

    def __init__(self, bed: Bed, seed: int) -> None:
        super().__init__(bed)
        self._random = np.random.default_rng(seed)

    def suggest(self) -> Settings:
        """Anything."""
        return self.space.sample(1, self._random)[0]


class Tpe(_Explorer):
    """Plain optuna: a tree-structured Parzen estimator on progress, less what objectives were missed by."""

    def __init__(self, bed: Bed, seed: int) -> None:
        super().__init__(bed)
        optuna = need_optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))

    def suggest(self) -> Settings:
        """What the estimator asks for."""
        self._trial = self._study.ask()
        return self.space.decode([self._trial.suggest_float(name, 0.0, 1.0) for name in self.space.names])

    def scored(self, value: float) -> None:
        """Tell the estimator."""
        self._study.tell(self._trial, value)


def score(taken: Taken) -> float:
    """Progress where the objectives were kept, else minus how far they were from that."""
    latency = 10.0 if taken.latency is None else taken.latency
    return taken.progress if latency <= 1.0 else 1.0 - latency


class Ours:
    """The tuner itself. ``recall``: what its history knows. ``changes``, ``windows``: for the record."""

    def __init__(self, bed: Bed, seed: int, recall: Callable[[str], Sequence[Point]] = lambda _key: ()) -> None:
        self._tuner = GpuTuner(recall, bed.costs, seed)
        self._settings: Settings = {}
        self.changes: list[Change] = []
        self.windows: list[Window] = []

    def choose(self) -> Settings | Actuation:
        """The defaults until it says something else."""
        return self._settings or defaults()

    def see(self, taken: Taken) -> None:
        """Let it take its step."""
        if taken.observed is None:
            return
        step = self._tuner.step(taken.observed)
        self._settings = step.settings
        self.changes += step.changes
        self.windows.append(step.window)

    def points(self) -> list[Point]:
        """What it learned of the present work."""
        return self._tuner.points()
