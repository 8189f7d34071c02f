"""Workloads by name: the calibrated generator and the public traces."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gpsched.tuner.cluster.errors import TraceError, UnknownNameError
from gpsched.tuner.cluster.generate import GeneratorSettings, ModelShape, generate, spot_stream
from gpsched.tuner.cluster.model import DAY_S, Cluster, Workload
from gpsched.tuner.cluster.traces import (
    jobs_from_demand,
    read_gfs,
    read_helios_demand,
    read_openb,
    read_philly,
    split_history,
)


SCENARIOS = ("alibaba", "helios", "philly", "openb", "gfs")
HELIOS_HISTORY_DAYS = 7.0
OPENB_SHARE = 0.6
# Spot jobs beside Helios's real HP demand: sizes as in the trace (most jobs take one GPU, the mean is 3.7).
HELIOS_SHAPE = ModelShape(((107, 8),), 1.0, 1, 3.7, 0.0)


def load(name: str, traces: Path | None, settings: GeneratorSettings, skip_bad: bool = True) -> Workload:
    """The workload ``name``; ``traces`` is the folder of public traces (all but alibaba need it).

    UnknownNameError for a name not in `SCENARIOS`; TraceError for files that are missing or wrong.
    """
    if name not in SCENARIOS:
        raise UnknownNameError("scenario", name, list(SCENARIOS))
    if name == "alibaba":
        return generate(settings)
    if traces is None:
        raise TraceError(name, 0, "needs --traces DIR, the folder that holds the public traces")
    if name == "helios":
        return helios(traces / "helios-earth/earth_vc_hourly_2020-05.csv", settings)
    if name == "philly":
        found = read_philly(traces / "chronus-philly/trace_job_Philly_MIX1.csv", skip_bad=skip_bad)
    elif name == "openb":
        folder = traces / "alibaba-v2023-openb"
        nodes = folder / "openb_node_list_gpu_node.csv"
        found = read_openb(folder / "openb_pod_list_default.csv", nodes, OPENB_SHARE, skip_bad)
    else:
        folder = traces / "alibaba-v2026-spot-gpu"
        found = read_gfs(folder / "job_info_df.csv", folder / "node_info_df.csv", skip_bad)
    return replace(found, name=f"{found.name}-seed{settings.seed}")


def helios(path: Path, settings: GeneratorSettings) -> Workload:
    """Helios Earth's real HP demand of a month (a week of it as history) with generated spot jobs."""
    series, capacity = read_helios_demand(path)
    rng = np.random.default_rng(settings.seed)
    cluster = Cluster("helios-earth", {"GPU": [8] * (capacity // 8)})
    hp, history = split_history(jobs_from_demand(series, "GPU", rng), "GPU", HELIOS_HISTORY_DAYS)
    days = len(next(iter(series.values()))) / 24 - HELIOS_HISTORY_DAYS
    spot = spot_stream(rng, "GPU", HELIOS_SHAPE, cluster.capacity("GPU"), replace(settings, days=days))
    jobs = sorted([*hp, *spot], key=lambda job: job.submit_s)
    return Workload(f"helios-seed{settings.seed}", cluster, jobs, days * DAY_S, history)
