"""GPUs by NVML, jobs and pods by cgroup, slices by the driver: what the daemon reads on its node."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpsched.adaptive import gpus
from gpsched.adaptive.config import Rule
from gpsched.adaptive.model import GpuView
from gpsched.adaptive.workloads import placement, rules
from gpsched.adaptive.workloads.procinfo import ProcessInfo
from tests.tui import scene


class _Error(Exception):
    pass


def _nvml(**answers: object) -> SimpleNamespace:
    def answer(name: str) -> object:
        def ask(_device: int) -> object:
            if name not in answers:
                raise _Error("Not Supported")
            return answers[name]

        return ask

    names = ("Name", "MemoryInfo", "UtilizationRates", "PowerUsage", "EnforcedPowerLimit")
    calls = {f"nvmlDeviceGet{name}": answer(name) for name in names}
    return SimpleNamespace(
        NVMLError=_Error, nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda number: number, **calls,
    )  # fmt: skip


def test_gpus_show_what_nvml_supports(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(used=1 << 30, total=4 << 30)
    monkeypatch.setitem(sys.modules, "pynvml", _nvml(Name=b"H200", MemoryInfo=memory, PowerUsage=412_000))
    found = gpus.Gpus()
    views = found.views()
    assert [(view.gpu, view.name, view.power_w, view.power_limit_w, view.busy_share) for view in views] == [
        (0, "H200", 412.0, None, None),
        (1, "H200", 412.0, None, None),
    ]
    assert views[0].memory_total_bytes == 4 << 30
    assert found.views() is views  # asked once a second at most
    found.close()


def test_gpus_are_asked_again_off_the_daemons_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, threads = _nvml(Name="H200"), []
    nvml.nvmlDeviceGetCount = lambda: threads.append(threading.current_thread().name) or 1
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(gpus, "_EVERY_S", 0.0)
    found = gpus.Gpus()
    found.views()
    found.close()
    assert threads == [threading.current_thread().name, "nvml"]


def test_without_nvml_no_gpus_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise _Error("NVML Shared Library Not Found")

    broken = _nvml()
    broken.nvmlInit = fail
    for module in (None, broken):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert gpus.Gpus().views() == []


def test_who_has_the_engine() -> None:
    processes = scene.snapshot(1).processes  # 100 lc and 200 be on GPU 0, 300 lc and 400 be on GPU 1
    nvml = [GpuView(gpu=0, name="H200")]
    holders = gpus.with_engine(nvml, processes, frozenset({100}))
    assert [(gpu.gpu, gpu.name, gpu.engine_pid) for gpu in holders] == [(0, "H200", 100), (1, None, 400)]
    crowded = [*processes, scene.process(500, "x", "be")]
    assert gpus.with_engine(nvml, crowded, frozenset())[0].engine_pid is None
    assert gpus.with_engine([], [], frozenset()) == []


_SLURM_V2 = "/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0"
_SLURM_V1 = "/slurm/uid_1000/job_4242/step_batch"
_UID = "0b5f1c2e-1111-2222-3333-444455556666"
_POD = f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{_UID.replace('-', '_')}.slice/cri-x.scope"


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [(_SLURM_V2, 4242), (_SLURM_V1, 4242), ("/user.slice/job_7", None), ("/slurm/uid_1", None), ("/", None)],
)
def test_the_cgroup_tells_the_job(cgroup: str, job: int | None) -> None:
    assert placement.slurm_job(cgroup) == job


def test_the_prologs_word_counts_more_than_the_users(tmp_path: Path) -> None:
    env = {"SLURM_JOB_QOS": "high"}
    assert placement.slurm_qos(_SLURM_V2, env, tmp_path) == "high"
    (tmp_path / "4242").write_text("spot\n")
    assert placement.slurm_qos(_SLURM_V2, env, tmp_path) == "spot"
    assert placement.slurm_qos("/", {}, tmp_path) is None


def test_the_account_is_the_tenant_of_jobs_found_by_their_qos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement.slurm_qos, "__defaults__", (tmp_path,))
    monkeypatch.setattr(placement.slurm_account, "__defaults__", (tmp_path,))
    job = _info(_SLURM_V2, {"SLURM_JOB_QOS": "spot", "SLURM_JOB_ACCOUNT": "mine"})
    by_qos = Rule(class_="be", slurm_qos="spot*")
    assert rules.tenant(job, by_qos) == "mine"
    assert rules.tenant(job, Rule(class_="be", slurm_qos="spot*", tenant="named")) == "named"
    assert rules.tenant(job, Rule(class_="be", exe="*")) == "u", "the environment counts only beside the QOS"
    (tmp_path / "4242").write_text("spot\norg1\n")
    assert rules.tenant(job, by_qos) == "org1", "the prolog's word counts more"
    (tmp_path / "4242").write_text("spot\n")
    assert rules.tenant(job, by_qos) == "u", "a claim is not believed where a prolog speaks"


def test_the_log_folder_names_the_pod(tmp_path: Path) -> None:
    assert placement.pod(_POD, tmp_path) == _UID
    (tmp_path / f"prod_web-7d9_{_UID}").mkdir()
    assert placement.pod(_POD, tmp_path) == "prod/web-7d9"
    assert placement.pod(f"/kubepods/burstable/pod{_UID}/c1", tmp_path) == "prod/web-7d9"
    assert placement.pod("/system.slice/podman.service", tmp_path) is None


def _info(cgroup: str, env: dict[str, str]) -> ProcessInfo:
    return ProcessInfo(
        pid=1, start_ticks=1, parent=0, name="p", exe="/p", command="p", user="u", cgroup=cgroup, container=None,
        env=env,
    )  # fmt: skip


def test_rules_by_qos_and_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"prod_web-7d9_{_UID}").mkdir()
    monkeypatch.setattr(placement.pod, "__defaults__", (tmp_path,))
    given = [Rule(class_="be", slurm_qos="spot*"), Rule(class_="lc", pod="prod/web-*")]
    assert rules.match(_info(_SLURM_V2, {"SLURM_JOB_QOS": "spot-low"}), given) is given[0]
    assert rules.match(_info(_POD, {}), given) is given[1]
    assert rules.match(_info(_SLURM_V2, {"SLURM_JOB_QOS": "normal"}), given) is None
    assert rules.match(_info("/", {}), given) is None
