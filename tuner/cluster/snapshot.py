"""A picture of a Slurm cluster in the words of the decision functions: one `Pool` per GPU model, one `Run` per job."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpsched.tuner.cluster.model import Job, JobClass
from gpsched.tuner.cluster.pool import Pool, Run
from gpsched.tuner.cluster.slurm import SlurmJob, SlurmNode


HOLDS_GPUS = ("RUNNING", "SUSPENDED", "CONFIGURING", "STAGE_OUT", "STOPPED")


@dataclass
class Snapshot:
    """``runs`` by job number (running jobs have nodes), ``names[model]`` the node names by index, ``jobs`` as Slurm
    gave them."""

    pools: dict[str, Pool] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    jobs: dict[int, SlurmJob] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)


def take_snapshot(nodes: Iterable[SlurmNode], jobs: Iterable[SlurmJob], guarantees_s: Mapping[str, float]) -> Snapshot:
    """Build the picture. ``guarantees_s`` lists the spot QOS with their guarantees; every other QOS counts as HP.

    A node that takes no jobs is left out unless something runs on it, and then counts only what is held. What does
    not fit together (a job on an unknown node, more GPUs held than there are) is described in ``strange`` and left out.
    """
    shot = Snapshot()
    jobs = list(jobs)
    busy = _held(jobs)
    index: dict[tuple[str, str], int] = {}
    sizes: dict[str, list[int]] = {}
    for node in nodes:
        for model, gpus in node.gpus.items():
            size = gpus if node.usable else min(gpus, busy.get((model, node.name), 0))
            if size:
                index[model, node.name] = len(sizes.setdefault(model, []))
                sizes[model].append(size)
                shot.names.setdefault(model, []).append(node.name)
    shot.pools = {model: Pool(model, some) for model, some in sizes.items()}
    for one in jobs:
        run = Run(as_job(one, guarantees_s))
        run.start_s, run.evictions = one.start_s, one.restarts
        shot.jobs[one.id], shot.runs[one.id] = one, run
        if one.state in HOLDS_GPUS:
            run.guarantee_until_s = one.start_s + guarantees_s.get(one.qos, 0.0)
            _place(shot, run, one, index)
    return shot


def as_job(one: SlurmJob, guarantees_s: Mapping[str, float]) -> Job:
    """The job as the decision functions know it: tenant is the account, each node's part is one worker."""
    cls = JobClass.SPOT if one.qos in guarantees_s else JobClass.HP
    return Job(str(one.id), one.account, one.gpu_model, cls, one.workers, one.gpus, one.submit_s, 1.0, spread=True)


def _held(jobs: Iterable[SlurmJob]) -> dict[tuple[str, str], int]:
    held: dict[tuple[str, str], int] = {}
    for one in jobs:
        if one.state in HOLDS_GPUS:
            for node in one.nodes:
                held[one.gpu_model, node] = held.get((one.gpu_model, node), 0) + one.gpus
    return held


def _place(shot: Snapshot, run: Run, one: SlurmJob, index: Mapping[tuple[str, str], int]) -> None:
    places = [index.get((one.gpu_model, node)) for node in one.nodes]
    known = tuple(place for place in places if place is not None)
    pool = shot.pools.get(one.gpu_model)
    if pool is None or len(known) != len(places) or any(pool.free[place] < one.gpus for place in known):
        shot.strange.append(
            f"job {one.id} holds {one.gpus} GPUs on each of {','.join(one.nodes)}, which do not have them"
        )
        return
    pool.take(run, known)
