"""What is believed of settings at the present load: what they give, how surely they keep the objectives, how often not.

Pure. What was measured (``memory``), the model that it corrects, and what windows differ by without any change.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import ndtr

from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.knobs import Settings, Value
from gpsched.tuner.crowds import Crowds
from gpsched.tuner.memory import Entry, Memory, near
from gpsched.tuner.model import Expectation
from gpsched.tuner.prior import Demand
from gpsched.tuner.space import LEVEL, Cube, Space
from gpsched.tuner.surrogate import Noise, Prediction, Surrogate


_QUIET = 2.3  # standard deviations of a window by which settings must be safe to stay
_SLACK = (0.01, 1.0)  # bounds of what the latter comes to
_ALIKE_WITHIN = 1.0  # of a knob's range: misses are so rare that most of a level counts together
_MODEL_WORTH = 2.0  # windows that the model's word on misses is worth
_MISSES = (0.5, 0.04)  # so many windows at a setting, plus this share of them, may have missed


class Outlook:
    """Of one kind of work on one GPU. Call ``update`` after the memory changed or the load did."""

    def __init__(
        self,
        space: Space,
        memory: Memory,
        costs: Mapping[str, Costs] = LEVELS,
        start: Settings | None = None,
    ) -> None:
        self.space, self.memory = space, memory
        self.start = space.complete(start) if start else space.start()
        self._surrogate = Surrogate(space, costs)
        self.load, self.noise, self._crowds = 0.0, Noise(), Crowds()
        self._spread: dict[Value, float] = {}

    def slacks(self, settings: Sequence[Settings]) -> Cube:
        """The margin that each must have, so that noise and crowds hardly ever make a window miss."""
        return np.clip(_QUIET * self.spreads(settings), *_SLACK)

    def spreads(self, settings: Sequence[Settings]) -> Cube:
        """What windows differ by at each of these, as a standard deviation of the margin."""
        return np.array([self._spread.get(each[LEVEL], self.noise.margin) for each in settings])

    def update(self, demand: Demand, load: float, noise: Noise, crowds: Crowds) -> None:
        """Fit the model to what is known."""
        self.load, self.noise, self._crowds = load, noise, crowds
        levels = {*self.space.levels, *(entry.point.settings[LEVEL] for entry in self.memory.entries)}
        self._spread = {level: crowds.spread(str(level), noise.margin, noise.least) for level in levels}
        self._surrogate.fit(self.memory, demand, noise, crowds)

    def predict(self, settings: Sequence[Settings], load: float | None = None) -> Prediction:
        """Return what these would give at the present load, or another."""
        return self._surrogate.predict(settings, self.load if load is None else load)

    def excuses(self, crowd: float) -> bool:
        """Whether such a crowd alone makes a window miss.

        It is one that was never seen before, and nothing known, nor a level that was not tried, may keep it then.
        """
        if not self._crowds.unheard_of(crowd):
            return False
        seen = {entry.point.settings[LEVEL] for entry in self.memory.near(self.load)}
        known = self.known() + [self.space.start(level) for level in self.space.levels if level not in seen]
        found = self.predict(known)
        slopes = np.array([self._crowds.slope(str(each[LEVEL])) for each in known])
        sd = np.hypot(found.margin_sd, self.noise.margin)
        hopes = found.margin + sd
        return bool((hopes >= 0.0).any() and (hopes < slopes * (crowd - self._crowds.typical)).all())

    def carried(self, settings: Settings, progress: float, load: float, to: float) -> float:
        """Return what progress measured at one load would have been at another: most of its noise is the load's."""
        return self._surrogate.carried(settings, progress, load, to)

    def expect(self, settings: Settings) -> Expectation:
        """Return what is expected of these settings at the present load."""
        return expectation(self.predict([settings]), 0)

    def predict_margin(self, settings: Settings, load: float) -> float:
        """Return the margin expected at another load, less one standard deviation."""
        found = self.predict([settings], load)
        return float(found.margin[0] - found.margin_sd[0])

    def known(self) -> list[Settings]:
        """Settings of which something is known at this load, else at any; those that missed if there are no others."""
        usable = [entry for entry in self.memory.entries if self.space.holds(entry.point.settings)]
        close = [entry for entry in usable if near(entry.point.load, self.load)]
        for entries in (
            [each for each in close if was_kept(each)],
            [each for each in usable if was_kept(each)],
            usable,
        ):
            if entries:
                known = {settings_key(each.point.settings): each.point.settings for each in entries}
                return list(known.values()) + ([] if entries == close else [self.start])
        return [self.start]

    def close(self) -> list[Entry]:
        """What is known at this load."""
        return [each for each in self.memory.near(self.load) if self.space.holds(each.point.settings)]

    def risks(self, settings: list[Settings], found: Prediction) -> Cube:
        """How likely a window misses: what the model says, corrected by the windows that were seen to.

        Misses are rare, so those of all that is alike count together.
        """
        expected = ndtr(-found.margin / np.hypot(found.margin_sd, self.spreads(settings)))
        close = self.close()
        if not close:
            return np.asarray(expected)
        alike = np.array([[self._likeness(one, entry.point.settings) for entry in close] for one in settings])
        misses = np.array([entry.point.misses for entry in close])
        windows = np.array([entry.point.windows for entry in close])
        risks: Cube = (_MODEL_WORTH * expected + alike @ misses) / (_MODEL_WORTH + alike @ windows)
        return risks

    def _likeness(self, one: Settings, other: Settings) -> float:
        """From 1 (the same) to 0; other levels are nothing alike."""
        away = self.space.numbers(one) - self.space.numbers(other)
        return math.exp(-0.5 * float(away @ away) / _ALIKE_WITHIN**2) if one[LEVEL] == other[LEVEL] else 0.0


def was_kept(entry: Entry) -> bool:
    """Whether the objectives were kept here, but for rare bad luck."""
    return entry.point.misses <= _MISSES[0] + _MISSES[1] * entry.point.windows


def settings_key(settings: Settings) -> tuple[tuple[str, object], ...]:
    """Return the same for the same settings."""
    return tuple(sorted(settings.items()))


def expectation(found: Prediction, number: int) -> Expectation:
    """Return one of the predictions, for people."""
    return Expectation(progress=round(float(found.progress[number]), 4), margin=round(float(found.margin[number]), 4))
