"""The controller on a real Slurm: 32 virtual nodes with 8 fake GPUs each, MariaDB, slurmdbd, slurmctld."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.errors import UsageError
from gpsched.tuner.cluster.controller import Controller, ControllerSettings
from gpsched.tuner.cluster.errors import AccountingMissingError, LeaderError
from gpsched.tuner.cluster.journal import read_journal
from gpsched.tuner.cluster.slurm import Slurm
from gpsched.tuner.cluster.victims import CostModel
from tests.cluster import slurm_stack
from tests.cluster.slurm_stack import SlurmStack, wait_until


pytestmark = [
    pytest.mark.slurm,
    pytest.mark.root,
    pytest.mark.skipif(bool(slurm_stack.missing()), reason=f"Slurm tests need: {', '.join(slurm_stack.missing())}"),
]

SPOT = {"spot": 0.0, "spot-1h": 25.0}  # a guarantee of 25 s stands for the hour: the same code, a shorter test


@pytest.fixture(scope="module")
def stack() -> Iterator[SlurmStack]:
    lab = Path(tempfile.mkdtemp(prefix="gpsched-slurm-"))
    stack = SlurmStack(lab)
    before = dict(os.environ)
    try:
        stack.start()
        for qos in SPOT:
            stack.command(
                "sacctmgr", "-i", "add", "qos", qos, "Priority=10", "PreemptMode=requeue", "GrpTRES=gres/gpu=256"
            )
        stack.command("sacctmgr", "-i", "add", "qos", "hp", "Priority=1000", f"Preempt={','.join(SPOT)}")
        stack.command("sacctmgr", "-i", "add", "account", "org1", f"Cluster={slurm_stack.CLUSTER}")
        names = ",".join(["hp", *SPOT])
        user = ("user", "root", "Account=org1", f"Cluster={slurm_stack.CLUSTER}", f"QOS={names}", "DefaultQOS=hp")
        stack.command("sacctmgr", "-i", "add", *user)
        os.environ.update(stack.env)
        yield stack
    finally:
        os.environ.clear()
        os.environ.update(before)
        stack.stop()
        subprocess.run(["rm", "-rf", str(lab)], check=True)


@pytest.fixture
def clean(stack: SlurmStack) -> Iterator[SlurmStack]:
    """No job, open quotas, Slurm's own preemption on."""
    for qos in SPOT:
        stack.command("sacctmgr", "-i", "modify", "qos", qos, "set", "GrpTRES=gres/gpu=256", "PreemptExemptTime=-1")
    stack.command("sacctmgr", "-i", "modify", "qos", "hp", "set", f"Preempt={','.join(SPOT)}")
    yield stack
    stack.command("scancel", "-u", "root")
    wait_until(lambda: not stack.command("squeue", "-h").strip(), 30, "queue empty")


def settings(tmp_path: Path, **changes: object) -> ControllerSettings:
    values: dict[str, object] = {
        "state_dir": tmp_path / "state",
        "lock": tmp_path / "lock",
        "spot": SPOT,
        "interval_s": 0.5,
        "cost": CostModel(checkpoint_s=100000.0),
    }
    return ControllerSettings(**(values | changes))  # type: ignore[arg-type]


def running(stack: SlurmStack, jobs: list[int]) -> list[int]:
    found = {int(word) for word in stack.command("squeue", "-h", "-t", "RUNNING", "-o", "%i").split()}
    return [job for job in jobs if job in found]


def restarts(stack: SlurmStack, job: int) -> int:
    return next(one.restarts for one in stack_jobs(stack) if one.id == job)


def stack_jobs(stack: SlurmStack) -> list:
    class Nowhere:
        def write(self, event: str, **fields: object) -> None:
            raise AssertionError("reading must not write")

    return Slurm(Nowhere()).jobs()  # type: ignore[arg-type]


def cycles(controller: Controller, until: object, seconds: float, what: str) -> None:
    end = time.monotonic() + slurm_stack.BUSY * seconds
    while not until():  # type: ignore[operator]
        assert time.monotonic() < end, f"not within {slurm_stack.BUSY * seconds} s: {what}"
        controller.cycle()
        time.sleep(0.3)


def limit(stack: SlurmStack, qos: str) -> str:
    return stack.command("sacctmgr", "-nP", "show", "qos", qos, "format=GrpTRES").strip()


def test_quota_follows_demand_and_lowering_evicts_nobody(clean: SlurmStack, tmp_path: Path) -> None:
    clean.command("sacctmgr", "-i", "modify", "qos", "spot", "set", "GrpTRES=gres/gpu=16")
    jobs = [clean.submit("spot") for _ in range(5)]
    wait_until(lambda: len(running(clean, jobs)) == 2, 20, "the old quota lets two run")
    controller = Controller(settings(tmp_path, victims=False))
    cycles(controller, lambda: len(running(clean, jobs)) == 5, 20, "the raised quota lets all run")
    hp = [clean.submit("hp", nodes=24)]
    wait_until(lambda: running(clean, hp) == hp, 20, "HP runs")
    cycles(controller, lambda: limit(clean, "spot") == "gres/gpu=64", 10, "the quota is what HP leaves")
    more = [clean.submit("spot", nodes=4)]
    time.sleep(3)
    assert running(clean, jobs) == jobs, "lowering the quota evicted a job"
    assert running(clean, more) == []
    assert all(restarts(clean, job) == 0 for job in jobs)
    controller.stop()


def test_slurm_keeps_the_guarantee_to_the_second(clean: SlurmStack, tmp_path: Path) -> None:
    controller = Controller(settings(tmp_path, victims=False))
    controller.cycle()
    exempt = clean.command("sacctmgr", "-nP", "show", "qos", "spot-1h", "format=PreemptExemptTime").strip()
    assert exempt == "00:00:25"
    spot = [clean.submit("spot-1h", nodes=31)]
    wait_until(lambda: running(clean, spot) == spot, 20, "spot fills all nodes but one")
    begun = next(one.start_s for one in stack_jobs(clean) if one.id == spot[0])
    hp = clean.submit("hp", nodes=2)
    wait_until(lambda: running(clean, [hp]) == [hp], 60, "HP runs")
    started = next(one.start_s for one in stack_jobs(clean) if one.id == hp)
    assert started - begun >= 25, "evicted before its guarantee ended"
    assert started - begun <= 25 + slurm_stack.BUSY * 10, "evicted long after its guarantee ended"
    controller.stop()


def test_gang_evicts_exactly_the_cheapest_after_their_guarantee(clean: SlurmStack, tmp_path: Path) -> None:
    """Old jobs cost more (no checkpoint since they started): the eight youngest unguaranteed go, guaranteed ones
    stay."""
    controller = Controller(settings(tmp_path))
    controller.cycle()
    assert clean.command("sacctmgr", "-nP", "show", "qos", "hp", "format=Preempt").strip() == ""
    old = [clean.submit("spot") for _ in range(16)]
    wait_until(lambda: len(running(clean, old)) == 16, 20, "old spot runs")
    time.sleep(4)
    guaranteed = [clean.submit("spot-1h") for _ in range(8)]
    young = [clean.submit("spot") for _ in range(8)]
    wait_until(lambda: len(running(clean, old + young + guaranteed)) == 32, 20, "the cluster is full")
    hp = clean.submit("hp", nodes=8)
    cycles(controller, lambda: running(clean, [hp]) == [hp], 20, "HP gang runs")
    assert running(clean, young) == []
    assert running(clean, old + guaranteed) == old + guaranteed
    assert sum(restarts(clean, job) for job in old + young + guaranteed) == 8
    # The delay that Slurm gives to requeued jobs is taken off: once HP is gone they run again at once, not after two
    # minutes.
    clean.command("scancel", str(hp))
    cycles(controller, lambda: len(running(clean, young)) == 8, 30, "victims run again")
    controller.stop()
    assert clean.command("sacctmgr", "-nP", "show", "qos", "hp", "format=Preempt").strip() == ",".join(SPOT)


def test_held_jobs_are_placed(clean: SlurmStack, tmp_path: Path) -> None:
    controller = Controller(settings(tmp_path))
    mine = clean.submit("hp", 4, 2, "-H", "--comment=gpsched")
    others = clean.submit("hp", 4, 1, "-H")
    cycles(controller, lambda: running(clean, [mine]) == [mine], 20, "held job runs")
    placed = [event for event in read_journal(tmp_path / "state/journal.jsonl") if event.get("why") == "place"]
    wanted = next(word for word in placed[0]["command"] if word.startswith("ReqNodeList="))
    assert wanted.removeprefix("ReqNodeList=") == ",".join(
        next(one.nodes for one in stack_jobs(clean) if one.id == mine)
    )
    assert clean.states(others) == ["PENDING"], "a job held by its user was released"
    controller.stop()


def test_killed_controller_resumes(clean: SlurmStack, tmp_path: Path) -> None:
    """SIGKILL between the evictions of a gang; the next controller finishes the work, evicting no more than needed."""
    words = [sys.executable, "-c", RUN_CLUSTER, "control", "--interval", "0.5", "--spot-qos", "spot"]
    words += ["--state-dir", str(tmp_path / "state"), "--lock", str(tmp_path / "lock"), "--stop-quota", "16"]
    jobs = [clean.submit("spot") for _ in range(32)]
    wait_until(lambda: len(running(clean, jobs)) == 32, 30, "the cluster is full")
    first = subprocess.Popen(words, env=clean.env)
    journal = tmp_path / "state/journal.jsonl"
    hp = 0
    try:
        wait_until(
            lambda: any(event.get("event") == "done" for event in read_journal(journal)), 30, "first changes made"
        )
        hp = clean.submit("hp", nodes=8)
        wait_until(
            lambda: any("requeue" in event.get("command", []) for event in read_journal(journal)), 30, "evictions begin"
        )
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    second = subprocess.Popen(words, env=clean.env)
    try:
        wait_until(lambda: running(clean, [hp]) == [hp], 40, "HP gang runs")
        assert sum(restarts(clean, job) for job in jobs) == 8, "more or fewer evictions than the gang needs"
        with pytest.raises(LeaderError) as refused:
            Controller(settings(tmp_path))
        assert refused.value.pid == second.pid
    finally:
        second.send_signal(signal.SIGTERM)
        assert second.wait(30) == 0
    assert limit(clean, "spot") == "gres/gpu=16", "safe stop leaves the stated quota"
    assert clean.command("sacctmgr", "-nP", "show", "qos", "hp", "format=Preempt").strip() == ",".join(SPOT)


RUN_CLUSTER = """
import argparse, sys
from gpsched.cli import cluster
parser = argparse.ArgumentParser()
cluster.add_parser(parser.add_subparsers())
args = parser.parse_args(["cluster", *sys.argv[1:]])
sys.exit(args.run(args))
"""


def test_another_edit_is_respected_until_taken_back(clean: SlurmStack, tmp_path: Path) -> None:
    controller = Controller(settings(tmp_path))
    controller.cycle()
    clean.command("sacctmgr", "-i", "modify", "qos", "spot", "set", "GrpTRES=gres/gpu=40")
    controller.cycle()
    controller.cycle()
    assert limit(clean, "spot") == "gres/gpu=40"
    events = read_journal(tmp_path / "state/journal.jsonl")
    assert [event["qos"] for event in events if event["event"] == "yielded"] == ["spot"]
    controller.stop()
    controller = Controller(settings(tmp_path, take_back=True))
    controller.cycle()
    assert limit(clean, "spot") != "gres/gpu=40"
    controller.stop()


def test_dry_run_changes_nothing(clean: SlurmStack, tmp_path: Path) -> None:
    before = clean.command("sacctmgr", "-nP", "show", "qos")
    controller = Controller(settings(tmp_path), dry_run=True)
    clean.submit("hp", 4, 1, "-H", "--comment=gpsched")
    controller.cycle()
    controller.stop()
    assert clean.command("sacctmgr", "-nP", "show", "qos") == before
    would = [
        event["command"][0] for event in read_journal(tmp_path / "state/journal.jsonl") if event["event"] == "would"
    ]
    assert {"sacctmgr", "scontrol"} <= set(would)


def test_unknown_qos_is_refused(clean: SlurmStack, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nosuch"):
        Controller(settings(tmp_path, spot={"nosuch": 0.0}))


def test_slurmctld_restart_is_survived(clean: SlurmStack, tmp_path: Path) -> None:
    controller = Controller(settings(tmp_path, interval_s=0.3))
    jobs = [clean.submit("spot") for _ in range(4)]
    wait_until(lambda: len(running(clean, jobs)) == 4, 20, "spot runs")
    clean.end("slurmctld")
    controller.slurm.timeout_s = 2.0
    turns = iter(range(2))
    controller.run(lambda: next(turns, None) is None)
    clean.start_ctld()
    wait_until(lambda: len(running(clean, jobs)) == 4, 40, "jobs known again")
    controller.slurm.timeout_s = 30.0
    controller.cycle()
    events = [event["event"] for event in read_journal(tmp_path / "state/journal.jsonl")]
    assert "unanswered" in events
    assert all(restarts(clean, job) == 0 for job in jobs), "the restart evicted a job"
    controller.stop()


def test_victims_are_found_while_the_database_is_gone_for_a_minute(clean: SlurmStack, tmp_path: Path) -> None:
    controller = Controller(settings(tmp_path))
    jobs = [clean.submit("spot", nodes=2) for _ in range(16)]
    cycles(controller, lambda: len(running(clean, jobs)) == 16, 30, "the cluster is full")
    controller.cycle()
    clean.end("slurmdbd")
    clean.end("mariadbd")
    gone = time.monotonic()
    controller.slurm.timeout_s = 5.0
    hp = clean.submit("hp", nodes=2)
    cycles(controller, lambda: running(clean, [hp]) == [hp], 50, "HP runs without the database")
    assert sum(restarts(clean, job) for job in jobs) == 1
    time.sleep(max(0.0, 60.0 - (time.monotonic() - gone)))
    clean.start_mariadb()
    clean.start_dbd()
    controller.slurm.timeout_s = 30.0
    wait_until(lambda: clean.try_command("sacctmgr", "-n", "show", "qos"), 60, "database back")
    cycles(controller, lambda: limit(clean, "spot") == "gres/gpu=240", 20, "quota written again")
    controller.stop()


def test_slurm_without_accounting_is_refused(
    clean: SlurmStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same slurmctld, asked through a scontrol that shows a configuration without accounting."""
    fake = tmp_path / "bin/scontrol"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'AccountingStorageType = accounting_storage/none'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(AccountingMissingError, match="none"):
        Controller(settings(tmp_path))


def test_journal_is_whole_lines(clean: SlurmStack, tmp_path: Path) -> None:
    controller = Controller(settings(tmp_path))
    controller.cycle()
    controller.stop()
    path = tmp_path / "state/journal.jsonl"
    lines = path.read_text().splitlines()
    assert [json.loads(line)["event"] for line in (lines[0], lines[-1])] == ["started", "stopped"]
    assert len(read_journal(path)) == len(lines)
