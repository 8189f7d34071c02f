"""The space that is searched: the knobs that matter for the present work, as a unit cube. Pure.

A number's scale is the knob's; a word counts by its place among the values that are possible now.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpsched.adaptive.knobs import KNOBS, Knob, Settings, Value


Cube = npt.NDArray[np.float64]

LEVEL = "reservations.level"
LC_SLICE = "timeslice.lc_us"
BE_SLICE = "timeslice.be_us"
TURN = "reservations.turn_us"
SHIFT = "reservations.offset_shift_us"
QUIET = "reservations.quiet_extra_us"
SHARE = "reservations.be_share"

_STEPS = 32  # a number has so many values: finer ones cannot be told apart in a window


@dataclass(frozen=True)
class Work:
    """What runs on a GPU, as far as it decides which knobs matter.

    ``levels``: what the latency-critical processes can have; ``busy``: whether they take so much of the GPU that their
    own slice matters; ``closed``: knobs that are not the tuner's, with their values. ``need_share``: whether the share
    of the time for best-effort work is searched (it costs most, so only where nothing else keeps the objectives), down
    to ``share_floor``.
    """

    services: int
    jobs: int
    levels: tuple[str, ...]
    busy: bool
    defaults: Settings
    closed: Mapping[str, Value]
    need_share: bool = False
    share_floor: float = 0.05


def relevant(work: Work) -> tuple[str, ...]:
    """Return the names of the knobs worth searching for this work."""
    names: list[str] = []
    if work.services and work.jobs:
        names.append(BE_SLICE)
        if len(work.levels) > 1:
            names += [LEVEL, SHIFT, QUIET]
        if work.busy:
            names.append(LC_SLICE)
        if work.need_share:
            names.append(SHARE)
    if work.jobs > 1:
        names.append(TURN)
    return tuple(name for name in KNOBS if name in names and name not in work.closed)


class Space:
    """Settings to points of the cube and back. ``base``: the values of all knobs that are not searched."""

    def __init__(self, work: Work) -> None:
        self.names = relevant(work)
        self.base: Settings = {**work.defaults, **work.closed}
        self.levels = tuple(level for level in KNOBS[LEVEL].choices if level in work.levels)
        self._floor = work.share_floor

    def __len__(self) -> int:
        return len(self.names)

    def start(self, level: str | None = None) -> Settings:
        """The defaults, with the level that ``auto`` comes to named."""
        return self.complete({LEVEL: level or self.levels[-1]} if LEVEL in self.names else {})

    def complete(self, settings: Settings) -> Settings:
        """Return the same settings for this space: searched knobs snapped, all others at their base."""
        known = {name: settings[name] for name in self.names if name in settings}
        return self.decode(self.encode({**self.base, **known}))

    def holds(self, settings: Settings) -> bool:
        """Whether these differ from the base in searched knobs alone."""
        return all(settings.get(name) == value for name, value in self.base.items() if name not in self.names)

    def encode(self, settings: Settings) -> Cube:
        """Return the point; values out of the cube are put onto its faces."""
        return np.array([self._place(KNOBS[name], settings[name]) for name in self.names])

    def numbers(self, settings: Settings) -> Cube:
        """Return the point without its words."""
        return np.array([self._place(KNOBS[name], settings[name]) for name in self.names if name != LEVEL])

    def decode(self, point: Sequence[float] | Cube) -> Settings:
        """Return the nearest settings that a window can tell apart."""
        found = {name: self._value(KNOBS[name], float(at)) for name, at in zip(self.names, point, strict=True)}
        settings = {**self.base, **found}
        # One setting, not many that mean the same: nothing is reserved, or nobody is kept off once the burst is over.
        idle = {"timeslice": (SHIFT, QUIET), "hold": (QUIET,)}.get(str(settings.get(LEVEL)), ())
        settings |= {name: self.base[name] for name in idle if name in self.names}
        if SHARE in self.names:
            settings[SHARE] = max(float(settings[SHARE]), self._floor)
        return settings

    def sample(self, count: int, random: np.random.Generator) -> list[Settings]:
        """Return settings from all over the space."""
        return self._distinct(random.random((count, len(self))))

    def around(self, centre: Settings, count: int, random: np.random.Generator) -> list[Settings]:
        """Return settings near these, and all that differ in one knob by steps of growing size."""
        at = self.encode(centre)
        points = [np.clip(at + random.normal(0.0, 0.12, len(self)), 0.0, 1.0) for _ in range(count)]
        for number, name in enumerate(self.names):
            places = self._places(name)
            for place in places:
                moved = at.copy()
                moved[number] = place
                points.append(moved)
        return self._distinct(points)

    def gentleness(self, settings: Settings) -> float:
        """Return how much settings interfere, from 0 (not) to 1 (as much as they can), averaged over the knobs."""
        if not self.names:
            return 0.0
        gentle = {name: self._place(KNOBS[name], KNOBS[name].gentle) for name in self.names}
        away = [abs(at - gentle[name]) for name, at in zip(self.names, self.encode(settings), strict=True)]
        return float(np.mean(away))

    def difference(self, before: Settings, after: Settings) -> dict[str, tuple[Value | None, Value | None]]:
        """Return the knobs that differ."""
        names = [name for name in KNOBS if before.get(name) != after.get(name)]
        return {name: (before.get(name), after.get(name)) for name in names}

    def _places(self, name: str) -> list[float]:
        if KNOBS[name].scale == "choice":
            return list(np.linspace(0.0, 1.0, max(len(self.levels), 1)))
        return list(np.linspace(0.0, 1.0, 9))

    def _place(self, knob: Knob, value: Value) -> float:
        if knob.scale == "choice":
            if len(self.levels) < 2:
                return 0.0
            where = self.levels.index(str(value)) if value in self.levels else len(self.levels) - 1
            return where / (len(self.levels) - 1)
        at = min(max(float(value), knob.low), knob.high)
        if knob.scale == "log":
            return math.log(at / knob.low) / math.log(knob.high / knob.low)
        return (at - knob.low) / (knob.high - knob.low)

    def _value(self, knob: Knob, place: float) -> Value:
        place = min(max(place, 0.0), 1.0)
        if knob.scale == "choice":
            return self.levels[round(place * (len(self.levels) - 1))]
        base = self.base.get(knob.name)
        default = None if base is None else self._place(knob, base)
        near = (place, round(place * _STEPS) / _STEPS)
        if default is not None and any(abs(default - each) < 0.5 / _STEPS for each in near):
            return base  # type: ignore[return-value] # the default itself, not a neighbour of it
        place = near[1]
        if knob.scale == "log":
            value = float(knob.low * (knob.high / knob.low) ** place)
        else:
            value = knob.low + (knob.high - knob.low) * place
        return min(max(round(value), math.ceil(knob.low)), math.floor(knob.high)) if knob.integer else round(value, 3)

    def _distinct(self, points: Collection[Cube] | Cube) -> list[Settings]:
        found = {tuple(sorted(settings.items())): settings for settings in map(self.decode, points)}
        return list(found.values())
