"""What a cluster and its jobs are. All times are seconds since the start of the trace."""

from dataclasses import dataclass, field
from enum import IntEnum

from gpsched.tuner.cluster.errors import JobError


HOUR_S = 3600.0
DAY_S = 86400.0


class JobClass(IntEnum):
    """High priority (gets GPUs at once) or spot (fills the rest, may be evicted)."""

    HP = 0
    SPOT = 1


@dataclass(frozen=True, slots=True)
class Job:
    """A gang: ``workers`` processes of ``gpus`` whole GPUs each, all started and stopped together.

    ``spread``: every worker needs a node of its own (as the nodes of a Slurm job do).
    """

    id: str
    tenant: str
    gpu_model: str
    cls: JobClass
    workers: int
    gpus: int
    submit_s: float
    duration_s: float
    spread: bool = False

    @property
    def total_gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.workers * self.gpus

    def fits(self, free: int) -> int:
        """Workers that fit on a node with ``free`` free GPUs."""
        return min(1, free // self.gpus) if self.spread else free // self.gpus


@dataclass(frozen=True)
class Cluster:
    """Nodes by GPU model: ``nodes[model]`` lists the GPUs of each node."""

    name: str
    nodes: dict[str, list[int]]

    def capacity(self, model: str) -> int:
        """GPUs of one model."""
        return sum(self.nodes[model])

    @property
    def total_gpus(self) -> int:
        """GPUs of all models."""
        return sum(map(sum, self.nodes.values()))

    def check(self, job: Job) -> None:
        """Raise JobError when the job could never run here, even on an empty cluster."""
        if job.gpu_model not in self.nodes:
            raise JobError(job.id, f"GPU model {job.gpu_model!r} is not in cluster {self.name}")
        if job.workers < 1 or job.gpus < 1:
            raise JobError(job.id, f"{job.workers} workers of {job.gpus} GPUs")
        if not 0 <= job.submit_s < float("inf") or not 0 < job.duration_s < float("inf"):
            raise JobError(job.id, f"submitted at {job.submit_s} s for {job.duration_s} s")
        room = sum(map(job.fits, self.nodes[job.gpu_model]))
        if room < job.workers:
            raise JobError(job.id, f"{job.workers} workers of {job.gpus} GPUs, the cluster holds {room} at most")


@dataclass
class Workload:
    """Jobs in order of submission, the cluster they run on, and the HP demand seen before the first of them.

    ``history[(model, tenant)]`` is GPUs, hourly maxima, oldest first; all lists have the same length.
    ``skipped`` counts the rows a reader left out, by reason.
    """

    name: str
    cluster: Cluster
    jobs: list[Job]
    horizon_s: float
    history: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
