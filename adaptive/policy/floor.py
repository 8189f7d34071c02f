"""The floor of best-effort work where slices decide: a latency-critical process that always computes leaves it nothing.

Reservations have a bound of their own (``max_reserved``). But whoever has slices of 1 s beside slices of 1 µs needs no
reservation to keep the GPU, as long as it always has work. Then the actuator keeps it off for the floor's part of the
time, in *breaks*. Without an actuator both get slices in proportion; that costs a service with short gaps much more, as
the other has a whole slice in each of them.
"""

import math
from dataclasses import dataclass


_BE_US = 4_096  # of the best-effort process that runs; long beside a change of context
_LC_US = 2_048  # at least, for the same reason
_LONGEST_US = 1_000_000
_HEAD_US = 36.0  # part of each slice that passes while the context is loaded (docs/simgpu.md)
_SHORTEST_US = 2_000
_MOST = 0.95  # of the time in breaks
_LEAVES = 0.9  # crowding ends below this part of where it began
_WINDOWS = 2  # of a second: it begins once this many in a row were full


def slices(floor: float, switch_us: float, lc: int = 1, be: int = 1) -> tuple[int, int]:
    """Return the slices in µs of ``lc`` and ``be`` processes with which the latter keep the floor (0 to 1) together.

    In a round everybody has one slice, and each begins with a change of context.
    """
    lost = (lc + be) * switch_us
    lc_us = (be * (_BE_US - _HEAD_US) / floor - be * _BE_US - lost) / lc
    if lc_us >= _LC_US:
        return min(_LONGEST_US, int(lc_us)), _BE_US
    be_us = (floor * (lc * _LC_US + lost) / be + _HEAD_US) / max(1.0 - floor, 1e-6)
    return _LC_US, min(_LONGEST_US, math.ceil(be_us))


def breaks(floor: float, break_us: int, slo_us: float | None = None) -> tuple[int, int]:
    """Return how long a break lasts and how often it comes, µs, so that it is the floor's part of the time.

    No longer than half the shortest objective, if that leaves more than the controls take.
    """
    if slo_us is not None:
        break_us = min(break_us, max(_SHORTEST_US, round(slo_us / 2)))
    return break_us, math.ceil(break_us / min(floor, _MOST))


@dataclass
class Crowding:
    """Whether the latency-critical processes of a GPU leave less than the floor; fed once a second, with hysteresis."""

    crowded: bool = False
    _full: int = 0

    def feed(self, used: float, floor: float) -> None:
        """``used``: share of the last second in which latency-critical work ran, or the GPU changed to it and back."""
        limit = 1.0 - floor
        if floor <= 0.0:
            self.crowded, self._full = False, 0
            return
        bound = limit * _LEAVES if self.crowded else limit
        self._full = self._full + 1 if (used >= bound) != self.crowded else 0
        if self._full >= _WINDOWS:
            self.crowded, self._full = not self.crowded, 0
