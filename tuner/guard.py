"""Room before a busy phase: how much of best-effort work's time must be cut for one that is foretold. Pure."""

from dataclasses import replace

from gpsched.adaptive.knobs import Settings
from gpsched.tuner.search import Idea, Search
from gpsched.tuner.space import SHARE


_BUSIER = 1.3  # a load that is so much larger is a busy phase
_SHARES = (0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1)


class Guard:
    """``cap``: the largest share for best-effort work that what is expected would stand; 1 without a busy phase."""

    def __init__(self) -> None:
        self.cap, self._expected = 1.0, 0.0

    @property
    def waits(self) -> bool:
        """Whether a busy phase is expected that the settings would not stand."""
        return self.cap < 1.0

    def look(
        self, search: Search | None, settings: Settings, now: float | None, expected: float | None, floor: float
    ) -> None:
        """Take what is expected: the largest load to come. ``floor``: the least share that may be left."""
        self._expected, self.cap = expected or 0.0, 1.0
        if search is None or expected is None or now is None or expected < _BUSIER * now:
            return
        full = settings | {SHARE: 1.0}
        if search.predict_margin(full, expected) >= 0.0:
            return
        shares = [share for share in _SHARES if share >= floor] or [1.0]
        fit = (share for share in shares if search.predict_margin(full | {SHARE: share}, expected) >= 0.0)
        self.cap = next(fit, shares[-1])

    def within(self, idea: Idea) -> Idea:
        """The same idea, cut to what may be left."""
        share = min(float(idea.settings[SHARE]), self.cap)
        return replace(idea, settings=idea.settings | {SHARE: share}) if share < 1.0 else idea

    def cuts(self, before: Settings, after: Settings) -> bool:
        """Whether a change makes room for the busy phase."""
        return self.waits and float(after[SHARE]) < float(before[SHARE])

    def why(self, now: float) -> str:
        """Why it is made."""
        return f"{self._expected:.0f} bursts a second are expected, {now:.0f} now: room is made before"
