"""Whether a level does what was expected of it: bursts at that level against those that were only switched to."""

from collections import defaultdict, deque
from collections.abc import Mapping
from statistics import median

from gpsched.adaptive.model import Level


_SAMPLES = 64
_LEAST_BASE, _LEAST = 16, 32  # bursts that tell
_WORSE, _WORSE_US = 1.02, 10.0  # than at level timeslice: more is no noise
_UNLAUNCHED = 16  # holds in a row
_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 3600.0
_LEVELS: tuple[Level, ...] = ("reserve", "hold")


class Outcomes:
    """The lengths of a process' bursts by level. A level that makes them longer is left out for a while, then longer.

    Figures decide on a level beforehand; this notices when they were wrong. Bursts may have become longer for reasons
    of their own, too: so some without a level are looked at again before one is left out.
    """

    def __init__(self) -> None:
        self._lengths: defaultdict[Level, deque[float]] = defaultdict(lambda: deque(maxlen=_SAMPLES))
        self._until_s: dict[Level, float] = {}
        self._pause_s: dict[Level, float] = {}
        self._why: dict[Level, str] = {}
        self._suspects: set[Level] = set()  # with which bursts are compared to new ones without
        self._looking = False  # for these
        self._unlaunched = 0

    def ended(self, level: Level, length_us: float, now_s: float) -> str:
        """Take a burst; return what was found by it where another level is to be chosen now, else an empty text."""
        lengths = self._lengths[level]
        lengths.append(length_us)
        if level == "timeslice":
            return self._looked()
        if not self._is_worse(level):
            if len(lengths) == _SAMPLES:
                self._suspects.discard(level)
            return ""
        lengths.clear()
        if level not in self._suspects:
            return self._look(level)
        self._suspects.discard(level)
        self._leave(level, "its bursts took longer with it than without", now_s)
        return f"bursts take longer at level {level} than without it"

    def begin_anew(self) -> None:
        """Bursts of now are no comparison for those of before; levels that were left stay so."""
        self._lengths.clear()
        self._suspects.clear()
        self._looking = False

    def held(self, launched: bool, now_s: float) -> bool:
        """Take what became of a hold that was asked for; True when they prove to be launched never, or too late."""
        self._unlaunched = 0 if launched else self._unlaunched + 1
        if self._unlaunched < _UNLAUNCHED:
            return False
        self._unlaunched = 0
        self._leave("hold", "its holds were not launched in time", now_s)
        return True

    def disproved(self, now_s: float) -> Mapping[Level, str]:
        """Return the levels to leave out now, and why."""
        if self._looking:
            return dict.fromkeys(_LEVELS, "a few bursts without it are looked at, to compare")
        return {level: self._why[level] for level, until_s in self._until_s.items() if now_s < until_s}

    def _leave(self, level: Level, why: str, now_s: float) -> None:
        pause_s = self._pause_s[level] = min(2 * self._pause_s.get(level, _PAUSE_S / 2), _LONGEST_PAUSE_S)
        self._until_s[level], self._why[level] = now_s + pause_s, why

    def _is_worse(self, level: Level) -> bool:
        lengths, base = self._lengths[level], self._lengths["timeslice"]
        enough = len(lengths) >= _LEAST and len(base) >= _LEAST_BASE
        return enough and median(lengths) > median(base) * _WORSE + _WORSE_US

    def _look(self, level: Level) -> str:
        self._suspects.add(level)
        self._lengths["timeslice"].clear()
        self._looking = True
        return f"bursts seem to take longer at level {level}; {_LEAST_BASE} without it are looked at"

    def _looked(self) -> str:
        if not self._looking or len(self._lengths["timeslice"]) < _LEAST_BASE:
            return ""
        self._looking = False
        return "bursts without a level were looked at"
