"""Predicts the next burst of a process whose requests come at a constant rate, with jitter, skips and clock steps."""

import math
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
    _USUAL_GAIN, _TRUSTED = 0.1, 3.0  # an error beyond so many usual ones is followed as if it were that
    _LEAST_US = 5.0
    _EVERY = 4  # bursts between looks for a rhythm
    _MISSES = 3  # predictions in a row that may fail until the rhythm is given up
    _STEP, _STEP_BURSTS = 0.02, 3  # of the period, and bursts that must be as far off: the phase has changed
    _AGAIN = 4  # intervals of a rhythm that was known before to find it again: requests paused, a client came back
    _AGAIN_TOLERANCE = 0.05
    _SETTLING = 12  # bursts after which the phase is known: the first ones take longer where caches are cold

    def __init__(self) -> None:
        self.period_us = 0.0
        self.next_us: float | None = None
        self._last_us: float | None = None
        self._intervals: deque[float] = deque(maxlen=self.WINDOW)
        self._agreed: deque[bool] = deque(maxlen=self.WINDOW)
        self._errors: deque[float] = deque(maxlen=self._STEP_BURSTS)  # of the last bursts in µs
        self._usual_us = 0.0  # size of the errors
        self._missed = 0
        self._followed = 0  # bursts since the phase was set
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

    def skip(self, now_us: float) -> None:
        """Nothing was told of what came before now: expect the next burst of the rhythm."""
        if self.next_us is not None and self.next_us < now_us:
            self.next_us += math.ceil((now_us - self.next_us) / self.period_us) * self.period_us

    def reset(self) -> None:
        """The clock stepped: keep the period, lose the phase."""
        self._last_us = None
        self._unlock()

    def _lock(self, time_us: float) -> None:
        if self._known_again():
            self._agreed.extend([True] * self._AGAIN)
            self._expect(self._due(time_us))
            return
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
        self._usual_us = self._STEP * period
        self._expect(self._due(time_us))

    def _known_again(self) -> bool:
        """Whether the last intervals are those of the last rhythm."""
        last = list(self._intervals)[-self._AGAIN :]
        if len(last) < self._AGAIN or not self.period_us:
            return False
        return all(self._error(interval, self.period_us) <= self._AGAIN_TOLERANCE for interval in last)

    def _stepped(self) -> bool:
        """Whether the last bursts are all off by about the same: the requests keep their rate but not their phase."""
        errors = sorted(self._errors)
        if len(errors) < self._STEP_BURSTS:
            return False
        least = min(abs(errors[0]), abs(errors[-1]))
        return least > self._STEP * self.period_us and errors[-1] - errors[0] < least / 2

    def _recent_period(self) -> float:
        """The median of the last intervals is blind to the one in which the phase changed."""
        period = median(list(self._intervals)[-self.MINIMUM :])
        return period if abs(period / self.period_us - 1.0) <= self._TOLERANCE else self.period_us

    def _expect(self, time_us: float) -> None:
        self._errors.clear()
        self._missed = self._followed = 0
        self.next_us = time_us + self.period_us

    def _due(self, time_us: float) -> float:
        """When the last burst was due, by it and those before.

        One of the earliest counts, since the first ones come late where caches are cold; but not the earliest alone.
        """
        due = [time_us]
        for interval in list(self._intervals)[: -self._AGAIN - 1 : -1]:
            steps = max(round(interval / self.period_us), 1)
            if steps > self._MISSES:
                break  # a pause, after which the phase is another
            due.append(due[-1] + steps * self.period_us - interval)
        return sorted(due)[len(due) // 4]

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
        if not extra:
            self._errors.append(error)
        if self._stepped():
            self.period_us = self._recent_period()
            self._expect(time_us)
        elif abs(steps) > self._MISSES or sum(self._agreed) < self._AGREE * len(self._agreed):
            self._unlock()
        elif self._agreed[-1]:
            self._missed = 0
            self._followed += 1
            trusted = self._trust(error)
            if abs(error) <= self._STEP * self.period_us:  # else it may be the phase
                self.period_us += self._PERIOD_GAIN * trusted
            settled = self._followed > self._SETTLING
            phase = expected + self._PHASE_GAIN * trusted if settled else self._due(time_us)
            self.next_us = phase + self.period_us
        elif not extra:
            self.next_us = expected + self.period_us

    def _trust(self, error: float) -> float:
        """One request that was held up must not make the next ones seem to come later; several in a row do."""
        most = self._TRUSTED * self._usual_us + self._LEAST_US
        if len(self._errors) == self._STEP_BURSTS and (min(self._errors) > most or max(self._errors) < -most):
            return error
        self._usual_us += self._USUAL_GAIN * (min(abs(error), most) - self._usual_us)
        return max(-most, min(error, most))

    def _unlock(self) -> None:
        self.next_us = None
        self._agreed.clear()
        while len(self._intervals) > self._AGAIN:  # enough to see that only the phase has changed
            self._intervals.popleft()

    @staticmethod
    def _error(interval: float, period: float) -> float:
        """Distance of an interval from the next multiple of the period, in periods; skips are no error."""
        periods = interval / period
        return abs(periods - max(round(periods), 1))
