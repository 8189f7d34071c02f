"""What a window teaches of the settings that were in force, if it can teach anything. Pure."""

import math
from dataclasses import dataclass

import msgspec

from gpsched.adaptive.knobs import Settings
from gpsched.tuner import crowds
from gpsched.tuner.crowds import Crowds
from gpsched.tuner.model import Window
from gpsched.tuner.search import Search
from gpsched.tuner.space import LEVEL
from gpsched.tuner.watch import Watch


_OVERLOAD = -0.7  # a margin from which requests piled up: the next window suffers, whatever its settings
_DOUBT = 0.2  # what is known from before a drift counts for no more
CHANGING = "the load is changing"


@dataclass(frozen=True)
class Lesson:
    """How surprising the window was, and by how much the last ones say that something else has changed (0: nothing).

    Both in standard deviations; what was never seen before is infinitely surprising.
    """

    surprise: float
    drift: float


class Lessons:
    """Of one GPU, window after window. ``watch``: what windows differ by without any change of settings."""

    def __init__(self) -> None:
        self.watch = Watch()
        self._overloaded = False

    def begin(self, arrivals: Crowds) -> None:
        """Other work: what windows differed by is the best guess, with these crowds."""
        self.watch = Watch(self.watch.noise, self.watch.spread, arrivals)

    def objection(self, window: Window, settings: Settings) -> str | None:
        """Why nothing can be learned from this window; None when something can. ``settings``: that should hold."""
        overloaded = self._overloaded
        self._overloaded = not overloaded and window.margin is not None and window.margin < _OVERLOAD
        stepped = self.watch.follow(window)
        relearned = self.watch.meaning_changed([each.triggered for each in window.lc])
        if window.margin is None or window.progress is None:
            return "too few bursts to judge the objectives"
        if window.settings != settings:
            return "the settings were not in force all the time"
        if stepped:
            return CHANGING
        if overloaded and window.verdict == "missed":
            return "what piled up in the window before was still being worked off"
        if relearned:
            return "what announces the bursts is still being learned"
        return None

    def learn(self, search: Search, window: Window, *, missed: bool) -> Lesson:
        """Put it into the search's memory; after a drift what is known counts less."""
        watch, settings = self.watch, window.settings
        load, margin = watch.load or 0.0, window.margin or 0.0
        progress = search.carried(settings, window.progress or 0.0, window.load, load)
        crowd, level = crowds.of(window.crowd), str(settings[LEVEL])
        surprise = math.inf
        if (known := search.memory.find(settings, load)) is not None:
            watch.crowds.learn(level, known.point, margin, crowd)
            carried = watch.crowds.carried(level, margin, crowd, known.point.crowd)
            surprise = watch.repeated(known.point, carried, progress)
        entry = search.memory.add(settings, margin, progress, load, crowd=crowd, missed=missed, time_s=window.time_s)
        drift = watch.drifted()
        if not drift:
            return Lesson(surprise, 0.0)
        search.memory.doubt(min(_DOUBT, drift**-2), keep=entry)  # what was known may be as far off
        entry.point = msgspec.structs.replace(
            entry.point, margin=margin, progress=progress, crowd=crowd, windows=1, misses=int(missed)
        )
        return Lesson(math.inf, drift)
