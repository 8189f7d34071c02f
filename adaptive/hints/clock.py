"""Makes the clock a trigger candidate like any other: an instant before each burst that the rhythm leads to expect."""

import math
from typing import NamedTuple

from gpsched.adaptive.hints.periodic import PeriodicPredictor


class Rhythm(NamedTuple):
    """Reserve at ``start_us`` and every ``every_us`` from then on; launches are expected ``lead_us`` later."""

    start_us: float
    every_us: float
    lead_us: float

    def shifted(self, by_us: float) -> "Rhythm":
        """The same, with each reservation so much later."""
        return self._replace(start_us=self.start_us + by_us, lead_us=self.lead_us - by_us)

    def after(self, now_us: float) -> "Rhythm":
        """The same, without what is past."""
        past = max(math.ceil((now_us - self.start_us) / self.every_us), 0)
        return self._replace(start_us=self.start_us + past * self.every_us)


class Clock:
    """Occurrences ``guard_us`` before each expected burst; their leads are the guard plus the jitter. µs."""

    GUARD_US = 20_000.0

    def __init__(self) -> None:
        self.predictor = PeriodicPredictor()
        self._occurrence_us: float | None = None  # not due yet
        self._miss_us: float | None = None
        self.next_us = math.inf  # nothing is due or missed before

    @property
    def guard_us(self) -> float:
        """How long before the expected burst the occurrence is."""
        return min(self.predictor.period_us / 2, self.GUARD_US)

    @property
    def upcoming_us(self) -> float | None:
        """The next occurrence, when one is expected and not due yet."""
        return self._occurrence_us

    def burst(self, time_us: float) -> None:
        """A burst began: expect the next."""
        self.predictor.burst(time_us)
        self._schedule()

    def due(self, now_us: float) -> float | None:
        """Return the time of the occurrence that has become due, once."""
        occurrence = self._occurrence_us
        if occurrence is None or now_us < occurrence:
            return None
        self._occurrence_us = None
        self._note_next()
        return occurrence

    def missed(self, now_us: float) -> bool:
        """Whether the expected burst is overdue; then the one after it is expected."""
        if self._miss_us is None or now_us < self._miss_us:
            return False
        self.predictor.miss()
        self._schedule()
        return True

    def skip(self, now_us: float) -> None:
        """Nothing was told of what came before now."""
        self.predictor.skip(now_us)
        self._schedule()

    def rhythm(self, offset_us: float) -> Rhythm | None:
        """Return when to reserve, ``offset_us`` after each occurrence; None where there is no rhythm now."""
        expected = self.predictor.next_us
        lead_us = self.guard_us - offset_us
        return None if expected is None else Rhythm(expected - lead_us, self.predictor.period_us, lead_us)

    def reset(self) -> None:
        """The clock stepped, or nothing happened for long."""
        self.predictor.reset()
        self._schedule()

    def _schedule(self) -> None:
        expected = self.predictor.next_us
        self._occurrence_us = None if expected is None else expected - self.guard_us
        self._miss_us = None if expected is None else expected + self.guard_us
        self._note_next()

    def _note_next(self) -> None:
        self.next_us = min((at for at in (self._occurrence_us, self._miss_us) if at is not None), default=math.inf)
