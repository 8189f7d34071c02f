"""Room that spot jobs leave for HP arrivals, counted in slots of the sizes that HP workers ask for.

Free GPUs are not room: an HP worker of eight GPUs needs a node with eight free, and where the free ones are scattered
it evicts although enough are free in all. So spot may fill fragments, but must leave whole slots.
"""

from collections import Counter
from collections.abc import Sequence
from math import log

from gpsched.tuner.cluster.model import HOUR_S
from gpsched.tuner.cluster.pool import Pool


Slots = tuple[int, int]  # (GPUs of a slot, how many slots)


class ArrivalRates:
    """HP jobs an hour by GPUs a worker; each arrival counts half after ``half_life_s``.

    ``prior_s``: the first rates are reckoned as if this time had been watched, so that one early job is no rush.
    """

    def __init__(self, begin_s: float = 0.0, half_life_s: float = 12 * HOUR_S, prior_s: float = 6 * HOUR_S) -> None:
        self._begin_s, self._half_life_s, self._prior_s = begin_s, half_life_s, prior_s
        self._counts: dict[int, tuple[float, float]] = {}  # GPUs a worker -> count decayed to the time beside it

    def add(self, gpus: int, now_s: float) -> None:
        """An HP job whose workers take ``gpus`` each was submitted."""
        self._counts[gpus] = (self._count(gpus, now_s) + 1.0, now_s)

    def expected(self, now_s: float, span_s: float) -> list[tuple[int, float]]:
        """(g, jobs expected within ``span_s`` whose workers take g GPUs or more), largest g first."""
        watched_s = now_s - self._begin_s + self._prior_s
        window_s = self._half_life_s / log(2) * (1.0 - 0.5 ** (watched_s / self._half_life_s))
        found, jobs = [], 0.0
        for gpus in sorted(self._counts, reverse=True):
            jobs += self._count(gpus, now_s) * span_s / window_s
            found.append((gpus, jobs))
        return found

    def _count(self, gpus: int, now_s: float) -> float:
        count, since_s = self._counts.get(gpus, (0.0, now_s))
        left: float = count * 0.5 ** ((now_s - since_s) / self._half_life_s)
        return left


def slots_to_keep(expected: Sequence[tuple[int, float]], deviations: float) -> list[Slots]:
    """How many slots of each size to leave free: ``deviations`` standard deviations of the (Poisson) arrivals.

    The mean is not kept free: what finishes meanwhile makes room for it.
    """
    kept = [(gpus, round(deviations * jobs**0.5)) for gpus, jobs in expected]
    return [(gpus, slots) for gpus, slots in kept if slots]


def leaves(pool: Pool, nodes: Sequence[int], gpus: int, keep: Sequence[Slots]) -> bool:
    """Whether workers of ``gpus`` on ``nodes`` (a node may repeat) leave the slots, or take none that counts."""
    taken = Counter(nodes)
    for size, slots in keep:
        lost = sum(pool.free[node] // size - (pool.free[node] - gpus * count) // size for node, count in taken.items())
        if (
            lost
            and sum(len(pool.buckets[free]) * (free // size) for free in range(size, pool.largest + 1)) - lost < slots
        ):
            return False
    return True
