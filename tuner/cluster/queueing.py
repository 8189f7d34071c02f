"""The waiting jobs of one class and one GPU model, grouped by shape so that a scheduling pass is cheap.

Jobs of one shape (workers, GPUs each) fit or do not fit together: after the first refusal a pass skips the others of
that shape.
"""

import heapq
from collections.abc import Callable, Iterator

from gpsched.tuner.cluster.pool import Run


Shape = tuple[int, int]


class ShapeQueue:
    """Runs in order of rank (lower first, ties by arrival), by shape."""

    def __init__(self) -> None:
        self._heaps: dict[Shape, list[tuple[float, int, Run]]] = {}
        self._ages: list[tuple[float, int, Run]] = []
        self._waiting: dict[Run, int] = {}
        self._sequence = 0
        self.gpus = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._waiting)

    def push(self, run: Run, rank: float) -> None:
        """Add a run."""
        shape = (run.job.workers, run.job.gpus)
        self._sequence += 1
        heapq.heappush(self._heaps.setdefault(shape, []), (rank, self._sequence, run))
        heapq.heappush(self._ages, (run.queued_since_s, self._sequence, run))
        self._waiting[run] = self._sequence
        self.gpus += run.job.total_gpus

    def oldest_wait_s(self, now_s: float) -> float:
        """Age of the run that has waited longest; 0 when empty."""
        while self._ages and self._waiting.get(self._ages[0][2]) != self._ages[0][1]:
            heapq.heappop(self._ages)
        return now_s - self._ages[0][0] if self._ages else 0.0

    def offer(self, start: Callable[[Run], bool], strict: bool) -> int:
        """Offer runs in order of rank to ``start``, which says whether it took the run; returns how many it took.

        A refusal drops the run's shape from this pass; with ``strict`` it ends the pass.
        """
        heads = [(heap[0], shape) for shape, heap in self._heaps.items()]
        heapq.heapify(heads)
        taken = 0
        while heads:
            (_, _, run), shape = heads[0]
            if not start(run):
                if strict:
                    break
                heapq.heappop(heads)
                continue
            taken += 1
            self._drop(run, shape)
            heap = self._heaps.get(shape)
            if heap:
                heapq.heapreplace(heads, (heap[0], shape))
            else:
                heapq.heappop(heads)
        return taken

    def _drop(self, run: Run, shape: Shape) -> None:
        heap = self._heaps[shape]
        heapq.heappop(heap)
        if not heap:
            del self._heaps[shape]
        del self._waiting[run]
        self.gpus -= run.job.total_gpus
