"""The doctor's rules on machines told as folders: each answer that a user may meet, with its fix."""

import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from gpsched.adaptive.doctor import driver_rules, install_rules, portability
from gpsched.adaptive.doctor.examine import LADDER, RULES, examine
from gpsched.adaptive.doctor.host import Host
from gpsched.adaptive.doctor.model import Report, Result
from gpsched.adaptive.driver import module_level
from gpsched.adaptive.driver.errors import ModuleAbsentError
from gpsched.adaptive.driver.module_abi import Feature, ModuleInfo
from gpsched.adaptive.model import DaemonView, GpuView, ProcessView, Snapshot


_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
_CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n"
_OLD = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27\n"
_ROOT = "CapEff:\t000001ffffffffff\n"
_GOOD = {
    "proc/self/status": _ROOT,
    "proc/sys/kernel/osrelease": "6.18.0\n",
    "proc/mounts": "cgroup /sys/fs/cgroup cgroup2 rw 0 0\n",
    "sys/kernel/btf/vmlinux": "",
    "sys/kernel/tracing/events/syscalls/sys_enter_ioctl/id": "1",
    "sys/bus/event_source/devices/uprobe/type": "8",
    "proc/driver/nvidia/version": _OPEN,
    "proc/driver/nvidia/gpus/0000:1b:00.0/information": "GPU Firmware: \t 580.159.04\n",
    "usr/lib/x86_64-linux-gnu/libcuda.so.1": "",
    "etc/group": "root:x:0:\ngpsched:x:999:\n",
}


def _host(tmp_path: Path, files: dict[str, str | None]) -> Host:
    """A machine where all is well but for ``files``; None removes one."""
    for name, text in (_GOOD | files).items():
        if text is not None:
            path = tmp_path / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    config = tmp_path / "root/etc/gpsched/config.toml"
    return Host(tmp_path / "root", state_dir=tmp_path / "state", config=config, config_dir=config.with_name("d"))


def _ask(host: Host, name: str) -> Result:
    return next(result for result in examine(host).checks if result.name == name)


def test_a_good_machine_is_healthy(tmp_path: Path) -> None:
    built_here = {"bcc", "headers", "actuator", "agent"}  # answered by this machine, whatever the folder says
    bad = [result for result in examine(_host(tmp_path, {})).checks if result.state != "ok"]
    assert {result.name for result in bad} - built_here == {"module", "calibration"}


@pytest.mark.parametrize(
    ("name", "files", "state", "detail", "fix"),
    [
        ("container", {".dockerenv": ""}, "degraded", "runs in a container (/.dockerenv)", "--pid=host"),
        ("container", {"run/.containerenv": ""}, "degraded", "(/run/.containerenv)", "--privileged"),
        ("privileges", {"proc/self/status": "CapEff:\t0\n"}, "missing", "CAP_SYS_PTRACE", "sudo"),
        ("realtime", {"proc/self/status": "CapEff:\t0\n"}, "degraded", "a nice value instead", "rt_group_sched=0"),
        ("ptrace", {"proc/sys/kernel/yama/ptrace_scope": "3\n"}, "missing", "nobody may trace", "reboot"),
        ("btf", {"sys/kernel/btf/vmlinux": None}, "missing", "vmlinux", "CONFIG_DEBUG_INFO_BTF"),
        (
            "lockdown",
            {"sys/kernel/security/lockdown": "none integrity [confidentiality]\n"},
            "missing",
            "confidentiality",
            "lockdown=",
        ),
        ("lockdown", {"sys/kernel/security/lockdown": "none [integrity] confidentiality\n"}, "ok", "integrity", ""),
        (
            "tracefs",
            {"sys/kernel/tracing/events/syscalls/sys_enter_ioctl/id": None},
            "degraded",
            "the daemon mounts it",
            "mount -t tracefs",
        ),
        ("uprobes", {"sys/bus/event_source/devices/uprobe/type": None}, "missing", "no uprobe", "CONFIG_UPROBE"),
        ("freezer", {"proc/mounts": "cgroup /sys/fs/cgroup cgroup rw 0 0\n"}, "degraded", "signal", "systemd.unified"),
        ("driver", {"proc/driver/nvidia/version": None}, "missing", "no NVIDIA driver", "branch 535"),
        ("driver", {"proc/driver/nvidia/version": _OLD}, "missing", "older than the RM ABI", "535"),
        ("driver", {"proc/driver/nvidia/version": _CLOSED}, "ok", "535.104.05, proprietary", ""),
        ("flavour", {"proc/driver/nvidia/version": _CLOSED}, "degraded", "never run", "-open"),
        (
            "gsp",
            {"proc/driver/nvidia/gpus/0000:1b:00.0/information": "GPU Firmware: N/A\n"},
            "degraded",
            "1 of 1 GPUs",
            "EnableGpuFirmware",
        ),
        ("libcuda", {"usr/lib/x86_64-linux-gnu/libcuda.so.1": None}, "degraded", "containers bring", "user-space"),
        (
            "libcuda",
            {"proc/7/maps": "7f00-7f01 r-xp 0 00:1 5    /opt/c/libcuda.so.580.1\n"},
            "ok",
            "/opt/c/libcuda.so.580.1",
            "",
        ),
        ("mig", {"proc/driver/nvidia/capabilities/gpu0/mig/gi1/access": ""}, "degraded", "1 GPU instances", "-mig 0"),
        ("mps", {"proc/9/comm": "nvidia-cuda-mps\n"}, "degraded", "server 9", "quit"),
        ("vgpu", {"proc/9/comm": "nvidia-gridd\n"}, "degraded", "nvidia-gridd", "passthrough"),
        ("module", {}, "degraded", "the stock driver", "docs/kmod.md"),
        ("module", {"sys/module/gpsched_companion/refcnt": "0"}, "ok", "companion", ""),
        ("module", {"sys/module/nvidia/parameters/gpsched": "Y\n"}, "ok", "nvidia.ko has it", ""),
        ("module", {"sys/module/nvidia/parameters/gpsched": "N\n"}, "degraded", "switched off", "kernel log"),
        ("group", {"etc/group": "root:x:0:\n"}, "degraded", "only root", "groupadd"),
        ("config", {"etc/gpsched/config.toml": "[timeslise]\n"}, "missing", "did you mean", "config check"),
    ],
)
def test_each_defect_is_named_with_its_fix(
    tmp_path: Path, name: str, files: dict[str, str | None], state: str, detail: str, fix: str
) -> None:
    result = _ask(_host(tmp_path, files), name)
    assert (result.state, detail in result.detail, fix in result.fix) == (state, True, True), result
    assert bool(result.reason) == (state != "ok")


@pytest.mark.parametrize(
    ("driver", "state", "detail"),
    [("580.159.04", "ok", "H200, driver 580.159.04"), ("570.1", "degraded", "there is one for driver 570.1")],
)
def test_a_calibration_counts_for_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, state: str, detail: str
) -> None:
    monkeypatch.setattr(install_rules, "load_all", lambda _state: [SimpleNamespace(gpu="H200", driver=driver)])
    result = _ask(_host(tmp_path, {}), "calibration")
    assert (result.state, detail in result.detail) == (state, True)


@pytest.mark.parametrize(
    ("features", "error", "state", "detail", "fix"),
    [
        (Feature.KFUNCS, None, "ok", "driver 550.1, family version 1, with BPF calls: it undoes", ""),
        (Feature.COMPANION, None, "ok", "companion module (for experiments only) beside driver 550.1", ""),
        (Feature.TEST, None, "degraded", "TEST BUILD", "without GPSCHED_TEST"),
        (None, "the loaded module speaks version 0, this daemon 1", "degraded", "version 0", "install it anew"),
    ],
)
def test_what_the_module_says_of_itself(
    monkeypatch: pytest.MonkeyPatch, features: Feature | None, error: str | None, state: str, detail: str, fix: str
) -> None:
    def loaded() -> ModuleInfo:
        if features is None:
            raise ModuleAbsentError(error or "")
        return ModuleInfo(1, "550.1", features, {})

    monkeypatch.setattr(module_level, "loaded", loaded)
    found = driver_rules._module_answer()
    assert (found.state, detail in found.detail, fix in found.fix) == (state, True, True), found


def test_a_missing_driver_blocks_control_but_not_observation(tmp_path: Path) -> None:
    report = examine(_host(tmp_path, {"proc/driver/nvidia/version": None}))
    possible = {answer.level: answer.possible for answer in report.levels}
    assert not possible["timeslice"]
    assert not possible["module"]
    blocked = next(answer for answer in report.levels if answer.level == "timeslice").blocked_by
    assert "driver" in blocked


def _view(pid: int, level: str, gpus: list[int]) -> ProcessView:
    return ProcessView(
        pid=pid, name="p", command="p", user="u", cgroup="/", container=None, class_="lc", source="attach", tenant="t",
        slo_us=None, level=level, reason="because", gpus=gpus, groups=[], calls={},  # type: ignore[arg-type]
    )  # fmt: skip


def test_processes_and_gpus_tell_why_not_more(tmp_path: Path) -> None:
    daemon = DaemonView(
        pid=1, version="0", uptime_s=1.0, libraries=[], lost_events=0, failed_controls=0, last_failure=None
    )
    processes = [_view(5, "timeslice", [0]), _view(6, "observe", [0]), _view(7, "hold", [1])]
    snapshot = Snapshot(time_s=0.0, daemon=daemon, processes=processes, gpus=[GpuView(gpu=2, name="H200")])
    report = examine(_host(tmp_path, {}), snapshot)
    assert [(gpu.gpu, gpu.level, gpu.processes) for gpu in report.gpus] == [
        (0, "observe", 2),
        (1, "hold", 1),
        (2, "observe", 0),
    ]
    last = report.processes[2]
    assert (last.next_level, last.next_lacks) == ("module", "module")
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_every_rule_says_what_is_lost_and_what_to_do() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.otherwise, rule.name
        assert rule.fix, rule.name
        assert rule.tried, rule.name
        assert set(rule.levels) <= set(LADDER)


@pytest.mark.parametrize("refused", [True, False])
def test_real_time_is_tried_and_left_as_it_was(monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    """A control group may refuse it to root, as an H200's container did."""
    tried: list[int] = []

    def schedule(_pid: int, policy: int, _priority: os.sched_param) -> None:
        if refused:
            raise PermissionError
        tried.append(policy)

    monkeypatch.setattr(os, "sched_setscheduler", schedule)
    monkeypatch.setattr(Host, "has_capability", lambda _host, _name: True)
    found = _ask(Host(), "realtime")
    assert found.state == ("degraded" if refused else "ok")
    assert tried == ([] if refused else [os.SCHED_FIFO, os.sched_getscheduler(0)])


def test_the_portability_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs/portability.md"
    assert page.read_text() == portability.page(), "run: gpsched doctor --table > docs/portability.md"


@pytest.mark.skipif(os.geteuid() != 0, reason="asks for root's capabilities")
def test_every_rule_has_an_answer_on_this_machine() -> None:
    results = {result.name: result for result in examine(Host()).checks}
    assert list(results) == [rule.name for rule in RULES]
    assert results["privileges"].state == "ok"
    assert not [result for result in results.values() if "cannot be found out" in result.detail]
