"""What was learned of one kind of work: a bounded set of points, each the mean of the windows at one setting and load.

Old windows count less, since machines and programs change. Pure.
"""

import math
from collections.abc import Iterable

import msgspec

from gpsched.adaptive.knobs import Settings
from gpsched.tuner.model import Point


MOST = 60
FULL = 12  # windows after which a point is a moving average, so that it follows slow drift
LOAD_BAND = 0.25  # relative; loads that are nearer count as the same
_HALF_LIFE = 400  # windows
_LEAST_TRUST = 0.002


class Entry(msgspec.Struct):
    """A point, and when (in windows) it was last seen. ``trust`` below 1: it may no longer hold."""

    point: Point
    seen: int
    trust: float = 1.0


class Memory:
    """``clock`` counts windows."""

    def __init__(self, points: Iterable[Point] = (), trust: float = 1.0) -> None:
        self.clock = 0
        self.entries: list[Entry] = [Entry(point, 0, trust) for point in points][-MOST:]

    def points(self) -> list[Point]:
        """Return what is kept, for the history."""
        return [entry.point for entry in self.entries]

    def add(
        self, settings: Settings, margin: float, progress: float, load: float, crowd: float, missed: bool, time_s: float
    ) -> Entry:
        """Learn from a window; return its point."""
        self.clock += 1
        entry = self.find(settings, load)
        if entry is None:
            entry = Entry(Point(settings=settings, margin=0, progress=0, load=load, windows=0, time_s=time_s), 0)
            self.entries.append(entry)
        old = entry.point
        before = min(old.windows, FULL) * entry.trust
        entry.point = msgspec.structs.replace(
            old,
            margin=(old.margin * before + margin) / (before + 1),
            progress=(old.progress * before + progress) / (before + 1),
            load=(old.load * before + load) / (before + 1),
            crowd=(old.crowd * before + crowd) / (before + 1),
            windows=old.windows + 1,
            misses=old.misses + missed,
            time_s=time_s,
        )
        entry.seen, entry.trust = self.clock, 1.0
        self._prune(entry)
        return entry

    def find(self, settings: Settings, load: float) -> Entry | None:
        """Return what is known of just this setting at about this load."""
        same = (entry for entry in self.entries if entry.point.settings == settings and near(entry.point.load, load))
        return min(same, key=lambda entry: distance(entry.point.load, load), default=None)

    def near(self, load: float) -> list[Entry]:
        """Return the entries at about this load."""
        return [entry for entry in self.entries if near(entry.point.load, load)]

    def noise_factor(self, entry: Entry) -> float:
        """How much larger the variance of this point is than a single fresh window's."""
        age: float = 2.0 ** ((self.clock - entry.seen) / _HALF_LIFE)
        return age / (max(min(entry.point.windows, FULL), 1) * max(entry.trust, _LEAST_TRUST))

    def doubt(self, trust: float, keep: Entry | None = None) -> None:
        """Everything may have changed (but what was seen just now)."""
        for entry in self.entries:
            if entry is not keep:
                entry.trust = min(entry.trust, trust)

    def forget(self) -> None:
        """Forget everything."""
        self.entries.clear()

    def _prune(self, newest: Entry) -> None:
        while len(self.entries) > MOST:
            worst = max((entry for entry in self.entries if entry is not newest), key=self._expendable)
            self.entries.remove(worst)

    def _expendable(self, entry: Entry) -> float:
        """Old, little seen, and far from what is good."""
        best = max(other.point.progress for other in self.entries)
        behind = (best - entry.point.progress) / max(best, 1e-9)
        return self.noise_factor(entry) + behind


def near(one: float, other: float) -> bool:
    """Whether two loads count as the same."""
    return distance(one, other) <= LOAD_BAND


def distance(one: float, other: float) -> float:
    """|ln| of the ratio of two loads; none at all and hardly any are the same."""
    return abs(math.log((one + 1e-3) / (other + 1e-3)))
