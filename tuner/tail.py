"""How far windows fall below what settings give on average, at worst: a standard deviation does not tell it. Pure.

Machines delay a request now and then, and of few requests the slowest is their p99: one of thousands shows.
"""

from collections import deque


_KEPT = 120  # windows
_RARE = 0.02  # of them that may be worse
_ASSUMED = 0.2  # of a window that was not seen: a request that meets one more turn of a job


class Tail:
    """Of windows at settings that were known before."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_KEPT)

    def add(self, off: float) -> None:
        """Take by how much a window's margin was off what was known."""
        self._seen.append(off)

    def drop(self, count: int) -> None:
        """The last ones were no noise."""
        for _ in range(min(count, len(self._seen))):
            self._seen.pop()

    @property
    def room(self) -> float:
        """The margin that would have kept all windows but those few."""
        worst = sorted([*self._seen, -_ASSUMED])
        return max(-worst[int(_RARE * len(worst))], 0.0)
