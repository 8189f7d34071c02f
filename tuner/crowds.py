"""How much of what windows differ by is their arrivals' doing: requests that crowd wait for each other. Pure.

A crowd is the figure of ``adaptive/measure.py`` (1: no request waits for another), here as its ln. At one setting
margins fall with it by a slope that differs between levels; where they do not follow it at all, it is found to be zero.
"""

import math
from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from gpsched.tuner.memory import distance, near
from gpsched.tuner.model import Point


_KEPT = 120  # windows whose crowds are remembered
_BEFORE = 10  # windows that the mean of those learned from earlier is worth
_CLOSE = 0.1  # of ln load: the crowds of loads that are nearer are the same
_ENOUGH = 20  # windows before their spread is known
_MANY = 30  # windows after which one more crowded than all is beyond what settings are made for
_FORGET = 0.99  # weight of what is known of slopes, a window later
_GUESS, _GUESS_WORTH = 0.5, 0.03  # the slope before anything was seen, and its worth as a sum of squares of ln
_LEVEL_WORTH = 0.05  # the same of what all levels have in common, for a single one
_STEEPEST = 2.0
_QUIET = 2.0  # standard deviations of a normal distribution that a window is kept with


class _Sums:
    """Of deviations from what is known at one setting: of crowd and margin."""

    def __init__(self) -> None:
        self.crowd2 = self.both = self.margin2 = 0.0

    def add(self, crowd: float, margin: float, weight: float) -> None:
        self.crowd2 = _FORGET * self.crowd2 + weight * crowd**2
        self.both = _FORGET * self.both + weight * crowd * margin
        self.margin2 = _FORGET * self.margin2 + weight * margin**2


class Crowds:
    """Of one set of services. ``points``: what was learned of them earlier."""

    def __init__(self, points: Sequence[Point] = ()) -> None:
        self._all_seen: deque[tuple[float, float]] = deque(maxlen=_KEPT)  # load and crowd
        self._seen: list[float] = []  # those at about the present load
        windows = sum(point.windows for point in points)
        self._before = sum(point.crowd * point.windows for point in points) / windows if windows else None
        self._all = _Sums()
        self._levels: dict[str, _Sums] = defaultdict(_Sums)

    @property
    def typical(self) -> float:
        """The mean of what was seen of late at this load, to which margins are carried."""
        if self._before is None:
            return float(np.mean(self._seen)) if self._seen else 0.0
        return (_BEFORE * self._before + sum(self._seen)) / (_BEFORE + len(self._seen))

    def follow(self, crowd: float, load: float, *, stepped: bool = False) -> None:
        """Take a window's crowd. Those at another load do not count."""
        if stepped:
            self._before = None
        self._all_seen.append((load, crowd))
        close = [crowd for then, crowd in self._all_seen if distance(then, load) < _CLOSE]
        self._seen = close if len(close) >= _ENOUGH else [crowd for then, crowd in self._all_seen if near(then, load)]

    def learn(self, level: str, known: Point, margin: float, crowd: float) -> None:
        """Take one more window at known settings."""
        weight = known.windows / (known.windows + 1.0)  # the mean so far is noisy, too
        for sums in (self._all, self._levels[level]):
            sums.add(crowd - known.crowd, margin - known.margin, weight)

    def slope(self, level: str) -> float:
        """By how much a margin at this level falls with the crowd."""
        common = (_GUESS * _GUESS_WORTH - self._all.both) / (_GUESS_WORTH + self._all.crowd2)
        own = self._levels.get(level)
        if own is not None:
            common = (common * _LEVEL_WORTH - own.both) / (_LEVEL_WORTH + own.crowd2)
        return min(max(common, 0.0), _STEEPEST)

    def unheard_of(self, crowd: float) -> bool:
        """Whether none of many windows was as crowded."""
        return len(self._seen) > _MANY and crowd >= max(self._seen)

    def carried(self, level: str, margin: float, crowd: float, to: float | None = None) -> float:
        """Return what a margin seen in one crowd would have been in another, the typical one unless it is given."""
        return margin + self.slope(level) * (crowd - (self.typical if to is None else to))

    @property
    def unexplained(self) -> float:
        """The share of the variance of margins that crowds do not account for."""
        sums = self._all
        slope = min(max(-sums.both / (sums.crowd2 + 1e-9), 0.0), _STEEPEST)
        left = sums.margin2 + 2.0 * slope * sums.both + slope**2 * sums.crowd2
        return (max(left, 0.0) + _GUESS_WORTH) / (sums.margin2 + _GUESS_WORTH)

    def spread(self, level: str, noise: float, least: float) -> float:
        """Half of the margin in the typical crowd that keeps as many windows as two standard deviations do.

        Crowds have a long tail, which their standard deviation does not tell. ``noise`` is what else windows differ by;
        ``least`` what they must differ by in all, as long as too few crowds were seen to tell.
        """
        if len(self._seen) < _ENOUGH:
            return max(noise, least)
        less = self.slope(level) * (np.array(self._seen) - self.typical)
        low, high = _QUIET * noise, _QUIET * noise + max(float(less.max()), 0.0)
        while high - low > 1e-3:
            middle = 0.5 * (low + high)
            missed = float(np.mean(ndtr((less - middle) / max(noise, 1e-6))))
            low, high = (middle, high) if missed > ndtr(-_QUIET) else (low, middle)
        return high / _QUIET


def of(crowd: float) -> float:
    """Return the ln of a figure as it was measured."""
    return math.log(max(crowd, 1.0))
