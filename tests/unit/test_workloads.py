"""Reading /proc, matching rules, and the registry."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.config import Rule, Timeslice
from gpsched.adaptive.driver.types import ChannelGroup
from gpsched.adaptive.errors import ProcessGoneError
from gpsched.adaptive.policy.timeslice import decide
from gpsched.adaptive.workloads import procinfo, rules
from gpsched.adaptive.workloads.procinfo import ProcessInfo
from gpsched.adaptive.workloads.registry import Group, Process, Registry


def _info(**changes: object) -> ProcessInfo:
    fields: dict[str, object] = {
        "pid": 7,
        "start_ticks": 1,
        "parent": 1,
        "name": "python",
        "exe": "/usr/bin/python3.11",
        "command": "python serve.py --port 1",
        "user": "alice",
        "cgroup": "/system.slice/api.service",
        "container": "0123456789ab",
        "env": {"ROLE": "api-1"},
    }
    return ProcessInfo(**(fields | changes))  # type: ignore[arg-type]


def test_reads_this_very_process() -> None:
    info = procinfo.read(os.getpid())
    assert info.pid == os.getpid()
    assert info.parent == os.getppid()
    assert "python" in info.exe
    assert info.start_ticks == procinfo.start_ticks(os.getpid())
    assert procinfo.has_driver_open(os.getpid()) is False


def test_a_command_name_with_brackets_and_spaces_does_not_shift_the_fields(tmp_path: Path) -> None:
    folder = tmp_path / "42"
    folder.mkdir()
    fields = ["S", "1", *["0"] * 17, "987", "0"]
    (folder / "stat").write_text("42 (a) S 9 (b)) " + " ".join(fields))
    info = procinfo.read(42, tmp_path)
    assert (info.parent, info.start_ticks) == (1, 987)


@pytest.mark.parametrize("state", ["Z", "X"])
def test_the_dead_are_gone(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "42"
    folder.mkdir()
    (folder / "stat").write_text(f"42 (a) {state} 1 " + "0 " * 30)
    with pytest.raises(ProcessGoneError):
        procinfo.read(42, tmp_path)
    with pytest.raises(ProcessGoneError):
        procinfo.read(43, tmp_path)


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        ("0::/system.slice/docker-" + "ab" * 32 + ".scope", "abababababab"),
        ("0::/docker/" + "12" * 32, "121212121212"),
        ("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + "cd" * 32 + ".scope", "cdcdcdcdcdcd"),
        ("0::/machine.slice/libpod-" + "ef" * 32 + ".scope/container", "efefefefefef"),
        ("0::/user.slice/user-0.slice/session-1.scope", None),
        ("12:cpu:/\n1:name=systemd:/a\n0::/", None),
    ],
)
def test_containers_are_told_from_the_cgroup(tmp_path: Path, cgroup: str, container: str | None) -> None:
    folder = tmp_path / "42"
    folder.mkdir()
    (folder / "stat").write_text("42 (a) S 1 " + "0 " * 30)
    (folder / "cgroup").write_text(cgroup + "\n")
    assert procinfo.read(42, tmp_path).container == container


@pytest.mark.parametrize(
    ("lines", "cgroup"),
    [
        ("12:cpu:/\n1:name=systemd:/a\n0::/", "/a"),
        ("6:freezer:/b\n0::/user.slice", "/user.slice"),
        ("6:freezer:/slurm_n1/uid_0/job_7/step_batch\n0::/init.scope", "/slurm_n1/uid_0/job_7/step_batch"),
        ("9:devices:/docker/" + "12" * 32 + "\n0::/system.slice/containerd.service", "/docker/" + "12" * 32),
        ("3:cpu:/\n0::/", "/"),
        ("0::/../x", "/../x"),
    ],
)
def test_the_cgroup_that_names_a_job_or_container_counts(tmp_path: Path, lines: str, cgroup: str) -> None:
    folder = tmp_path / "42"
    folder.mkdir()
    (folder / "stat").write_text("42 (a) S 1 " + "0 " * 30)
    (folder / "cgroup").write_text(lines + "\n")
    assert procinfo.read(42, tmp_path).cgroup == cgroup


def test_descendants_are_found_parents_first(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (11, 10), (12, 11), (13, 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) S {parent} " + "0 " * 30)
    assert procinfo.children(10, tmp_path) == [11, 12]


@pytest.mark.parametrize(
    "rule",
    [
        Rule(class_="lc", exe="/usr/bin/python*"),
        Rule(class_="lc", command=r"serve\.py"),
        Rule(class_="lc", user="alice"),
        Rule(class_="lc", cgroup="*/api.service"),
        Rule(class_="lc", container="0123456789ab" + "f" * 52),
        Rule(class_="lc", env={"ROLE": "api-*"}),
        Rule(class_="lc", exe="/usr/bin/*", user="alice", env={"ROLE": "*"}),
    ],
)
def test_rules_match_on_all_given_patterns(rule: Rule) -> None:
    assert rules.match(_info(), [Rule(class_="be", user="bob"), rule]) is rule


@pytest.mark.parametrize(
    "rule",
    [
        Rule(class_="lc", exe="python*"),
        Rule(class_="lc", command="^serve"),
        Rule(class_="lc", user="alice", cgroup="/other"),
        Rule(class_="lc", container="ffff"),
        Rule(class_="lc", env={"MISSING": "x"}),
    ],
)
def test_rules_that_do_not_match(rule: Rule) -> None:
    assert rules.match(_info(), [rule]) is None
    assert rules.match(_info(container=None), [rule]) is None


def test_the_registry_keeps_what_is_known_of_a_group() -> None:
    registry = Registry()
    registry.put(Process(_info(), "be", "run", "alice"))
    first = ChannelGroup(client=1, handle=2, engine="compute", gpu_id=5)
    registry.set_groups(7, [first, ChannelGroup(client=1, handle=3)])
    process = registry.get(7)
    assert process is not None
    process.groups[1, 2].original_us = 2048
    gone = registry.set_groups(7, [ChannelGroup(client=1, handle=2, engine="compute")])
    assert [entry.key for entry in gone] == [(1, 3)]
    assert process.groups[1, 2].original_us == 2048
    assert process.groups[1, 2].group.gpu_id == 5


_PROCESSES = st.lists(
    st.tuples(st.sampled_from(["lc", "be"]), st.sets(st.integers(0, 2), min_size=1, max_size=3)), max_size=6
)


@given(_PROCESSES)
def test_every_decision_keeps_the_rules_of_the_level(members: list[tuple[str, set[int]]]) -> None:
    processes = []
    for pid, (class_, gpus) in enumerate(members):
        process = Process(_info(pid=pid), class_, "run", "alice")  # type: ignore[arg-type]
        for gpu in gpus:
            group = ChannelGroup(client=gpu, handle=1, engine="compute", gpu_id=gpu)
            process.groups[group.key] = Group(group)
        processes.append(process)
    decisions = decide(processes, Timeslice())
    assert set(decisions) == {(pid, gpu) for pid, (_, gpus) in enumerate(members) for gpu in gpus}
    for gpu in range(3):
        here = [(pid, class_) for pid, (class_, gpus) in enumerate(members) if gpu in gpus]
        short = [pid for pid, class_ in here if class_ == "be" and decisions[pid, gpu].timeslice_us == 1]
        assert len(short) <= 1  # two at 1 µs starve each other
        lc = [pid for pid, class_ in here if class_ == "lc"]
        if not lc or len(lc) == len(here):
            assert all(decisions[pid, gpu].timeslice_us is None for pid, _ in here)
        assert all(decisions[pid, gpu].reason for pid, _ in here)
