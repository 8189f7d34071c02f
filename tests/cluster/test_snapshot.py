"""From Slurm's JSON to decisions, without a Slurm: old and new formats, odd states, clocks, crashes."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpsched.tuner.cluster.controller import tres
from gpsched.tuner.cluster.decide import evictions, hp_demand, placements, quota_limits
from gpsched.tuner.cluster.errors import LeaderError
from gpsched.tuner.cluster.journal import Journal, LeaderLock, load_state, read_journal, save_state
from gpsched.tuner.cluster.learning import Learner, past_demand
from gpsched.tuner.cluster.model import HOUR_S
from gpsched.tuner.cluster.slurm import (
    PastJob,
    Slurm,
    SlurmJob,
    SlurmNode,
    expand,
    gpus_by_model,
    parse_job,
    parse_node,
    parse_past,
    seconds_of,
)
from gpsched.tuner.cluster.snapshot import Snapshot, take_snapshot
from gpsched.tuner.cluster.victims import CostModel


SPOT = {"spot": 0.0, "spot-1h": 3600.0}
NOW_S = 1_000_000.0


def job(number: int, qos: str, state: str = "RUNNING", nodes: str = "", gpus: int = 8, **more: Any) -> SlurmJob:
    names = tuple(expand(nodes))
    values = {
        "workers": max(1, len(names)),
        "reason": "None" if state == "RUNNING" else "Resources",
        "submit_s": NOW_S - 1000,
        "start_s": NOW_S - 1000,
        "eligible_s": 0.0,
        "restarts": 0,
        "comment": "",
        "priority": 1000,
    }
    return SlurmJob(
        id=number, qos=qos, account="org", state=state, gpu_model="gpu", gpus=gpus, nodes=names, **(values | more)
    )


def shot(*jobs: SlurmJob, nodes: int = 4, bad: tuple[str, ...] = ()) -> Snapshot:
    listed = [SlurmNode(f"n{i}", {"gpu": 8}, f"n{i}" not in bad) for i in range(1, nodes + 1)]
    return take_snapshot(listed, jobs, SPOT)


def test_host_lists() -> None:
    assert list(expand("n[1-3,07],m2")) == ["n1", "n2", "n3", "n07", "m2"]
    assert list(expand("n[08-10]")) == ["n08", "n09", "n10"]
    assert list(expand("")) == []


def test_tres_and_times() -> None:
    assert gpus_by_model("cpu=2,node=1,gres/gpu=8") == {"gpu": 8}
    assert gpus_by_model("gres/gpu=8,gres/gpu:a100=8") == {"a100": 8}
    assert gpus_by_model("cpu=1") == {}
    assert tres({"a100": 8, "h100": 4}) == "gres/gpu:a100=8,gres/gpu:h100=4"
    assert [seconds_of(text) for text in ("00:01:30", "1-02:00:00", "45:00", "")] == [90, 93600, 2700, 0]


def test_old_and_new_json() -> None:
    old = {
        "job_id": 5,
        "job_state": "RUNNING",
        "qos": "spot",
        "tres_alloc_str": "gres/gpu=16",
        "node_count": 2,
        "nodes": "n[1-2]",
    }
    new = old | {
        "job_state": ["RUNNING"],
        "node_count": {"set": True, "infinite": False, "number": 2},
        "start_time": {"set": False, "infinite": False, "number": 0},
    }
    assert parse_job(old) == parse_job(new)
    found = parse_job(old)
    assert found is not None
    assert (found.gpus, found.workers, found.nodes) == (8, 2, ("n1", "n2"))
    assert parse_job({"job_id": 6, "tres_req_str": "cpu=1"}) is None
    assert parse_node({"name": "n1", "gres": "gpu:a100:4(S:0),gpu:h100:2", "state": ["IDLE"]}) == SlurmNode(
        "n1", {"a100": 4, "h100": 2}, usable=True
    )
    assert not parse_node({"name": "n1", "gres": "gpu:8", "state": "idle", "state_flags": ["DRAIN"]}).usable


def test_snapshot_counts_what_is_held() -> None:
    found = shot(job(1, "hp", nodes="n1"), job(2, "spot", nodes="n[2-3]", gpus=4), bad=("n3", "n4"))
    pool = found.pools["gpu"]
    pool.check()
    assert found.names["gpu"] == ["n1", "n2", "n3"], "an idle node that takes no jobs is left out"
    assert pool.capacity == 8 + 8 + 4
    assert pool.used == [8, 8]
    assert hp_demand("gpu", found) == {"org": 8}


def test_what_does_not_fit_together_is_told() -> None:
    found = shot(job(1, "hp", nodes="n9"), job(2, "hp", nodes="n1"), job(3, "hp", nodes="n1"))
    assert len(found.strange) == 2
    found.pools["gpu"].check()


def test_guarantee_counts_from_the_start() -> None:
    old, young = (
        job(1, "spot-1h", nodes="n1", start_s=NOW_S - 3601),
        job(2, "spot-1h", nodes="n2", start_s=NOW_S - 3599),
    )
    waiting = job(9, "hp", "PENDING")
    found = evictions(shot(old, young, waiting, nodes=2), NOW_S, CostModel(), 10)
    assert [(one.preemptor, one.victims) for one in found] == [(9, (1,))]
    assert evictions(shot(young, job(9, "hp", "PENDING"), nodes=1), NOW_S, CostModel(), 10) == []


def test_a_gang_above_the_bound_evicts_nobody() -> None:
    jobs = [job(i, "spot", nodes=f"n{i}") for i in range(1, 5)]
    gang = job(9, "hp", "PENDING", workers=3)
    assert evictions(shot(*jobs, gang), NOW_S, CostModel(), 2) == []
    assert len(evictions(shot(*jobs, gang), NOW_S, CostModel(), 3)[0].victims) == 3


def test_two_waiting_jobs_do_not_share_a_victim() -> None:
    jobs = [job(i, "spot", nodes=f"n{i}") for i in range(1, 5)]
    found = evictions(shot(*jobs, job(8, "hp", "PENDING"), job(9, "hp", "PENDING")), NOW_S, CostModel(), 10)
    assert len({victim for one in found for victim in one.victims}) == 2


def test_jobs_that_wait_for_something_else_evict_nobody() -> None:
    jobs = [job(i, "spot", nodes=f"n{i}") for i in range(1, 5)]
    for reason in ("Dependency", "JobHeldUser", "QOSMaxJobsPerUserLimit"):
        assert evictions(shot(*jobs, job(9, "hp", "PENDING", reason=reason)), NOW_S, CostModel(), 10) == []


def test_limits_leave_hp_its_gpus_and_follow_the_forecast() -> None:
    found = shot(job(1, "hp", nodes="n1"), job(2, "spot-1h", nodes="n2"))
    demand = {"gpu": {1: 12.0, 2: 16.0, 4: 20.0}}
    limits = quota_limits(found, demand, {"gpu": 1.0}, SPOT, 0.5)
    assert limits["spot-1h"]["gpu"] == 32 - 12
    assert limits["spot"]["gpu"] == 32 - 8 - int(0.5 * 4) - 8
    waiting = shot(job(1, "hp", nodes="n1"), job(3, "hp", "PENDING", workers=2))
    assert quota_limits(waiting, demand, {}, SPOT, 0.0)["spot"]["gpu"] == 32 - 24


def test_only_jobs_held_for_us_are_placed() -> None:
    held: dict[str, Any] = {"reason": "JobHeldUser"}
    mine, other = job(1, "spot", "PENDING", comment="gpsched", **held), job(2, "spot", "PENDING", **held)
    assert [one.job for one in placements(shot(mine, other), NOW_S, {"spot": {"gpu": 32}}, {})] == [1]
    assert placements(shot(mine), NOW_S, {"spot": {"gpu": 0}}, {}) == []


def test_spot_jobs_leave_the_slots_that_are_to_be_kept() -> None:
    """Two nodes are empty and one is half full: a small job fills the half, a large one must leave an empty node."""
    held: dict[str, Any] = {"reason": "JobHeldUser", "comment": "gpsched"}
    busy = (job(1, "hp", nodes="n1"), job(2, "spot", nodes="n2", gpus=4))
    small, large = job(3, "spot", "PENDING", gpus=4, **held), job(4, "spot", "PENDING", workers=2, **held)
    limits = {"spot": {"gpu": 32}}
    assert [one.nodes for one in placements(shot(*busy, small), NOW_S, limits, {"gpu": [(8, 2)]})] == [("n2",)]
    assert placements(shot(*busy, large), NOW_S, limits, {"gpu": [(8, 1)]}) == []
    assert len(placements(shot(*busy, large), NOW_S, limits, {})) == 1


def test_feedback_is_each_gpu_models_own() -> None:
    def both(state: str) -> Snapshot:
        nodes = [SlurmNode("n1", {"a100": 8}, usable=True), SlurmNode("n2", {"h100": 8}, usable=True)]
        jobs = [job(i, "spot", state, nodes="n1" if i < 5 else "n2", gpus=1) for i in range(1, 9)]
        typed = [replace(one, gpu_model="a100" if one.id < 5 else "h100") for one in jobs]
        return take_snapshot(nodes, typed, SPOT)

    learner = Learner({}, NOW_S, {})
    learner.see(both("RUNNING"), NOW_S, SPOT, ())
    learner.see(both("COMPLETED"), NOW_S + HOUR_S, SPOT, evicted=range(1, 5))
    assert learner.eta["a100"] < 1.0
    assert learner.eta["h100"] == 1.0
    assert set(learner.forecast) == {"a100", "h100"}


def test_arrivals_before_the_controllers_start_do_not_count() -> None:
    now_s = time.time() + 60.0
    learner = Learner({}, now_s, {})
    old = [job(i, "hp", nodes=f"n{i}") for i in range(1, 4)]
    learner.see(shot(*old), now_s, SPOT, ())
    assert learner.keep(now_s, 1.0) == {}
    new = [job(i, "hp", "PENDING", submit_s=now_s) for i in range(10, 80)]
    learner.see(shot(*old, *new), now_s, SPOT, ())
    kept = learner.keep(now_s, 1.0)
    assert kept == {"gpu": [(8, 4)]}, "seventy within the time that counts as watched are fourteen an hour"
    learner.see(shot(*old, *new), now_s, SPOT, ())
    assert learner.keep(now_s, 1.0) == kept, "a job counts once"


def test_journal_survives_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "a/journal.jsonl"
    journal = Journal(path)
    journal.write("begin", command=["x"])
    journal.close()
    with open(path, "a") as file:
        file.write('{"time": 1, "eve')
    assert [event["event"] for event in read_journal(path)] == ["begin"]
    assert read_journal(tmp_path / "none") == []


def test_state_is_whole_or_empty(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert load_state(path) == {}
    save_state(path, {"a": 1})
    assert load_state(path) == {"a": 1}
    path.write_text("{")
    assert load_state(path) == {}
    path.write_text("[1]")
    assert load_state(path) == {}


def test_one_leader(tmp_path: Path) -> None:
    first = LeaderLock(tmp_path / "lock")
    with pytest.raises(LeaderError, match="stop it first"):
        LeaderLock(tmp_path / "lock")
    first.release()
    LeaderLock(tmp_path / "lock").release()


def test_rate_limit_and_dry_run(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    slurm = Slurm(Journal(path), per_minute=2)
    assert [slurm.change("test", "true") for _ in range(3)] == [True, True, False]
    assert not Slurm(Journal(path), dry_run=True).change("test", "false")
    assert not Slurm(Journal(path)).change("test", "false")
    events = [event["event"] for event in read_journal(path)]
    assert events == ["begin", "done", "begin", "done", "limited", "would", "begin", "failed"]


def test_clock_offset_is_read_from_slurmctld(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "scontrol"
    fake.write_text("#!/bin/sh\necho \"Configuration data as of $(date -d '+90 seconds' +%Y-%m-%dT%H:%M:%S)\"\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert 85 < Slurm(Journal(tmp_path / "j")).clock_offset_s() < 95


def test_accounting_becomes_demand_history() -> None:
    times = {"start": 1000, "end": 9000}
    one = {
        "qos": "hp",
        "account": "a",
        "time": times,
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 8}]},
    }
    assert parse_past(one) == PastJob("hp", "a", "gpu", 8, 1000.0, 9000.0)
    assert parse_past(one | {"time": {"start": 0, "end": 0}}) is None
    typed = {
        "allocated": [{"type": "gres", "name": "gpu", "count": 8}, {"type": "gres", "name": "gpu:h100", "count": 8}]
    }
    found = parse_past(one | {"tres": typed})
    assert found is not None
    assert found.gpu_model == "h100"
    hour = 3600.0
    jobs = [PastJob("hp", "a", "gpu", 8, 10.0, 2.5 * hour), PastJob("hp", "b", "gpu", 4, 1.5 * hour, 0.0)]
    history = past_demand(jobs, 4 * hour + 20, 100)
    assert history["gpu", "*"] == [8, 12, 12, 4]
    assert history["gpu", "a"] == [8, 8, 8, 0]
    assert past_demand([], 4 * hour, 100) == {}
