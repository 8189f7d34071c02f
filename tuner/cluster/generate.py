"""Synthetic workloads calibrated on published aggregates of a 10,412-GPU cluster with HP and spot jobs.

Calibrated on: nodes by GPU model, jobs by hour of day, job sizes and GPU-seconds by GPU model, duration buckets, spot
duration quantiles, tenants' shares of jobs and their median durations (aggregates: MIT, sultanul-ovi; underlying
trace: Alibaba 2026). What is chosen, not measured: HP load is capped at `HP_LOAD_CAP` of a model's GPUs, and spot
load is a parameter, because in the trace spot jobs are 2.4 % of the GPU time and never compete for it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpsched.tuner.cluster.demand import hourly_peaks
from gpsched.tuner.cluster.model import DAY_S, HOUR_S, Cluster, Job, JobClass, Workload


@dataclass(frozen=True)
class ModelShape:
    """One GPU model: (count, GPUs each) of its nodes; shares and sizes of its jobs.

    ``median`` and ``mean`` are GPUs a job; ``load`` is requested GPUs over capacity, averaged over the trace.
    """

    nodes: tuple[tuple[int, int], ...]
    share: float
    median: float
    mean: float
    load: float


MODELS = {
    "A10": ModelShape(((2494, 1),), 0.490, 1, 0.92, 1.355),
    "A100-SXM4-80GB": ModelShape(((432, 8),), 0.362, 1, 4.90, 0.794),
    "GPU-series-2": ModelShape(((122, 8),), 0.0651, 4, 14.56, 0.766),
    "GPU-series-1": ModelShape(((902, 1), (10, 4), (77, 8)), 0.0405, 1, 2.16, 0.763),
    "H800": ModelShape(((219, 8),), 0.0238, 8, 65.0, 0.725),
    "A800-SXM4-80GB": ModelShape(((22, 8),), 0.0188, 2, 6.13, 0.743),
}
JOBS_PER_DAY = 466_867 / 184
SPOT_JOBS_SHARE = 0.1096
HP_LOAD_CAP = 0.80
SPOT_SHARE_OF_GPU_TIME = 0.0243
# Jobs by hour of day (first hour replaced by its neighbours' mean: it holds the jobs that ran before the trace began).
HOURS = np.array(
    [
        15929,
        15929,
        14089,
        13387,
        12921,
        14128,
        14232,
        15038,
        15945,
        16972,
        25057,
        25735,
        19770,
        19276,
        25304,
        25039,
        27015,
        25376,
        20016,
        21189,
        21885,
        19162,
        18813,
        18138,
    ],
    dtype=float,
)
# Upper bounds of the duration buckets (s) and the shares of jobs in them; the last is open in the trace.
DURATION_EDGES = np.array([5.0, 60, 600, 3600, 21600, 86400, 259200, 864000])
DURATION_SHARES = np.array([0.1236, 0.2467, 0.3491, 0.1404, 0.0608, 0.0194, 0.0600])
# Spot: median 2,095 s and 90th percentile 21,740 s.
SPOT_MEDIAN_S, SPOT_SIGMA = 2095.0, 1.826
# Tenants: share of jobs and median duration (s) of the fourteen largest by GPU time, and of the other seventy together.
TENANT_JOBS = np.array(
    [181107, 108911, 43293, 45879, 13718, 13153, 11417, 968, 16584, 3221, 4832, 3860, 285, 27], dtype=float
)
TENANT_MEDIAN_S = np.array([369.0, 1547, 711, 1552, 2055, 2069, 758, 309988, 6179, 2339, 855, 924, 1814399, 2434440])
SMALL_TENANTS, SMALL_JOBS = 70, 466_867.0 - 447_255.0
WARM_UP_DAYS = 14.0


def alibaba_cluster(scale: float = 1.0) -> Cluster:
    """The 4,278 nodes of the 2026 node list; ``scale`` multiplies the number of nodes of every kind."""
    nodes = {
        name: [gpus for count, gpus in shape.nodes for _ in range(max(1, round(count * scale)))]
        for name, shape in MODELS.items()
    }
    return Cluster("alibaba-2026", nodes)


@dataclass(frozen=True)
class GeneratorSettings:
    """``spot_load`` is the spot GPU time asked for as a share of capacity; ``burst`` > 0 makes HP arrivals come in
    bursts."""

    days: float = 30.0
    scale: float = 1.0
    spot_load: float = 0.15
    burst: float = 0.5
    seed: int = 1


def generate(settings: GeneratorSettings) -> Workload:
    """A workload on the whole cluster; the same settings give the same jobs."""
    rng = np.random.default_rng(settings.seed)
    cluster = alibaba_cluster(settings.scale)
    tenants = _Tenants(rng)
    jobs: list[Job] = []
    history: dict[tuple[str, str], list[float]] = {}
    for name, shape in MODELS.items():
        capacity = cluster.capacity(name)
        hp = _hp_jobs(rng, tenants, name, shape, capacity, settings)
        jobs += [job for job in hp if job.submit_s >= 0]
        history |= _history(name, hp)
        jobs += _carried_over(hp)
        jobs += _spot_jobs(rng, tenants, name, shape, capacity, settings)
    jobs.sort(key=lambda job: job.submit_s)
    return Workload(f"alibaba-seed{settings.seed}", cluster, jobs, settings.days * DAY_S, history)


class _Tenants:
    """Draws tenants by their share of jobs; a tenant's jobs are longer or shorter than others' by its ``factor``."""

    def __init__(self, rng: np.random.Generator) -> None:
        small = rng.pareto(1.2, SMALL_TENANTS) + 0.1
        share = np.concatenate([TENANT_JOBS, small / small.sum() * SMALL_JOBS])
        self.share = share / share.sum()
        median = np.concatenate([TENANT_MEDIAN_S, np.exp(rng.normal(np.log(1200.0), 1.5, SMALL_TENANTS))])
        log = np.log(median)
        center = float(np.average(log, weights=self.share))
        # Clipped: the services among the tenants (medians of weeks) are the standing base, not arrivals.
        self.log_factor = np.clip(log - center, -2.0, 2.0)
        self.names = [f"org{index}" for index in range(len(share))]
        self.spread = float(np.average(self.log_factor**2, weights=self.share)) ** 0.5

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        return rng.choice(len(self.share), size=count, p=self.share)


def _arrivals(
    rng: np.random.Generator, rate_per_day: float, start_s: float, end_s: float, burst: float
) -> NDArray[np.float64]:
    """Poisson arrivals with the daily shape, weekends at 60 %, and a log-normal factor for each hour."""
    hours = np.arange(int(start_s // HOUR_S), int(np.ceil(end_s / HOUR_S)))
    rate = rate_per_day * HOURS[hours % 24] / HOURS.sum()
    rate = rate * np.where((hours // 24) % 7 >= 5, 0.6, 1.16)
    rate = rate * np.exp(rng.normal(-(burst**2) / 2, burst, hours.size))
    counts = rng.poisson(rate)
    times = np.repeat(hours, counts) * HOUR_S + rng.random(int(counts.sum())) * HOUR_S
    times = np.sort(times)
    return times[(times >= start_s) & (times < end_s)]


def _sizes(rng: np.random.Generator, shape: ModelShape, capacity: int, count: int) -> list[tuple[int, int]]:
    """(workers, GPUs each): log-normal total with the model's median and mean, on whole nodes above one node."""
    largest = max(gpus for _, gpus in shape.nodes)
    sigma = np.sqrt(2.0 * np.log(max(1.0, shape.mean / shape.median)))
    total = np.minimum(shape.median * np.exp(rng.normal(0.0, sigma, count)), 0.3 * capacity)
    if largest == 1:
        return [(1, 1)] * count
    out = []
    for gpus in total:
        if gpus <= largest:
            out.append((1, min(largest, int(2 ** round(np.log2(max(1.0, gpus)))))))
        else:
            out.append((max(2, round(gpus / largest)), largest))
    if any(each == 1 for _, each in shape.nodes):  # mostly one-GPU nodes: gangs of one-GPU workers
        out = [(workers, gpus) if workers * gpus <= largest else (workers * gpus, 1) for workers, gpus in out]
    return out


def _durations(rng: np.random.Generator, tenants: _Tenants, who: NDArray[np.int64]) -> NDArray[np.float64]:
    """Durations (s) with the trace's bucket shares, ordered so that tenants with long medians get the long ones.

    A Gaussian copula: the rank of a job is its tenant's factor plus noise.
    """
    factor = tenants.log_factor[who]
    score = factor + rng.normal(0.0, 1.5, who.size)
    rank = np.argsort(np.argsort(score, kind="stable"), kind="stable")
    share = (rank + rng.random(who.size)) / max(1, who.size)
    edges = np.concatenate([[0.0], np.cumsum(DURATION_SHARES / DURATION_SHARES.sum())])
    edges[-1] = 1.0
    found: NDArray[np.float64] = np.exp(np.interp(share, edges, np.log(DURATION_EDGES)))
    return found


def _hp_jobs(
    rng: np.random.Generator,
    tenants: _Tenants,
    name: str,
    shape: ModelShape,
    capacity: int,
    settings: GeneratorSettings,
) -> list[Job]:
    """Arrivals from the warm-up on, thinned where they alone would exceed the load, and a standing base for the
    rest."""
    start_s, end_s = -WARM_UP_DAYS * DAY_S, settings.days * DAY_S
    target = capacity * min(shape.load * (1.0 - SPOT_SHARE_OF_GPU_TIME), HP_LOAD_CAP)
    rate = JOBS_PER_DAY * settings.scale * shape.share * (1.0 - SPOT_JOBS_SHARE)
    times = _arrivals(rng, rate, start_s, end_s, settings.burst)
    who = tenants.draw(rng, times.size)
    sizes = _sizes(rng, shape, capacity, times.size)
    durations = _durations(rng, tenants, who)
    gpus = np.array([workers * each for workers, each in sizes], dtype=float)
    load = float((gpus * durations).sum()) / (end_s - start_s)
    if load > 0.7 * target:  # the longest jobs of the trace ran before it began: they are the base below
        durations = _shorten(durations, gpus, 0.7 * target * (end_s - start_s))
        load = 0.7 * target
    jobs = [
        Job(
            f"{name}-hp{i}",
            tenants.names[who[i]],
            name,
            JobClass.HP,
            sizes[i][0],
            sizes[i][1],
            float(times[i]),
            float(durations[i]),
        )
        for i in range(times.size)
    ]
    return jobs + _base(rng, tenants, name, shape, int(target - load), start_s, end_s)


def _shorten(durations: NDArray[np.float64], gpus: NDArray[np.float64], budget: float) -> NDArray[np.float64]:
    """Durations with the long ones (over a limit found by bisection) cut so that the GPU-seconds meet the budget."""
    low, high = 60.0, float(durations.max())
    for _ in range(50):
        limit = (low + high) / 2
        if float((gpus * np.minimum(durations, limit)).sum()) > budget:
            high = limit
        else:
            low = limit
    return np.minimum(durations, low)


def _base(
    rng: np.random.Generator, tenants: _Tenants, name: str, shape: ModelShape, gpus: int, start_s: float, end_s: float
) -> list[Job]:
    """Services that run from before the warm-up to the end of the horizon."""
    sizes = [1, 1, 1, 2, 4, 8] if max(each for _, each in shape.nodes) >= 8 and shape.nodes[0][1] >= 8 else [1]
    jobs: list[Job] = []
    while gpus > 0:
        size = min(int(rng.choice(sizes)), gpus)
        tenant = tenants.names[int(tenants.draw(rng, 1)[0])]
        jobs.append(Job(f"{name}-base{len(jobs)}", tenant, name, JobClass.HP, 1, size, start_s, end_s - start_s))
        gpus -= size
    return jobs


def _carried_over(jobs: list[Job]) -> list[Job]:
    """What still runs at time 0, submitted then with the rest of its duration."""
    return [
        Job(job.id, job.tenant, job.gpu_model, job.cls, job.workers, job.gpus, 0.0, job.submit_s + job.duration_s)
        for job in jobs
        if job.submit_s < 0 < job.submit_s + job.duration_s
    ]


def _history(name: str, jobs: list[Job]) -> dict[tuple[str, str], list[float]]:
    """Hourly maximum of HP demand during the warm-up, by tenant and in total (starts at submission)."""
    by_tenant: dict[str, list[Job]] = {"*": []}
    for job in jobs:
        if job.submit_s < 0:
            by_tenant["*"].append(job)
            by_tenant.setdefault(job.tenant, []).append(job)
    start_s, hours = -WARM_UP_DAYS * DAY_S, int(WARM_UP_DAYS * 24)
    return {(name, tenant): hourly_peaks(some, start_s, hours) for tenant, some in by_tenant.items()}


def _spot_jobs(
    rng: np.random.Generator,
    tenants: _Tenants,
    name: str,
    shape: ModelShape,
    capacity: int,
    settings: GeneratorSettings,
) -> list[Job]:
    """Spot arrivals until their GPU time is ``spot_load`` of the model's capacity."""
    end_s = settings.days * DAY_S
    budget = settings.spot_load * capacity * end_s
    mean_s = SPOT_MEDIAN_S * np.exp(SPOT_SIGMA**2 / 2)
    rate = budget / (mean_s * shape.mean) / settings.days
    times = _arrivals(rng, 1.6 * rate, 0.0, end_s, settings.burst)
    who = tenants.draw(rng, times.size)
    sizes = _sizes(rng, shape, capacity // 3, times.size)  # a tenth of the model's GPUs at most
    within = np.sqrt(max(0.1, SPOT_SIGMA**2 - tenants.spread**2))
    durations = SPOT_MEDIAN_S * np.exp(tenants.log_factor[who] + rng.normal(0.0, within, times.size))
    durations = np.clip(durations, 10.0, 5 * DAY_S)
    cost = np.array([workers * each for workers, each in sizes]) * durations
    # Keep a random subset that meets the budget, so that the arrivals' shape over time stays.
    order = rng.permutation(times.size)
    kept = np.sort(order[: int(np.searchsorted(np.cumsum(cost[order]), budget)) + 1])
    return [
        Job(
            f"{name}-spot{i}",
            tenants.names[who[i]],
            name,
            JobClass.SPOT,
            sizes[i][0],
            sizes[i][1],
            float(times[i]),
            float(durations[i]),
        )
        for i in kept
    ]


def spot_stream(
    rng: np.random.Generator, model: str, shape: ModelShape, capacity: int, settings: GeneratorSettings
) -> list[Job]:
    """Spot jobs alone, to be set beside HP jobs from elsewhere."""
    return _spot_jobs(rng, _Tenants(rng), model, shape, capacity, settings)
