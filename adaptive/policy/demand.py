"""How much GPU time latency-critical processes need, from their bursts. Times in µs; fed by the daemon's loop.

A second in which bursts of several processes overlapped is divided among them, since each waited for the others; so
the needs of one GPU never add up to more than all of it.
"""

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median


WINDOW_US = 1e6
_WINDOWS = 30
_ENOUGH = 3
_BURSTS = 64


@dataclass
class _Process:
    bursts: list[tuple[float, float]] = field(default_factory=list)  # that ended in this window
    since_us: float | None = None
    count: int = 0
    shares: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOWS))
    counts: deque[int] = field(default_factory=lambda: deque(maxlen=_WINDOWS))
    lengths: deque[float] = field(default_factory=lambda: deque(maxlen=_BURSTS))

    def close(self, share: float) -> None:
        self.shares.append(share)
        self.counts.append(self.count)
        self.bursts.clear()
        self.count = 0


class Demand:
    """The bursts of the last half minute, second by second."""

    def __init__(self, now_us: float = 0.0) -> None:
        self._processes: defaultdict[int, _Process] = defaultdict(_Process)
        self._window_us = now_us

    def began(self, pid: int, time_us: float) -> None:
        """The first launch of a burst."""
        self._processes[pid].since_us = time_us

    def ended(self, pid: int, start_us: float, end_us: float) -> None:
        """The burst is over."""
        process = self._processes[pid]
        process.since_us = None
        process.count += 1
        process.bursts.append((start_us, end_us))
        process.lengths.append(end_us - start_us)

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._processes.pop(pid, None)

    def close(self, now_us: float, sharers: Iterable[Collection[int]]) -> bool:
        """End the second if it is over, and return whether it was.

        ``sharers``: for each GPU, its latency-critical processes.
        """
        if now_us - self._window_us < WINDOW_US:
            return False
        spans = {pid: self._spans(process, now_us) for pid, process in self._processes.items()}
        shares: dict[int, float] = {}
        for pids in sharers:
            used = divide({pid: spans[pid] for pid in pids if pid in spans})
            for pid, us in used.items():
                shares[pid] = max(shares.get(pid, 0.0), us / (now_us - self._window_us))
        for pid, process in self._processes.items():
            process.close(min(1.0, shares.get(pid, 0.0)))
        self._window_us = now_us
        return True

    def need(self, pid: int, quantile: float) -> float | None:
        """Return the quantile of the share of a GPU that it used in a second; None while too little is known."""
        process = self._processes.get(pid)
        if process is None or len(process.shares) < _ENOUGH:
            return None
        ordered = sorted(process.shares)
        return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)]

    def last(self, pid: int) -> float:
        """Return the share of the last second."""
        process = self._processes.get(pid)
        return process.shares[-1] if process and process.shares else 0.0

    def rate(self, pid: int) -> int:
        """Return the bursts of the last second."""
        process = self._processes.get(pid)
        return process.counts[-1] if process and process.counts else 0

    def burst_us(self, pid: int) -> float:
        """Return how long its bursts are: the median of the last ones, 0 while there were none."""
        process = self._processes.get(pid)
        return median(process.lengths) if process and process.lengths else 0.0

    def _spans(self, process: _Process, now_us: float) -> list[tuple[float, float]]:
        spans = [*process.bursts, *([(process.since_us, now_us)] if process.since_us is not None else [])]
        clipped = [(max(start, self._window_us), min(end, now_us)) for start, end in spans]
        return [(start, end) for start, end in clipped if start < end]


def divide(spans: Mapping[int, list[tuple[float, float]]]) -> dict[int, float]:
    """Return the µs of each: time in which k of them were busy counts for one k-th each."""
    edges = sorted((time, step, pid) for pid, own in spans.items() for a, b in own for time, step in ((a, 1), (b, -1)))
    used = dict.fromkeys(spans, 0.0)
    depth: dict[int, int] = {}
    before = edges[0][0] if edges else 0.0
    for time, step, pid in edges:
        busy = [each for each, count in depth.items() if count > 0]
        for each in busy:
            used[each] += (time - before) / len(busy)
        depth[pid] = depth.get(pid, 0) + step
        before = time
    return used
