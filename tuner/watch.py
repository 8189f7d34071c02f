"""What windows differ by without any change of settings: the load, the noise, and drift. Pure."""

import math
from collections import deque
from collections.abc import Sequence

from gpsched.tuner.memory import LOAD_BAND, distance
from gpsched.tuner.model import Point, Window
from gpsched.tuner.surrogate import Noise


_SMOOTH = 0.3  # weight of a window in the load
_NOISE_STEP = 0.1  # weight of a window in the noise
_NOISE_PRIOR = 2  # repeated windows that the assumed noise is worth
_DRIFT_Z, _DRIFT_RUN = 2.5, 3  # so many deviations in as many windows are no noise
_TRIGGERED = 0.3  # a change of the share of bursts with a known trigger changes what their latencies mean


class Watch:
    """Of one kind of work. ``load``: bursts per second, less their noise; None before the first window.

    ``noise`` and ``spread`` (of ln load) to begin with: what the work before had is a better guess than none.
    """

    def __init__(self, noise: Noise | None = None, spread: float = 0.0) -> None:
        self.load: float | None = None
        self.noise = noise or Noise()
        self.spread = spread
        self._repeats = 0
        self._surprise: deque[float] = deque(maxlen=_DRIFT_RUN)
        self._triggered: list[float] = []

    def follow(self, window: Window) -> bool:
        """Take the window's load; True for a step, beyond what it spreads by itself: the load starts anew there."""
        if self.load is None:
            self.load = window.load
            return False
        bursts = max(sum(each.bursts for each in window.lc), 1)
        most = max(LOAD_BAND, 3.0 / math.sqrt(bursts), 3.0 * self.spread)  # requests may come in bunches
        off = distance(self.load, window.load)
        self.spread = math.sqrt((1 - _NOISE_STEP) * self.spread**2 + _NOISE_STEP * min(off, most) ** 2)
        stepped = off > most
        self.load = window.load if stepped else self.load + _SMOOTH * (window.load - self.load)
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
        self._repeats += 1
        step = max(_NOISE_STEP, 1.0 / (self._repeats + _NOISE_PRIOR))
        margin_sd, progress_sd = (
            math.sqrt((1 - step) * old**2 + step * min(new**2, (4 * old) ** 2))
            for old, new in zip((self.noise.margin, self.noise.progress), off, strict=True)
        )
        self.noise = Noise(max(margin_sd, 0.003), max(progress_sd, 0.001))
        return z

    def drifted(self) -> bool:
        """Whether the last windows say that something else has changed; asking forgets them."""
        found = len(self._surprise) == _DRIFT_RUN and abs(sum(self._surprise)) > _DRIFT_Z * _DRIFT_RUN
        if found:
            self._surprise.clear()
        return found
