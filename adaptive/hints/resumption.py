"""When a learner that was told nothing for a while can take up again: between bursts, so that none seems shorter."""

from gpsched.adaptive.hints.observations import Observation, SyncReturn, Tick


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
