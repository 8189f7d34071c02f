"""Predicts the next burst of a process whose requests come at a constant rate, with jitter, skips and clock steps."""

from collections import deque
from statistics import median


class PeriodicPredictor:
    """A phase-locked loop on the bursts' first launches. Times in µs.

    ``next_us`` is when the next burst is expected, None while there is no steady period. The jitter is left to the
    lead statistics of the clock's candidate: this class only knows whether there is a rhythm at all.
    """

    WINDOW = 24
    MINIMUM = 12
    SHORTEST_US = 1_000.0
    LONGEST_US = 1_000_000.0
    _TOLERANCE = 0.2  # of the period: how far a burst may be off and still be one of the rhythm
    _AGREE = 0.85  # share of the recent bursts that must be in the rhythm
    _PHASE_GAIN, _PERIOD_GAIN = 0.15, 0.01
    _EVERY = 4  # bursts between looks for a rhythm
    _MISSES = 3  # predictions in a row that may fail until the rhythm is given up

    def __init__(self) -> None:
        self.period_us = 0.0
        self.next_us: float | None = None
        self._last_us: float | None = None
        self._intervals: deque[float] = deque(maxlen=self.WINDOW)
        self._agreed: deque[bool] = deque(maxlen=self.WINDOW)
        self._missed = 0
        self._wait = 0

    def burst(self, time_us: float) -> None:
        """Take the first launch of a burst."""
        last, self._last_us = self._last_us, time_us
        if last is None or time_us <= last:
            return
        self._intervals.append(time_us - last)
        if self.next_us is None:
            self._lock(time_us)
        else:
            self._follow(time_us)

    def miss(self) -> None:
        """The expected burst did not come; expect the one after it, or give up."""
        if self.next_us is None:
            return
        self._missed += 1
        if self._missed >= self._MISSES:
            self._unlock()
        else:
            self.next_us += self.period_us

    def reset(self) -> None:
        """The clock stepped: keep the period, lose the phase."""
        self._last_us = None
        self._unlock()

    def _lock(self, time_us: float) -> None:
        self._wait = max(self._wait - 1, 0)
        if len(self._intervals) < self.MINIMUM or self._wait:
            return
        self._wait = self._EVERY
        period = median(self._intervals)
        if not self.SHORTEST_US <= period <= self.LONGEST_US:
            return
        agreed = [self._error(interval, period) <= self._TOLERANCE for interval in self._intervals]
        if sum(agreed) < self._AGREE * len(agreed):
            return
        self.period_us = self._refine(period)
        self._agreed.extend(agreed)
        self._missed = 0
        self.next_us = time_us + self.period_us

    def _refine(self, period: float) -> float:
        """Average over the intervals, each divided by the number of periods that it spans."""
        steps = [max(round(interval / period), 1) for interval in self._intervals]
        return sum(self._intervals) / sum(steps)

    def _follow(self, time_us: float) -> None:
        assert self.next_us is not None
        steps = round((time_us - self.next_us) / self.period_us)
        expected = self.next_us + steps * self.period_us
        error = time_us - expected
        # Before its time and none was given up: one more between two of the rhythm.
        extra = steps < 0 and not self._missed
        self._agreed.append(not extra and abs(error) <= self._TOLERANCE * self.period_us)
        if abs(steps) > self._MISSES or sum(self._agreed) < self._AGREE * len(self._agreed):
            self._unlock()
        elif self._agreed[-1]:
            self._missed = 0
            self.period_us += self._PERIOD_GAIN * error
            self.next_us = expected + self._PHASE_GAIN * error + self.period_us
        elif not extra:
            self.next_us = expected + self.period_us

    def _unlock(self) -> None:
        self.next_us = None
        self._agreed.clear()
        self._intervals.clear()

    @staticmethod
    def _error(interval: float, period: float) -> float:
        """Distance of an interval from the next multiple of the period, in periods; skips are no error."""
        periods = interval / period
        return abs(periods - max(round(periods), 1))
