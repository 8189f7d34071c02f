"""Trace readers: what they make of good rows, and what they say about bad ones."""

import os
from pathlib import Path

import numpy as np
import pytest

from gpsched.tuner.cluster.arms import make_arm
from gpsched.tuner.cluster.demand import hourly_peaks
from gpsched.tuner.cluster.engine import Simulation
from gpsched.tuner.cluster.errors import TraceError, UnknownNameError
from gpsched.tuner.cluster.generate import GeneratorSettings
from gpsched.tuner.cluster.model import JobClass
from gpsched.tuner.cluster.scenarios import helios, load
from gpsched.tuner.cluster.traces import jobs_from_demand, read_gfs, read_openb, read_philly, split_history


DATA = Path(__file__).parent / "data"
TRACES = Path(os.environ.get("GPSCHED_TRACES", Path(__file__).parents[2] / "../shared/traces"))
GFS_HEAD = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
NODES = "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,0\nA10,1,128,1\nH800,8,192,2\n"


def gfs(tmp_path: Path, rows: str, skip_bad: bool = False) -> object:
    (tmp_path / "jobs.csv").write_text(GFS_HEAD + rows)
    (tmp_path / "nodes.csv").write_text(NODES)
    return read_gfs(tmp_path / "jobs.csv", tmp_path / "nodes.csv", skip_bad)


def test_gfs_table(tmp_path: Path) -> None:
    found = gfs(tmp_path, "b,o1,H800,8,8,1,20,100,Spot\na,o0,A10,1,0.5,2,10,50,HP\nz,o0,A10,1,0,1,5,5,HP\n")
    assert [(one.id, one.cls, one.workers, one.gpus) for one in found.jobs] == [  # type: ignore[attr-defined]
        ("a", JobClass.HP, 2, 1),
        ("b", JobClass.SPOT, 1, 8),
    ]
    assert found.skipped == {"no GPU asked for": 1}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,o,A10,1,1,1,-5,10,HP", "submitted at -5"),
        ("a,o,A10,1,1,1,5,-10,HP", "for -10"),
        ("a,o,A10,1,1,1,,10,HP", "submit_time is ''"),
        ("a,o,A10,1,1,1,5,nan,HP", "duration is nan"),
        ("a,o,B300,1,1,1,5,10,HP", "'B300' is not in cluster"),
        ("a,o,A10,1,1,3,5,10,HP", "holds 2 at most"),
        ("a,o,A10,1,1,1,5,10,XX", "job_type is 'XX'"),
        ("a,o,A10,1,lots,1,5,10,HP", "gpu_request is 'lots'"),
    ],
)
def test_bad_rows_are_named_or_counted(tmp_path: Path, row: str, reason: str) -> None:
    with pytest.raises(TraceError, match=reason) as found:
        gfs(tmp_path, row + "\n")
    assert found.value.line == 2
    good = "b,o1,H800,8,8,1,20,100,Spot\n"
    kept = gfs(tmp_path, row + "\n" + good, skip_bad=True)
    assert len(kept.jobs) == 1  # type: ignore[attr-defined]
    assert sum(kept.skipped.values()) == 1  # type: ignore[attr-defined]


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_philly(tmp_path / "missing.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match="column 'job_id' is missing"):
        read_philly(tmp_path / "other.csv")
    with pytest.raises(TraceError, match="no job that can run"):
        gfs(tmp_path, "")
    with pytest.raises(TraceError, match="needs --traces"):
        load("openb", None, GeneratorSettings())
    with pytest.raises(UnknownNameError, match="alibaba"):
        load("mars", None, GeneratorSettings())


def test_philly_excerpt_runs() -> None:
    found = read_philly(DATA / "philly_excerpt.csv")
    assert {one.cls for one in found.jobs} == set(JobClass)
    assert Simulation(found, make_arm("ours"), audit=True).run().figures["lp_jobs"] > 0


def test_openb_rows(tmp_path: Path) -> None:
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    head += "scheduled_time\n"
    rows = (
        "p0,1,1,1,460,,LS,Running,0,12537496,0\np1,1,1,1,1000,,BE,Failed,9700000,9700100,\np2,1,1,0,0,,BE,Failed,1,2,\n"
    )
    (tmp_path / "pods.csv").write_text(head + rows + "p3,1,1,1,1000,,BE,Pending,9700000,9700000,\n")
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,2,P100\nn1,1,1,8,V100\n")
    found = read_openb(tmp_path / "pods.csv", tmp_path / "nodes.csv")
    assert [(one.id, one.cls, one.submit_s, one.duration_s) for one in found.jobs] == [
        ("p0", JobClass.HP, 0.0, 2937496.0),
        ("p1", JobClass.SPOT, 100000.0, 100.0),
    ]
    assert found.skipped == {"no GPU asked for": 1, "cannot run on this cluster": 1}
    assert found.cluster.nodes == {"GPU": [8, 2]}


def test_jobs_follow_the_demand_they_are_made_from() -> None:
    series = {"a": [5.0, 12.0, 12.0, 3.0, 20.0, 20.0], "b": [0.0, 8.0, 8.0, 8.0, 0.0, 0.0]}
    jobs = jobs_from_demand(series, "GPU", np.random.default_rng(1))
    peaks = hourly_peaks(jobs, 0.0, 6)
    assert peaks[2] == 20  # both settled
    assert peaks[5] == 20
    after, history = split_history(jobs, "GPU", 3 / 24)
    assert history["GPU", "*"] == peaks[:3]
    assert sum(one.gpus for one in after if one.submit_s == 0.0) <= 20


def test_helios_scenario_runs(tmp_path: Path) -> None:
    found = helios(DATA / "helios_excerpt.csv", GeneratorSettings(seed=1))
    assert found.horizon_s == 3 * 86400
    assert len(found.history["GPU", "*"]) == 168
    assert Simulation(found, make_arm("ours"), audit=True).run().figures["guarantees_broken"] == 0


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"the full public traces are not at {TRACES} (set GPSCHED_TRACES)")
@pytest.mark.parametrize("name", ["philly", "openb", "helios"])
def test_full_traces_read(name: str) -> None:
    assert len(load(name, TRACES, GeneratorSettings()).jobs) > 5000
