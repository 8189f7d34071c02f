"""Which services are known so well that the kernel need not tell the daemon of each of their bursts.

The actuator serves a service by its plan, without the daemon, and its records tell of the bursts meanwhile. So what was
learned is looked at for a while now and then, at once when reservations fail, and all else costs next to nothing.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping

from gpsched.adaptive.actuator.records import Reason, Record
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.hints.observations import WakeKind


_FAILED = {Reason.NO_LAUNCH, Reason.MISSED, Reason.LIMIT}
_NEARLY_ALL = 0.98


class Resting:
    """Services rest for longer and longer while what was learned goes on to serve them."""

    OBSERVED_S, OBSERVED = 1.0, 64  # time and bursts at least between two rests
    SHORTEST_S, LONGEST_S = 2.0, 15.0
    EVERY_S = 0.25
    FAILURES, LATE, OF = 4, 8, 32  # reservations that end a rest, of the last so many

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watches: dict[int, _Watch] = {}
        self._next_s = 0.0

    @property
    def pids(self) -> frozenset[int]:
        """Return the services that rest."""
        return frozenset(pid for pid, watch in self._watches.items() if watch.until_s is not None)

    @property
    def due(self) -> bool:
        """Whether ``update`` is worth a call."""
        return self._clock() >= self._next_s

    def update(self, known: Mapping[int, int]) -> frozenset[int]:
        """Take the services that could rest, and how many bursts of each were observed; return who begins or ends to.

        Whoever could not for a moment is looked at for longer again.
        """
        now, before = self._clock(), self.pids
        self._next_s = now + self.EVERY_S
        self._watches = {pid: self._watches.get(pid) or _Watch(now, bursts) for pid, bursts in known.items()}
        for pid, bursts in known.items():
            self._watches[pid].follow(now, bursts)
        return before ^ self.pids

    def wake(self, pid: int) -> None:
        """It is to be observed: what was learned is not all there is."""
        watch = self._watches.get(pid)
        if watch is not None and watch.until_s is not None:
            watch.until_s = self._next_s = self._clock()

    def reserved(self, record: Record) -> None:
        """What became of a reservation: where several fail, or begin late, what was learned no longer holds."""
        watch = self._watches.get(record.pid)
        if watch is not None and watch.take(record):
            self._next_s = self._clock()


class _Watch:
    """One service. ``until_s``: when its rest is over; None while it is observed."""

    def __init__(self, now_s: float, bursts: int) -> None:
        self.until_s: float | None = None
        self._since_s, self._bursts = now_s, bursts
        self._rest_s = Resting.SHORTEST_S
        self._failed: deque[bool] = deque(maxlen=Resting.OF)
        self._late: deque[bool] = deque(maxlen=Resting.OF)

    def follow(self, now_s: float, bursts: int) -> None:
        if self.until_s is None and self._was_observed(now_s, bursts):
            self.until_s = now_s + self._rest_s
            self._rest_s = min(2 * self._rest_s, Resting.LONGEST_S)
            self._failed.clear()
            self._late.clear()
        elif self.until_s is not None and now_s >= self.until_s:
            self.until_s, self._since_s, self._bursts = None, now_s, bursts

    def take(self, record: Record) -> bool:
        """Return whether the rest is to end: so far reservations do not do what they are for."""
        self._failed.append(record.reason in _FAILED)
        self._late.append(bool(record.launch_ns) and not 0 < record.begin_ns <= record.launch_ns)
        bad = sum(self._failed) >= Resting.FAILURES or sum(self._late) >= Resting.LATE
        if self.until_s is None or not bad:
            return False
        self.until_s, self._rest_s = 0.0, Resting.SHORTEST_S
        return True

    def _was_observed(self, now_s: float, bursts: int) -> bool:
        return now_s >= self._since_s + Resting.OBSERVED_S and bursts >= self._bursts + Resting.OBSERVED


def announces_all(choice: Choice) -> bool:
    """Whether next to no burst comes without a trigger that the actuator sees or foretells: it has records of all."""
    if any(trigger.matcher.kind == WakeKind.BURST_END for trigger in choice.triggers):
        return False
    return choice.state == "sure" and sum(trigger.recall for trigger in choice.triggers) >= _NEARLY_ALL
