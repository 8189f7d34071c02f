"""How long to keep the GPU after the last known activity, learned from the gaps that were seen.

The ski-rental question: a gap that is bridged costs its length, one that is not costs the time waited plus a switch
there and back. The best fixed answer over the recent gaps is taken; it is 0 where every gap is long.
"""

from collections import deque


class QuietTime:
    """The quiet time in µs: ``default`` until ``MINIMUM`` gaps were seen, then within ``least`` and ``most``."""

    MINIMUM = 16
    WINDOW = 256
    _EVERY = 16

    def __init__(self, switch_us: float, *, default: float, least: float = 0.0, most: float = 5_000.0) -> None:
        self.us = default
        self._switch, self._least, self._most = switch_us, least, most
        self._gaps: deque[float] = deque(maxlen=self.WINDOW)
        self._new = 0

    def add(self, gap_us: float) -> None:
        """Learn one gap: from the last activity to the next."""
        self._gaps.append(gap_us)
        self._new += 1
        if self._new >= self._EVERY and len(self._gaps) >= self.MINIMUM:
            self._new = 0
            self.us = self._best()

    def _best(self) -> float:
        gaps = sorted(self._gaps)
        best, least_cost = 0.0, len(gaps) * self._switch
        bridged = 0.0
        for longer, gap in zip(range(len(gaps) - 1, -1, -1), gaps, strict=True):
            # Bridging the shortest gaps waits as long as the last of them in vain at each longer one; a little longer,
            # for the next one like it.
            limit = gap * 1.25
            if limit > self._most:
                break
            bridged += gap
            cost = bridged + longer * (limit + self._switch)
            if cost < least_cost:
                best, least_cost = limit, cost
        return min(max(best, self._least), self._most)
