"""Rules by the QOS of jobs, with a real Slurm: its prolog, its cgroups, its jobs' environment."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.config import Rule
from gpsched.adaptive.workloads import placement, procinfo, rules
from tests.cluster import slurm_stack
from tests.cluster.slurm_stack import SlurmStack, wait_until


_PROLOG = Path(__file__).parents[2] / "packaging/slurm-prolog.sh"
_RULES = [Rule(name="spot", class_="be", slurm_qos="spot*"), Rule(name="high", class_="lc", slurm_qos="hp")]

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.root,
    pytest.mark.skipif(bool(slurm_stack.missing()), reason=f"Slurm tests need: {', '.join(slurm_stack.missing())}"),
    pytest.mark.skipif(not Path("/sys/fs/cgroup/freezer").is_dir(), reason="Slurm's cgroups are tried with cgroup v1"),
]


@pytest.fixture(scope="module")
def stack() -> Iterator[SlurmStack]:
    lab = Path(tempfile.mkdtemp(prefix="gpsched-slurm-"))
    lines = [f"Prolog={lab}/prolog", f"Epilog={lab}/prolog", "ProctrackType=proctrack/cgroup"]
    stack = SlurmStack(lab, nodes=1, changes="\n".join([*lines, ""]))
    script = lab / "prolog"
    script.write_text(_PROLOG.read_text().replace("/run/gpsched/slurm", f"{lab}/qos"))
    script.chmod(0o755)
    (lab / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n")
    try:
        stack.start()
        for qos in ("spot", "hp"):
            stack.command("sacctmgr", "-i", "add", "qos", qos)
        stack.command("sacctmgr", "-i", "add", "account", "org1", f"Cluster={slurm_stack.CLUSTER}")
        user = ("user", "root", "Account=org1", f"Cluster={slurm_stack.CLUSTER}", "QOS=spot,hp", "DefaultQOS=hp")
        stack.command("sacctmgr", "-i", "add", *user)
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(lab)
        for cgroup in sorted(Path("/sys/fs/cgroup").glob("*/slurm_n1/**/"), reverse=True):  # slurmd leaves them
            with contextlib.suppress(OSError):
                cgroup.rmdir()


def _process(job: int) -> procinfo.ProcessInfo | None:
    """The job's own process, found by its cgroup."""
    for pid in map(int, subprocess.run(["pgrep", "-x", "sleep"], capture_output=True, text=True).stdout.split()):
        info = procinfo.read(pid)
        if placement.slurm_job(info.cgroup) == job:
            return info
    return None


@pytest.mark.parametrize(("qos", "class_"), [("spot", "be"), ("hp", "lc")])
def test_every_job_of_a_qos_has_its_class(
    stack: SlurmStack, monkeypatch: pytest.MonkeyPatch, qos: str, class_: str
) -> None:
    other = "hp" if qos == "spot" else "spot"
    job = stack.submit(qos, 1, 1, f"--export=ALL,SLURM_JOB_QOS={other}")
    try:
        wait_until(lambda: _process(job), 60, "the job runs in its cgroup")
        info = _process(job)
        assert info is not None
        assert (stack.lab / "qos" / str(job)).read_text().splitlines() == [qos, "org1"]  # by the prolog
        for function in (placement.slurm_qos, placement.slurm_account):
            monkeypatch.setattr(function, "__defaults__", (stack.lab / "qos",))
        found = rules.match(info, _RULES)
        assert found is not None
        assert found.class_ == class_
        assert rules.tenant(info, found) == "org1"
        assert placement.slurm_qos(info.cgroup, {"SLURM_JOB_QOS": other}) == qos  # no user's word
    finally:
        stack.command("scancel", str(job))
    wait_until(lambda: not (stack.lab / "qos" / str(job)).exists(), 60, "the epilog removes it")
