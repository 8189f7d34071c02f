"""One cycle's decisions for a cluster seen through a `Snapshot`: pure, and made of the simulator's own functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpsched.tuner.cluster.model import HOUR_S, JobClass
from gpsched.tuner.cluster.placement import best_fit
from gpsched.tuner.cluster.pool import Run
from gpsched.tuner.cluster.quota import class_limits, spot_quota
from gpsched.tuner.cluster.reserve import Slots, leaves
from gpsched.tuner.cluster.snapshot import HOLDS_GPUS, Snapshot
from gpsched.tuner.cluster.victims import CostModel, cheapest


WAITS_FOR_GPUS = ("Resources", "Priority", "None", "ReqNodeNotAvail", "BeginTime")
MANAGED = "gpsched"  # a job held with this word in its comment is placed and released by the controller
HELD = "JobHeldUser"


@dataclass(frozen=True)
class Eviction:
    """Requeue ``victims`` (job numbers) for HP job ``preemptor``; ``price`` in GPU-seconds."""

    preemptor: int
    victims: tuple[int, ...]
    price: float


@dataclass(frozen=True)
class Placement:
    """Release a held job onto ``nodes``."""

    job: int
    nodes: tuple[str, ...]


def quota_limits(
    shot: Snapshot,
    demand: Mapping[str, Mapping[int, float]],
    eta: Mapping[str, float],
    guarantees_s: Mapping[str, float],
    reserve: float,
) -> dict[str, dict[str, int]]:
    """GrpTRES of each spot QOS: qos -> model -> GPUs.

    ``demand[model]`` is h -> upper quantile of HP demand. The QOS without guarantee gets all that HP does not use
    now, less ``reserve`` times the rise expected within the shortest horizon and less what guaranteed jobs hold.
    """
    limits: dict[str, dict[str, int]] = {qos: {} for qos in guarantees_s}
    by_hours = {seconds / HOUR_S: qos for qos, seconds in guarantees_s.items() if seconds > 0}
    for model, pool in shot.pools.items():
        held, wanted = _by_qos(shot, model)
        expected = demand.get(model) or {1: float(pool.capacity)}
        hp_now = pool.used[JobClass.HP] + sum(wanted.get(qos, 0) for qos in wanted if qos not in guarantees_s)
        guaranteed = sum(held.get(qos, 0) for qos in by_hours.values())
        if by_hours:
            peaks = {hours: max(_within(expected, hours), hp_now) for hours in by_hours}
            quota = spot_quota(pool.capacity, peaks, eta.get(model, 1.0))
            some_held = {hours: held.get(qos, 0) for hours, qos in by_hours.items()}
            some_wanted = {hours: wanted.get(qos, 0) for hours, qos in by_hours.items()}
            for hours, limit in class_limits(quota, some_held, some_wanted).items():
                limits[by_hours[hours]][model] = limit
        rise = max(0.0, min(expected.values(), default=0.0) - hp_now)
        plain = max(0, pool.capacity - hp_now - int(reserve * rise) - guaranteed)
        for qos, seconds in guarantees_s.items():
            if seconds <= 0:
                limits[qos][model] = plain
    return limits


def _within(expected: Mapping[int, float], hours: float) -> float:
    """Demand expected within ``hours``: that of the shortest horizon that covers them, else of the longest."""
    return expected[min((one for one in expected if one >= hours), default=max(expected))]


def _by_qos(shot: Snapshot, model: str) -> tuple[dict[str, int], dict[str, int]]:
    """GPUs held and waited for, by QOS."""
    held: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for number, one in shot.jobs.items():
        if one.gpu_model != model:
            continue
        side = held if one.state in HOLDS_GPUS else wanted if one.state == "PENDING" else None
        if side is not None:
            side[one.qos] = side.get(one.qos, 0) + shot.runs[number].job.total_gpus
    return held, wanted


def evictions(shot: Snapshot, now_s: float, cost: CostModel, most: int) -> list[Eviction]:
    """For each waiting HP job that does not fit, the cheapest victims; at most ``most`` jobs in all.

    The snapshot is changed as if the decisions had been carried out, so that the next job sees what is left.
    """
    found: list[Eviction] = []
    left = most
    waiting = [one for one in shot.jobs.values() if _waits(shot, one.id)]
    for one in sorted(waiting, key=lambda one: (-one.priority, one.submit_s, one.id)):
        run, pool = shot.runs[one.id], shot.pools[one.gpu_model]
        victims: list[Run] = []
        if best_fit(pool, run.job, now_s) is None:
            victims = cheapest(pool, run.job, now_s, cost) or []
            if not victims or len(victims) > left:
                continue
            price = sum(cost.cost(victim, now_s) for victim in victims)
            found.append(Eviction(one.id, tuple(int(victim.job.id) for victim in victims), price))
            left -= len(victims)
            for victim in victims:
                pool.release(victim)
        nodes = best_fit(pool, run.job, now_s)
        assert nodes is not None, "victims did not make the room they promised"
        pool.take(run, nodes)
    return found


def _waits(shot: Snapshot, number: int) -> bool:
    one = shot.jobs[number]
    if one.state != "PENDING" or shot.runs[number].job.cls is not JobClass.HP or one.gpu_model not in shot.pools:
        return False
    return one.reason in WAITS_FOR_GPUS or is_managed(one.reason, one.comment)


def is_managed(reason: str, comment: str) -> bool:
    """Whether a job is held for the controller to place."""
    return reason == HELD and MANAGED in comment.split()


def placements(
    shot: Snapshot,
    now_s: float,
    limits: Mapping[str, Mapping[str, int]],
    keep: Mapping[str, Sequence[Slots]],
) -> list[Placement]:
    """Nodes for the held jobs that are ours: HP jobs where `evictions` put them, then spot jobs as far as limits and
    room go, but for the slots that each model is to ``keep`` for HP arrivals."""
    found: list[Placement] = []
    ours = [one for one in shot.jobs.values() if one.state == "PENDING" and is_managed(one.reason, one.comment)]
    for one in sorted(ours, key=lambda one: (shot.runs[one.id].job.cls, one.submit_s, one.id)):
        run, pool = shot.runs[one.id], shot.pools.get(one.gpu_model)
        if pool is None:
            continue
        if run.job.cls is JobClass.SPOT:
            held = sum(r.job.total_gpus for r in pool.spot_runs if shot.jobs[int(r.job.id)].qos == one.qos)
            nodes = best_fit(pool, run.job, now_s)
            if nodes is None or held + run.job.total_gpus > limits[one.qos].get(one.gpu_model, 0):
                continue
            if pool.spot_runs and not leaves(pool, nodes, run.job.gpus, keep.get(one.gpu_model, ())):
                continue
            pool.take(run, nodes)
        if run.nodes:
            found.append(Placement(one.id, tuple(shot.names[one.gpu_model][node] for node in run.nodes)))
    return found


def hp_demand(pool_model: str, shot: Snapshot) -> dict[str, int]:
    """GPUs that HP jobs hold or wait for, by account."""
    demand: dict[str, int] = {}
    for number, one in shot.jobs.items():
        job = shot.runs[number].job
        counts = one.state in HOLDS_GPUS or one.state == "PENDING"
        if one.gpu_model == pool_model and job.cls is JobClass.HP and counts:
            demand[one.account] = demand.get(one.account, 0) + job.total_gpus
    return demand
