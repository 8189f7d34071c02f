"""Where a gang goes: pure functions over a `Pool`.

All arms place through `fill`, which walks the nodes by their free GPUs; an arm differs in the order of that walk and
in the preference among nodes with equally many free GPUs.
"""

import heapq
from collections.abc import Callable, Iterable

from gpsched.tuner.cluster.model import Job, JobClass
from gpsched.tuner.cluster.pool import Pool


Score = Callable[[int], float]

# Shares of job sizes (GPUs) that the fragmentation measure of FGD assumes; facts: the GFS authors' own baseline.
TYPICAL_SIZES = {1: 0.35, 2: 0.10, 4: 0.05, 8: 0.50}


def fill(pool: Pool, job: Job, order: Iterable[int], score: Score | None = None) -> tuple[int, ...] | None:
    """Nodes for every worker, or None when the gang does not fit.

    ``order`` gives free-GPU counts, best first; within one, nodes with a lower ``score`` come first.
    A node takes as many workers as it can before the next is opened.
    """
    if pool.slots(job) < job.workers:
        return None
    nodes: list[int] = []
    for free in order:
        each = job.fits(free)
        if not each or not pool.buckets[free]:
            continue
        needed = -(-(job.workers - len(nodes)) // each)
        for node in _first(pool.buckets[free], needed, score):
            nodes += [node] * min(each, job.workers - len(nodes))
        if len(nodes) == job.workers:
            return tuple(nodes)
    return None


def _first(bucket: dict[int, None], count: int, score: Score | None) -> Iterable[int]:
    if score is None:
        return [node for node, _ in zip(bucket, range(count), strict=False)]
    if count == 1:
        return (min(bucket, key=score),)
    return heapq.nsmallest(count, bucket, key=score)


def first_fit(pool: Pool, job: Job, now_s: float) -> tuple[int, ...] | None:  # noqa: ARG001 - one signature for all arms
    """Tightest node first, no further preference: what a plain scheduler does."""
    return fill(pool, job, range(job.gpus, pool.largest + 1))


def best_fit(pool: Pool, job: Job, now_s: float) -> tuple[int, ...] | None:
    """Tightest node first; then HP beside HP on nodes with few evictions past, spot beside spot away from them.

    Spot jobs avoid nodes where spot jobs were evicted lately (they are where HP gangs land); HP jobs go there.
    """
    score = affinity(pool, job.cls, now_s) if pool.largest > 1 else None
    return fill(pool, job, range(job.gpus, pool.largest + 1), score)


def affinity(pool: Pool, cls: JobClass, now_s: float) -> Score:
    """Preference among equally free nodes, in GPUs of the same class already there; lower is better."""
    if cls is JobClass.HP:
        return lambda node: -pool.hp_on[node] - pool.heat(node, now_s)
    return lambda node: pool.hp_on[node] + pool.heat(node, now_s)


def fragmentation(free: int) -> float:
    """Expected GPUs of a node with ``free`` free GPUs that a typical next job cannot use."""
    return sum(share * (free % size if free >= size else free) for size, share in TYPICAL_SIZES.items())


def fgd_fit(pool: Pool, job: Job, now_s: float) -> tuple[int, ...] | None:  # noqa: ARG001 - one signature for all arms
    """Least growth of fragmentation first (FGD, with whole GPUs)."""
    growth = {free: fragmentation(free - job.gpus) - fragmentation(free) for free in range(job.gpus, pool.largest + 1)}
    return fill(pool, job, sorted(growth, key=lambda free: (growth[free], free)))
