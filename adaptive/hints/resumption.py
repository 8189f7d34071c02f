"""When a learner that was told nothing for a while takes up again: between two bursts, so that none seems shorter."""

from gpsched.adaptive.hints.observations import Lost, Observation, Rest, SyncReturn, Tick


_NEVER = (float("inf"), float("inf"))


class Respite:
    """A time in which a learner is told nothing, from ``begin`` until ``end`` says so. Times in µs."""

    def __init__(self) -> None:
        self.lasts = False
        self._missing = _NEVER  # from when until when it was told nothing last
        self._resumption: Resumption | None = None  # it is told again, and waits for a burst's end

    def begin(self, now_us: float) -> None:
        """From now on what comes is but a remainder."""
        self.lasts, self._missing, self._resumption = True, (now_us, float("inf")), None

    def end(self, observation: Observation, quiet_us: float) -> float | None:
        """Return how long it lasted when this is to be learned from again; None until then.

        ``quiet_us``: how long after a synchronisation a burst may go on.
        """
        if isinstance(observation, Rest | Lost):  # what is lost is lost of what is told again: see aside.py
            self._resumption = Resumption() if isinstance(observation, Lost) or observation.over else None
            return None
        if self._resumption is None or not self._resumption.is_over(observation, quiet_us):
            return None
        self.lasts, self._missing = False, (self._missing[0], observation.time_us)
        return self._missing[1] - self._missing[0]

    def covers(self, time_us: float) -> bool:
        """Whether this instant belongs to it, or to the last one."""
        return self._missing[0] <= time_us < self._missing[1]


class Resumption:
    """Feed it what is observed until it is over. Times in µs."""

    PATIENCE_US = 200_000.0  # a program that is not seen to synchronise is taken up in between

    def __init__(self) -> None:
        self._first_us: float | None = None
        self._synced_us: float | None = None

    def is_over(self, observation: Observation, quiet_us: float) -> bool:
        """Whether to learn from this on: nothing came for longer than ``quiet_us`` after a synchronisation's return."""
        now = observation.time_us
        if self._synced_us is not None and now > self._synced_us + quiet_us:
            return True
        if isinstance(observation, Tick):
            return False
        if self._first_us is None:
            self._first_us = now
        self._synced_us = now if isinstance(observation, SyncReturn) else None
        return now > self._first_us + self.PATIENCE_US
