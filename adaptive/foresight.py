"""How well reservations foresaw the bursts of one process: those of the actuator against the launches that came."""

from bisect import bisect_left
from collections import deque

from gpsched.adaptive.actuator.records import Reason, Record
from gpsched.adaptive.histogram import DurationHistogram


_BOUNDS_US = [float(step * 10**power) for power in range(1, 7) for step in (1, 2, 5)]
_PENDING = 256
_RECENT = 1000
_PATIENCE_US = 1.5e6  # a burst is cut after a second


class Foresight:
    """Counts since the start. Times are µs of CLOCK_MONOTONIC.

    Reservations come from the actuator in order of time. Bursts come from the learner in an order of their own, and one
    of a time in which it was told nothing comes late. A burst is judged by the first reservation that ended after its
    launch, for then all earlier ones are known; where none comes, once it would have ended long ago: those of a time
    without reservations are not to be counted among what comes after it.

    ``margin``: from the start of the reservation to the launch, of bursts that were reserved before; ``unreserved``:
    how many were not. A hold starts with its launch. ``allowed`` and ``allowed_unreserved``: the same of the bursts
    whose lead allowed a reservation in time. ``reacted_us``: the last times from when a reservation was due to its
    first control.
    """

    def __init__(self) -> None:
        self.margin = DurationHistogram(_BOUNDS_US)
        self.allowed = DurationHistogram(_BOUNDS_US)
        self.unreserved = self.allowed_unreserved = self.in_vain = 0
        self.reacted_us: deque[float] = deque(maxlen=_RECENT)
        self._launches: deque[tuple[float, bool]] = deque(maxlen=_PENDING)
        self._reserved: deque[tuple[float, float]] = deque(maxlen=_PENDING)  # begin and end
        self._latest_us = 0.0

    def began(self, launch_us: float, allowed: bool) -> None:
        """A burst began; ``allowed``: its lead was long enough."""
        self._launches.append((launch_us, allowed))
        self._judge(launch_us)

    def reservation(self, record: Record, reacted_us: float | None) -> None:
        """A reservation ended. ``reacted_us``: from when it was due to its first control; None where nobody knows."""
        if not record.begin_ns:
            return
        vain = record.reason is Reason.NO_LAUNCH or (not record.launch_ns and record.reason is not Reason.EXIT)
        self.in_vain += vain
        if reacted_us is not None:
            self.reacted_us.append(reacted_us)
        self._reserved.append((record.begin_ns / 1000, record.end_ns / 1000))
        self._judge(record.end_ns / 1000)

    def _judge(self, now_us: float) -> None:
        self._latest_us = max(self._latest_us, now_us)
        for _ in range(len(self._launches)):
            launch_us, allowed = burst = self._launches.popleft()
            place = bisect_left(self._reserved, launch_us, key=lambda reserved: reserved[1])
            if place < len(self._reserved):
                self._count(launch_us - self._reserved[place][0], allowed)
            elif launch_us < self._latest_us - _PATIENCE_US:
                self._count(0.0, allowed)
            else:
                self._launches.append(burst)

    def _count(self, margin_us: float, allowed: bool) -> None:
        if margin_us > 0.0:
            self.margin.observe(margin_us)
            if allowed:
                self.allowed.observe(margin_us)
        else:
            self.unreserved += 1
            self.allowed_unreserved += allowed
