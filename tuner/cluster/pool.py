"""The GPUs of one model: which are free, and who holds the others.

The simulator keeps one `Pool` up to date event by event; the Slurm controller builds one from a snapshot. The decision
functions (placement.py, victims.py) read a pool and change nothing.
"""

from collections.abc import Sequence

from gpsched.tuner.cluster.model import HOUR_S, Job, JobClass


class Run:
    """One job's state from submission to completion; the fields are seconds where they end in ``_s``."""

    __slots__ = (
        "evictions",
        "first_wait_s",
        "guarantee_until_s",
        "job",
        "lost_s",
        "nodes",
        "queued_since_s",
        "remaining_s",
        "start_s",
        "starts",
        "waited_s",
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        self.remaining_s = job.duration_s
        self.queued_since_s = job.submit_s
        self.start_s = 0.0
        self.nodes: tuple[int, ...] = ()
        self.guarantee_until_s = 0.0
        self.evictions = 0
        self.starts = 0
        self.waited_s = 0.0
        self.first_wait_s = -1.0
        self.lost_s = 0.0


class Pool:
    """Nodes of one GPU model. ``buckets[f]`` holds the nodes with f free GPUs, as an ordered set."""

    def __init__(self, model: str, sizes: Sequence[int]) -> None:
        self.model = model
        self.sizes = list(sizes)
        self.capacity = sum(sizes)
        self.free = list(sizes)
        self.largest = max(sizes, default=0)
        self.buckets: list[dict[int, None]] = [{} for _ in range(self.largest + 1)]
        for node, size in enumerate(sizes):
            self.buckets[size][node] = None
        self.not_hp = [len([1 for size in sizes if size == free]) for free in range(self.largest + 1)]
        self.used = [0, 0]  # GPUs held, by JobClass
        self.hp_on = [0] * len(self.sizes)  # GPUs of HP jobs, by node
        self.spot_on: list[dict[Run, int]] = [{} for _ in self.sizes]  # node -> spot run -> its GPUs there
        self.spot_runs: dict[Run, None] = {}
        self._heat = [(0.0, 0.0)] * len(self.sizes)  # eviction count decayed to the time beside it

    @property
    def free_gpus(self) -> int:
        """GPUs nobody holds."""
        return self.capacity - self.used[0] - self.used[1]

    def slots(self, job: Job) -> int:
        """How many workers of the job fit into what is free."""
        return sum(len(self.buckets[free]) * job.fits(free) for free in range(job.gpus, self.largest + 1))

    def potential_slots(self, job: Job) -> int:
        """How many workers of the job would fit if every spot run were evicted."""
        return sum(self.not_hp[free] * job.fits(free) for free in range(job.gpus, self.largest + 1))

    def take(self, run: Run, nodes: tuple[int, ...]) -> None:
        """Give the run one worker on each node of ``nodes`` (a node may repeat)."""
        run.nodes = nodes
        spot = run.job.cls is JobClass.SPOT
        for node in nodes:
            self._move(node, -run.job.gpus)
            if spot:
                self.spot_on[node][run] = self.spot_on[node].get(run, 0) + run.job.gpus
            else:
                self._move_hp(node, run.job.gpus)
        self.used[run.job.cls] += run.job.gpus * len(nodes)
        if spot:
            self.spot_runs[run] = None

    def release(self, run: Run) -> None:
        """Take back all that the run holds."""
        spot = run.job.cls is JobClass.SPOT
        for node in run.nodes:
            self._move(node, run.job.gpus)
            if spot:
                self.spot_on[node].pop(run, None)
            else:
                self._move_hp(node, -run.job.gpus)
        self.used[run.job.cls] -= run.job.gpus * len(run.nodes)
        self.spot_runs.pop(run, None)
        run.nodes = ()

    def note_eviction(self, node: int, now_s: float, half_life_s: float = 6 * HOUR_S) -> None:
        """Remember that a spot job was evicted from the node."""
        self._heat[node] = (self.heat(node, now_s, half_life_s) + 1.0, now_s)

    def heat(self, node: int, now_s: float, half_life_s: float = 6 * HOUR_S) -> float:
        """Evictions on the node, each counting half after ``half_life_s``."""
        count, since_s = self._heat[node]
        return count * 0.5 ** ((now_s - since_s) / half_life_s) if count else 0.0

    def _move(self, node: int, change: int) -> None:
        free = self.free[node]
        del self.buckets[free][node]
        self.free[node] = free + change
        self.buckets[free + change][node] = None

    def _move_hp(self, node: int, change: int) -> None:
        rest = self.sizes[node] - self.hp_on[node]
        self.not_hp[rest] -= 1
        self.not_hp[rest - change] += 1
        self.hp_on[node] += change

    def check(self) -> None:
        """Assert that no GPU was lost or given twice."""
        for node, free in enumerate(self.free):
            held = self.hp_on[node] + sum(self.spot_on[node].values())
            assert 0 <= free <= self.sizes[node], f"node {node} has {free} free of {self.sizes[node]}"
            assert free + held == self.sizes[node], f"node {node}: {free} free + {held} held"
            assert node in self.buckets[free]
        assert sum(self.free) == self.free_gpus
        assert sum(map(len, self.buckets)) == len(self.sizes)
