"""How well reservations foresaw the bursts of one process: those of the actuator against the launches that came."""

import math
from collections import deque
from statistics import median

from gpsched.adaptive.actuator.records import Reason, Record
from gpsched.adaptive.histogram import DurationHistogram


_BOUNDS_US = [float(step * 10**power) for power in range(1, 7) for step in (1, 2, 5)]
_PENDING = 256
_RECENT = 1000
#: From when a reservation is due until it begins, until measured: the actuator's start, and a hold's launch. µs.
FIRST_US = {"reserve": 60, "hold": 100}
_MOST_US, _STEP_US = 300, 20  # on a machine that is too busy; what makes a difference


class Foresight:
    """Counts since the start. Times are µs of CLOCK_MONOTONIC.

    Bursts come from the learner and reservations from the actuator, each in order of time but not among one another: a
    burst is judged by the first reservation that ended after its launch, for then all earlier ones are known.

    ``margin``: from the start of the reservation to the launch, of bursts that were reserved before; ``unreserved``:
    how many were not. A hold starts with its launch. ``reacted_us``: the last times from when a reservation was due to
    its first control.
    """

    def __init__(self) -> None:
        self.margin = DurationHistogram(_BOUNDS_US)
        self.unreserved = self.in_vain = 0
        self.reacted_us: deque[float] = deque(maxlen=_RECENT)
        self._launches: deque[float] = deque(maxlen=_PENDING)
        self._reserved: deque[tuple[float, float]] = deque(maxlen=_PENDING)

    def began(self, launch_us: float) -> None:
        """A burst began."""
        self._launches.append(launch_us)
        self._judge()

    def reservation(self, record: Record, reacted_us: float | None) -> None:
        """A reservation ended. ``reacted_us``: from when it was due to its first control; None where nobody knows."""
        if not record.begin_ns:
            return
        vain = record.reason is Reason.NO_LAUNCH or (not record.launch_ns and record.reason is not Reason.EXIT)
        self.in_vain += vain
        if reacted_us is not None:
            self.reacted_us.append(reacted_us)
        self._reserved.append((record.begin_ns / 1000, record.end_ns / 1000))
        self._judge()

    def _judge(self) -> None:
        while self._launches and self._reserved:
            begin_us, end_us = self._reserved[0]
            if end_us < self._launches[0]:
                self._reserved.popleft()
                continue
            margin_us = self._launches.popleft() - begin_us
            if margin_us > 0.0:
                self.margin.observe(margin_us)
            else:
                self.unreserved += 1


class Reaction:
    """How long it takes from when a reservation is due until it begins, on this machine: ``us``.

    The median: a hold that comes later still hides most (docs/results: an H200's needs half of what is reckoned with).
    """

    _EVERY = 64

    def __init__(self, first_us: int) -> None:
        """``first_us``: until measured."""
        self.us = first_us
        self._seen: deque[float] = deque(maxlen=8 * self._EVERY)
        self._new = 0

    def add(self, reacted_us: float) -> bool:
        """Learn from one reservation; True when ``us`` changed."""
        self._seen.append(reacted_us)
        self._new += 1
        if self._new < self._EVERY:
            return False
        self._new, before = 0, self.us
        usual = median(self._seen)
        self.us = min(math.ceil(usual / _STEP_US) * _STEP_US, _MOST_US)
        return self.us != before


def reacted_us(record: Record, due_us: float | None, *, hold: bool = False) -> float | None:
    """From when a reservation was due, ``due_us`` after its trigger, until it began; None where nobody knows.

    It begins with its first control; a ``hold`` with its launch, which the actuator notes as ``ready_ns``.
    """
    begin_ns = record.ready_ns if hold else record.begin_ns
    if due_us is None or not begin_ns:
        return None
    reacted = (begin_ns - record.trigger_ns) / 1000 - due_us
    return reacted if reacted >= 0.0 else None  # it was planned otherwise
