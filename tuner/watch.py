"""What windows differ by without any change of settings: the load, the noise, and drift. Pure."""

import math
from collections import deque
from collections.abc import Sequence

from gpsched.tuner import crowds, objective
from gpsched.tuner.crowds import Crowds
from gpsched.tuner.memory import LOAD_BAND, distance
from gpsched.tuner.model import Point, Window
from gpsched.tuner.surrogate import Noise
from gpsched.tuner.tail import Tail


_SMOOTH = 0.3  # weight of a window in the load
_NOISE_STEP = 0.1  # weight of a window in the noise
_SLOW_STEP = 0.03  # the same in the noise of the margin that is not forgotten so soon: rare large values matter most
_NOISE_PRIOR = 2  # repeated windows that the assumed noise is worth
_DRIFT_Z, _DRIFT_RUN = 2.5, 3  # so many deviations in as many windows are no noise, nor twice as many in one less
_TRIGGERED = 0.3  # a change of the share of bursts with a known trigger changes what their latencies mean


class Watch:
    """Of one kind of work. ``load``: bursts per second, less their noise; None before the first window.

    ``noise``, ``spread`` (of ln load) and ``crowds`` to begin with: what the work before had is a better guess.
    """

    def __init__(self, noise: Noise | None = None, spread: float = 0.0, crowds: Crowds | None = None) -> None:
        self.load: float | None = None
        self.crowds = crowds or Crowds()
        self.spread = spread
        self._noise = noise or Noise()
        self._slow = self._noise.margin
        self._tail = Tail()
        self._bursts = 0.0  # of a window, the mean of late
        self._sampling = 0.0  # noise of the margin that the number of bursts alone explains
        self._windows = self._repeats = 0
        self._surprise: deque[float] = deque(maxlen=_DRIFT_RUN)
        self._calm: deque[tuple[Noise, float]] = deque(maxlen=_DRIFT_RUN)  # the noise before each of these
        self._triggered: list[float] = []

    @property
    def noise(self) -> Noise:
        """As it was seen, of late and for long, and not less than there must be."""
        unexplained = self._sampling * math.sqrt(self.crowds.unexplained)
        margin = max(self._noise.margin, self._slow, unexplained)
        return Noise(margin, self._noise.progress, self._sampling, self._tail.room)

    @property
    def bunch(self) -> float:
        """Bursts that come together: the variance of their number in a window over its mean, if that is more."""
        return max(self.spread**2 * self._bursts, 1.0)

    def follow(self, window: Window) -> bool:
        """Take the window's load; True for a step, beyond what it spreads by itself: the load starts anew there."""
        if self.load is None:
            self.load = window.load
            self.crowds.follow(crowds.of(window.crowd), self.load)
            return False
        self._windows += 1
        bursts = max(sum(each.bursts for each in window.lc), 1)
        most = max(LOAD_BAND, 3.0 / math.sqrt(bursts), 3.0 * self.spread)  # requests may come in bunches
        off = distance(self.load, window.load)
        step = max(_NOISE_STEP, 1.0 / (self._windows + 1))
        self.spread = math.sqrt((1 - step) * self.spread**2 + step * min(off, most) ** 2)
        self._bursts += step * (bursts - self._bursts)
        error = max((objective.sampling_error(each, self.spread**2 * each.bursts) for each in window.lc), default=0.0)
        self._sampling += step * (error - self._sampling)
        stepped = off > most
        self.load = window.load if stepped else self.load + _SMOOTH * (window.load - self.load)
        self.crowds.follow(crowds.of(window.crowd), self.load, stepped=stepped)
        return stepped

    def meaning_changed(self, triggered: Sequence[float]) -> bool:
        """Whether latencies count from elsewhere than in the window before, for hints have learned something."""
        was, self._triggered = self._triggered, list(triggered)
        same_services = len(was) == len(triggered)
        return same_services and any(abs(a - b) > _TRIGGERED for a, b in zip(was, triggered, strict=True))

    def repeated(self, known: Point, margin: float, progress: float) -> float:
        """Learn from one more window at known settings; return how surprising it is, in standard deviations."""
        wide = math.sqrt(1.0 + 1.0 / known.windows)  # the mean so far is noisy, too
        off = (margin - known.margin) / wide, (progress / max(known.progress, 1e-6) - 1.0) / wide
        z = max(off[0] / max(self.noise.margin, 0.01), off[1] / max(self.noise.progress, 0.003), key=abs)
        self._surprise.append(z)
        self._calm.append((self._noise, self._slow))
        self._tail.add(off[0])
        self._repeats += 1
        self._noise = Noise(
            max(self._followed(self._noise.margin, off[0], _NOISE_STEP), 0.003),
            max(self._followed(self._noise.progress, off[1], _NOISE_STEP), 0.001),
        )
        self._slow = max(self._followed(self._slow, off[0], _SLOW_STEP), 0.003)
        return z

    def _followed(self, deviation: float, off: float, weight: float) -> float:
        """A standard deviation after one more value; a single one counts for four of it at most."""
        step = max(weight, 1.0 / (self._repeats + _NOISE_PRIOR))
        return math.sqrt((1 - step) * deviation**2 + step * min(off**2, (4 * deviation) ** 2))

    def drifted(self) -> float:
        """By how many standard deviations the last windows say that something else has changed; 0 when they do not.

        Asking forgets them.
        """
        last = list(self._surprise)
        for run, least in ((_DRIFT_RUN, _DRIFT_Z), (_DRIFT_RUN - 1, 2 * _DRIFT_Z)):
            mean = sum(last[-run:]) / run
            if len(last) >= run and abs(mean) > least and min(z * mean for z in last[-run:]) > 0.0:
                self._surprise.clear()
                self._tail.drop(run)
                self._noise, self._slow = self._calm[-run]  # what looked like noise was none
                return abs(mean)
        return 0.0
