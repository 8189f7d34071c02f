"""Requests that came too late for the present burst, and wait until it is over: nothing wakes the process for them.

Two signs tell of them. Which wakes queue requests and which take them from the queue the choice knows (its source and
taker): one that came after the last were taken, or too late before a launch to have caused it, waits. And a thread may
have read several at once (``unserved``).
"""

from gpsched.adaptive.hints.bursts import Burst
from gpsched.adaptive.hints.matching import Match
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.hints.observations import PROBED, Wake
from gpsched.adaptive.hints.unserved import Unserved


class Waiting:
    """Follows wakes, launches and bursts of one process. µs."""

    def __init__(self) -> None:
        self._unserved = Unserved()
        self._queued_us = 0.0  # last wake of the source
        self._taken_us = 0.0  # when queued requests were taken last
        self._busy_until = 0.0  # so long requests that waited at a burst's end keep the process busy
        self._ended_us = float("-inf")
        self._woken_us = 0.0  # its last wake

    def busy(self, now: float) -> bool:
        """Whether requests that waited are on their way to their launch."""
        return now < self._busy_until

    @property
    def wakes_nobody(self) -> bool:
        """Whether nothing has woken the process since its last burst ended, so that nothing could announce the next."""
        return 0.0 < self._woken_us <= self._ended_us

    def wake(self, wake: Wake, now: float) -> None:
        """A thread came back from a wait, or is being woken out of it."""
        if wake.kind in PROBED:
            self._woken_us = now
            self._unserved.wake(wake.kind, wake.tid)

    def matched(self, match: Match, now: float, *, busy: bool) -> None:
        """The wake is one of those that queue requests, or that take them."""
        if match.queues:
            self._queued_us = now
        if match.takes and not busy:
            self._taken_us = now

    def launch(self, now: float, tid: int) -> float:
        """A burst begins; return how long the process has had none."""
        self._busy_until = 0.0
        self._unserved.launch(tid)
        return max(now - self._ended_us, 0.0)

    def ended(self, burst: Burst, choice: Choice, *, reads: bool) -> int:
        """A burst is over: 0 when nothing waits, else a sum of the signs.

        1: by their age at its launch; 2: by who took the others; 4: read together with the one that it served.
        ``reads``: whether reads announce the launches of their own thread.
        """
        waiting = self._signs(burst, choice) + 4 * (reads and self._unserved.waits)
        self._ended_us = burst.end_us
        return waiting

    def taken(self, now: float, choice: Choice) -> None:
        """What waited is taken now, and busy until its launch: for as long as a burst is waited for at most."""
        self._taken_us = now
        limits = (each.limit_us for each in (choice.source, *choice.triggers[:1]) if each)
        self._busy_until = now + max(limits, default=0.0)

    def _signs(self, burst: Burst, choice: Choice) -> int:
        if choice.source is None:
            return 0
        young = self._queued_us > burst.start_us - choice.source.young_us
        taken = self._ended_us <= self._taken_us <= burst.start_us and self._queued_us > self._taken_us
        return young + 2 * taken
