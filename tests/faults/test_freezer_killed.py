"""A freezing process that is killed at any step leaves nothing stopped: the survivor, or the next start, thaws."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.freezer import Freezer
from gpsched.adaptive.survivor import Survivor
from gpsched.adaptive.thaw import restore_frozen
from gpsched.adaptive.undo import AlreadyRunningError, UndoLog
from tests.unit.freezer.victims import Victim, cgroup, join, until


pytestmark = pytest.mark.root

# Freezes and thaws, and kills itself at step STEP: before and after everything that changes a process or the log.
_FREEZE = """
import functools, os, signal, sys
from pathlib import Path
from gpsched.adaptive import thaw
from gpsched.adaptive.cgroups import Cgroup
from gpsched.adaptive.freezer import Freezer
from gpsched.adaptive.survivor import Survivor
from gpsched.adaptive.undo import UndoLog

state, left, with_survivor, pids = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "survivor", sys.argv[4:]

def tick():
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1

def stepped(function):
    @functools.wraps(function)
    def run(*args):
        tick()
        result = function(*args)
        tick()
        return result
    return run

undo = UndoLog(state)
freezer = Freezer(undo, survivor=Survivor(state) if with_survivor else None)
UndoLog.changing, UndoLog.restored = stepped(UndoLog.changing), stepped(UndoLog.restored)
Cgroup.set_frozen, thaw.send = stepped(Cgroup.set_frozen), stepped(thaw.send)
freezer.freeze(map(int, pids))
freezer.close()
undo.close()
"""
_STEPS = 4 * 3 * 2  # three things to freeze; record, freeze, thaw, strike off; before and after


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Victim]]:
    """Two processes in a cgroup of their own and two outside."""
    victims = [Victim(tmp_path_factory.mktemp("victims")) for _ in range(4)]
    try:
        with cgroup() as directory:
            join(directory, *victims[:2])
            yield victims
            for victim in victims:
                victim.end()
    finally:
        for victim in victims:
            victim.end()


def kill_at(step: int, state: Path, family: list[Victim], survivor: str) -> int:
    command = [sys.executable, "-c", _FREEZE, str(state), str(step), survivor]
    return subprocess.run([*command, *(str(victim.pid) for victim in family)], timeout=60).returncode


@pytest.mark.parametrize("step", range(_STEPS))
def test_the_next_start_thaws(tmp_path: Path, family: list[Victim], step: int) -> None:
    assert kill_at(step, tmp_path, family, "none") == -signal.SIGKILL
    undo = UndoLog(tmp_path)
    restore_frozen(undo)
    assert all(victim.runs() for victim in family)
    assert undo.frozen() == []
    undo.close()


def test_gpsched_restore_thaws(tmp_path: Path, family: list[Victim]) -> None:
    kill_at(2 * 3 * 2, tmp_path, family, "none")
    assert all(victim.still() for victim in family)
    places = ["--socket", str(tmp_path / "none.sock"), "--state-dir", str(tmp_path)]
    command = [sys.executable, "-m", "gpsched.cli.main", "restore", *places]
    restored = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (restored.returncode, restored.stdout) == (0, "3 settings restored\n")
    assert all(victim.runs() for victim in family)


def opens(state: Path) -> bool:
    try:
        UndoLog(state).close()
    except AlreadyRunningError:
        return False
    return True


@pytest.mark.parametrize("step", [*range(0, _STEPS, 3), _STEPS - 1])
def test_the_survivor_thaws(tmp_path: Path, family: list[Victim], step: int) -> None:
    assert kill_at(step, tmp_path, family, "survivor") == -signal.SIGKILL
    until(lambda: all(victim.runs() for victim in family))
    until(lambda: opens(tmp_path) and b"frozen" not in (tmp_path / "undo.jsonl").read_bytes())


@pytest.mark.parametrize("survivor", ["none", "survivor"])
def test_no_step_is_left_out(tmp_path: Path, family: list[Victim], survivor: str) -> None:
    assert kill_at(_STEPS, tmp_path, family, survivor) == 0
    assert all(victim.runs() for victim in family)
    assert (tmp_path / "undo.jsonl").read_bytes() == b""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Victim]]:
    victims: list[Victim] = []

    def start() -> Victim:
        victims.append(Victim(tmp_path))
        return victims[-1]

    yield start
    for victim in victims:
        victim.end()


def test_the_survivor_ends_with_the_freezer_and_is_replaced_when_it_dies(
    tmp_path: Path, start: Callable[[], Victim]
) -> None:
    victim, undo = start(), UndoLog(tmp_path / "state")
    survivor = Survivor(tmp_path / "state")
    freezer = Freezer(undo, survivor=survivor)
    freezer.freeze([victim.pid])
    first = survivor.pid
    os.kill(first, signal.SIGTERM)  # as systemd does to all processes of a service that it stops
    freezer.freeze([victim.pid])
    assert survivor.pid == first
    os.kill(first, signal.SIGKILL)
    until(lambda: survivor.pid == 0)
    freezer.freeze([victim.pid])
    assert survivor.pid not in (0, first)
    freezer.close()
    assert survivor.pid == 0
    assert victim.runs()
    undo.close()


def test_nobody_freezes_the_survivor(tmp_path: Path, start: Callable[[], Victim]) -> None:
    victim, undo = start(), UndoLog(tmp_path / "state")
    survivor = Survivor(tmp_path / "state")
    freezer = Freezer(undo, survivor=survivor)
    freezer.freeze([victim.pid])
    assert freezer.freeze([survivor.pid]) == {}
    freezer.close()
    undo.close()
