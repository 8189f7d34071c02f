"""Readers of public job traces. A bad row raises TraceError with file and line, or is counted when ``skip_bad`` is
set."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from gpsched.tuner.cluster.demand import TOTAL, hourly_peaks
from gpsched.tuner.cluster.errors import JobError, TraceError
from gpsched.tuner.cluster.model import DAY_S, HOUR_S, Cluster, Job, JobClass, Workload


Row = dict[str, str]

PHILLY_STRETCH = 36.0  # the published file squeezes days into 20,151 s; 36 makes its median job last 35 minutes
PHILLY_NODES = 150
OPENB_START_S = 9.6e6  # before this day 111 the trace holds only services that live for months


def rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, Row]]:
    """(line, row) of a CSV file; TraceError when it is missing, empty or lacks a column."""
    try:
        file = open(path, newline="", encoding="utf-8")  # noqa: SIM115 - closed by the with below
    except OSError as error:
        raise TraceError(
            str(path), 0, f"cannot be read ({error.strerror}); see docs/cluster.md for where to get it"
        ) from error
    with file:
        reader = csv.DictReader(file)
        missing = [name for name in columns if name not in (reader.fieldnames or [])]
        if missing:
            raise TraceError(str(path), 1, f"column {missing[0]!r} is missing")
        for row in reader:
            yield reader.line_num, row


def number(path: Path, line: int, row: Row, column: str) -> float:
    """A finite number of a row; TraceError for a hole or anything else."""
    text = (row.get(column) or "").strip()
    try:
        value = float(text)
    except ValueError as error:
        raise TraceError(str(path), line, f"{column} is {text!r}, not a number") from error
    if value != value or abs(value) == float("inf"):
        raise TraceError(str(path), line, f"{column} is {text}")
    return value


def read_jobs(
    path: Path, columns: tuple[str, ...], make: Callable[[int, Row], Job | None], cluster: Cluster, skip_bad: bool
) -> tuple[list[Job], dict[str, int]]:
    """Jobs in order of submission and the counts of skipped rows; ``make`` returns None for a row that asks for no
    GPU."""
    jobs: list[Job] = []
    skipped: Counter[str] = Counter()
    for line, row in rows(path, columns):
        try:
            job = make(line, row)
            if job is None:
                skipped["no GPU asked for"] += 1
                continue
            cluster.check(job)
            jobs.append(job)
        except TraceError as error:
            if not skip_bad:
                raise
            skipped[error.reason.split(" is ")[0] + " is bad"] += 1
        except JobError as error:
            if not skip_bad:
                raise TraceError(str(path), line, f"{error}") from error
            skipped["cannot run on this cluster"] += 1
    if not jobs:
        raise TraceError(str(path), 0, "holds no job that can run")
    return sorted(jobs, key=lambda job: job.submit_s), dict(skipped)


def read_nodes(path: Path, model: str = "gpu_model", gpus: str = "gpu_capacity_num", share: float = 1.0) -> Cluster:
    """A node list; ``share`` keeps that part of the nodes, evenly spread."""
    nodes: dict[str, list[int]] = {}
    for index, (line, row) in enumerate(rows(path, (model, gpus))):
        if int((index + 1) * share) > int(index * share):
            nodes.setdefault(row[model], []).append(int(number(path, line, row, gpus)))
    return Cluster(path.parent.name, nodes)


def read_gfs(jobs_path: Path, nodes_path: Path, skip_bad: bool = False) -> Workload:
    """The job table of the GFS trace (job_info_df.csv) on its node list (node_info_df.csv).

    GPUs below one are rounded up; rows that ask for none are left out.
    """
    cluster = read_nodes(nodes_path)
    columns = (
        "job_name",
        "organization",
        "gpu_model",
        "gpu_request",
        "worker_num",
        "submit_time",
        "duration",
        "job_type",
    )

    def make(line: int, row: Row) -> Job | None:
        gpus = number(jobs_path, line, row, "gpu_request")
        if gpus == 0:
            return None
        kinds = {"HP": JobClass.HP, "Spot": JobClass.SPOT}
        if row["job_type"] not in kinds:
            raise TraceError(str(jobs_path), line, f"job_type is {row['job_type']!r}, not HP or Spot")
        workers = int(number(jobs_path, line, row, "worker_num"))
        times = (number(jobs_path, line, row, "submit_time"), number(jobs_path, line, row, "duration"))
        each = int(np.ceil(gpus))
        return Job(
            row["job_name"], row["organization"], row["gpu_model"], kinds[row["job_type"]], workers, each, *times
        )

    jobs, skipped = read_jobs(jobs_path, columns, make, cluster, skip_bad)
    return Workload("gfs", cluster, jobs, jobs[-1].submit_s, {}, skipped)


def read_philly(path: Path, stretch: float = PHILLY_STRETCH, skip_bad: bool = True) -> Workload:
    """Chronus's Philly MIX1: strict jobs are HP, best-effort ones spot, virtual clusters are tenants; times times
    ``stretch``."""
    cluster = Cluster("philly", {"GPU": [8] * PHILLY_NODES})

    def make(line: int, row: Row) -> Job | None:
        gpus = int(number(path, line, row, "num_gpu"))
        if gpus == 0:
            return None
        cls = JobClass.SPOT if row["best_effort"].strip() == "1" else JobClass.HP
        workers, each = (1, gpus) if gpus <= 8 else (-(-gpus // 8), 8)
        times = [stretch * number(path, line, row, column) for column in ("submit_time", "duration")]
        return Job(row["job_id"], row["user"], "GPU", cls, workers, each, times[0], times[1])

    columns = ("job_id", "user", "num_gpu", "submit_time", "duration", "best_effort")
    jobs, skipped = read_jobs(path, columns, make, cluster, skip_bad)
    return Workload("philly-mix1", cluster, jobs, jobs[-1].submit_s, {}, skipped)


def read_openb(pods_path: Path, nodes_path: Path, share: float = 1.0, skip_bad: bool = True) -> Workload:
    """Alibaba's openb pods from day 111 on: BE pods are spot, all others HP. GPU shares are rounded up to whole GPUs.

    ``share`` keeps that part of the nodes: the whole cluster was never full. All GPU types form one pool, since
    nearly no pod names one.
    """
    listed = read_nodes(nodes_path, "model", "gpu", share)
    cluster = Cluster(
        "openb", {"GPU": sorted((size for sizes in listed.nodes.values() for size in sizes), reverse=True)}
    )

    def make(line: int, row: Row) -> Job | None:
        gpus = int(number(pods_path, line, row, "num_gpu"))
        if gpus == 0:
            return None
        start_s = number(pods_path, line, row, "creation_time")
        end_s = number(pods_path, line, row, "deletion_time")
        cls = JobClass.SPOT if row["qos"] == "BE" else JobClass.HP
        begin_s = max(0.0, start_s - OPENB_START_S)
        return Job(row["name"], row["qos"], "GPU", cls, 1, gpus, begin_s, end_s - OPENB_START_S - begin_s)

    columns = ("name", "num_gpu", "qos", "creation_time", "deletion_time")
    jobs, skipped = read_jobs(pods_path, columns, make, cluster, skip_bad)
    return Workload("openb", cluster, jobs, jobs[-1].submit_s, {}, skipped)


def read_helios_demand(path: Path) -> tuple[dict[str, list[float]], int]:
    """Helios Earth: hourly maxima of running GPUs by virtual cluster (tenant), and the GPUs of the cluster.

    An hour missing for a tenant is NaN.
    """
    seen: dict[str, dict[str, float]] = {}
    capacity: dict[str, int] = {}
    for line, row in rows(path, ("hour", "vc", "capacity_gpus", "running_gpus_max")):
        value = number(path, line, row, "running_gpus_max")
        if value < 0:
            raise TraceError(str(path), line, f"running_gpus_max is {value}")
        seen.setdefault(row["vc"], {})[row["hour"]] = value
        capacity[row["vc"]] = int(number(path, line, row, "capacity_gpus"))
    hours = sorted({hour for by_hour in seen.values() for hour in by_hour})
    if not hours:
        raise TraceError(str(path), 0, "holds no hour")
    series = {vc: [by_hour.get(hour, float("nan")) for hour in hours] for vc, by_hour in seen.items()}
    return series, sum(capacity.values())


def read_model_demand(path: Path) -> dict[str, list[float]]:
    """Alibaba 2026: GPUs asked for by GPU model, hourly (column ``hour``, then one per model); the last three hours
    dropped."""
    table = list(rows(path, ("hour",)))
    if len(table) < 4:
        raise TraceError(str(path), 0, "holds fewer than four hours")
    models = [name for name in table[0][1] if name != "hour"]
    return {model: [number(path, line, row, model) for line, row in table[:-3]] for model in models}


def jobs_from_demand(
    series: dict[str, list[float]], model: str, rng: np.random.Generator, largest: int = 8
) -> list[Job]:
    """HP jobs whose running GPUs follow each tenant's hourly demand: a rise starts jobs, a fall ends some at random."""
    jobs: list[Job] = []
    for tenant, values in series.items():
        running: list[tuple[float, int]] = []
        for hour, value in enumerate(np.nan_to_num(np.array(values))):
            change = int(value) - sum(gpus for _, gpus in running)
            while change < 0:
                start_s, gpus = running.pop(int(rng.integers(len(running))))
                end_s = max(start_s + 60.0, (hour + rng.random()) * HOUR_S)
                jobs.append(Job(f"{tenant}-{len(jobs)}", tenant, model, JobClass.HP, 1, gpus, start_s, end_s - start_s))
                change += gpus
            while change > 0:
                gpus = min(largest, 1 << (change.bit_length() - 1))
                running.append(((hour + rng.random()) * HOUR_S, gpus))
                change -= gpus
        end_s = len(values) * HOUR_S
        for start_s, gpus in running:
            length_s = max(60.0, end_s - start_s)
            jobs.append(Job(f"{tenant}-{len(jobs)}", tenant, model, JobClass.HP, 1, gpus, start_s, length_s))
    return sorted(jobs, key=lambda job: job.submit_s)


def split_history(jobs: list[Job], model: str, days: float) -> tuple[list[Job], dict[tuple[str, str], list[float]]]:
    """Cut HP jobs at ``days``: demand history before, jobs after (times from the cut; what still runs starts at 0)."""
    cut_s, hours = days * DAY_S, int(days * 24)
    tenants = {job.tenant for job in jobs}
    before = [job for job in jobs if job.submit_s < cut_s]
    history = {(model, TOTAL): hourly_peaks(before, 0.0, hours)}
    for tenant in sorted(tenants):
        history[model, tenant] = hourly_peaks([job for job in before if job.tenant == tenant], 0.0, hours)
    after = []
    for job in jobs:
        end_s = job.submit_s + job.duration_s - cut_s
        if end_s > 0:
            start_s = max(0.0, job.submit_s - cut_s)
            after.append(
                Job(
                    job.id,
                    job.tenant,
                    job.gpu_model,
                    job.cls,
                    job.workers,
                    job.gpus,
                    start_s,
                    max(1.0, end_s - start_s),
                )
            )
    return sorted(after, key=lambda job: job.submit_s), history
