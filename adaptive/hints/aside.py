"""What was learned about processes that are left alone for now: managed again soon, they need not be learned anew."""

import time
from collections import OrderedDict
from collections.abc import Callable

from gpsched.adaptive.hints.adapter import EventAdapter
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Lost


_KEPT = 16
_KEPT_S = 600.0

Learned = tuple[HintLearner, EventAdapter]


class SetAside:
    """The last few, for ten minutes, by pid and start time (a reused pid is another program). ``clock`` gives s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[int, int], tuple[float, Learned]] = OrderedDict()

    def put(self, pid: int, start_ticks: int, learned: Learned) -> None:
        """Keep it."""
        self._kept[pid, start_ticks] = (self._clock(), learned)
        self._kept.move_to_end((pid, start_ticks))
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def take(self, pid: int, start_ticks: int) -> Learned | None:
        """Return it once, None when there is none; what was pending in it is dropped."""
        put, learned = self._kept.pop((pid, start_ticks), (0.0, None))
        if learned is None or self._clock() - put > _KEPT_S:
            return None
        learned[0].observe(Lost(time.monotonic_ns() / 1000, 0))
        return learned
