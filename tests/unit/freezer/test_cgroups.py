"""Processes that are alone in a cgroup: frozen as a whole; never with others, never ourselves."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gpsched.adaptive import cgroups
from gpsched.adaptive.cgroups import Cgroup
from gpsched.adaptive.freezer import Freezer
from gpsched.adaptive.thaw import restore_frozen
from gpsched.adaptive.undo import FrozenCgroup, UndoLog
from tests.unit.freezer.victims import Victim, join, state, until


pytestmark = pytest.mark.root
Start = Callable[[], Victim]


def frozen(group: Path) -> bool:
    return (group / "cgroup.freeze").read_text().strip() == "1"


def test_processes_that_are_alone_are_frozen_as_a_whole(
    freezer: Freezer, undo: UndoLog, group: Path, start: Start
) -> None:
    one, other = start(), start()
    join(group, one, other)
    assert freezer.freeze([one.pid, other.pid]) == {one.pid: "cgroup", other.pid: "cgroup"}
    until(freezer.settled)
    assert one.still()
    assert other.still()
    assert state(one.pid) not in "T", "its parent would have been told of a stop"
    assert undo.frozen() == [FrozenCgroup(path=str(group), inode=group.stat().st_ino)]
    freezer.thaw([one.pid, other.pid])
    assert one.runs()
    assert other.runs()
    assert not frozen(group)
    assert undo.frozen() == []


def test_a_cgroup_with_an_unmanaged_process_is_not_frozen(freezer: Freezer, group: Path, start: Start) -> None:
    managed, stranger = start(), start()
    join(group, managed, stranger)
    assert freezer.freeze([managed.pid]) == {managed.pid: "signal"}
    until(freezer.settled)
    assert managed.still()
    assert stranger.runs()
    assert not frozen(group)


def test_nor_with_one_in_a_cgroup_below(freezer: Freezer, group: Path, start: Start) -> None:
    managed, stranger = start(), start()
    below = group / "below"
    below.mkdir()
    join(group, managed)
    join(below, stranger)
    assert freezer.freeze([managed.pid]) == {managed.pid: "signal"}
    assert stranger.runs()


def test_cgroups_below_are_frozen_with_it(freezer: Freezer, group: Path, start: Start) -> None:
    above, below = start(), start()
    (group / "below").mkdir()
    join(group, above)
    join(group / "below", below)
    freezer.freeze([above.pid, below.pid])
    until(freezer.settled)
    assert above.still()
    assert below.still()
    freezer.thaw_all()
    assert above.runs()
    assert below.runs()


def test_one_that_joins_meanwhile_makes_it_fall_back_on_signals(
    freezer: Freezer, undo: UndoLog, group: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed, stranger = start(), start()
    join(group, managed)
    freeze = Cgroup.set_frozen

    def join_and_freeze(self: Cgroup, on: bool) -> None:
        if on:
            join(group, stranger)
        freeze(self, on)

    monkeypatch.setattr(Cgroup, "set_frozen", join_and_freeze)
    assert freezer.freeze([managed.pid]) == {managed.pid: "signal"}
    until(freezer.settled)
    assert managed.still()
    assert stranger.runs()
    assert not any(isinstance(record, FrozenCgroup) for record in undo.frozen())


def test_what_its_user_had_frozen_stays_frozen(freezer: Freezer, undo: UndoLog, group: Path, start: Start) -> None:
    victim = start()
    join(group, victim)
    (group / "cgroup.freeze").write_text("1")
    assert freezer.freeze([victim.pid]) == {victim.pid: "already"}
    freezer.thaw([victim.pid])
    assert frozen(group)
    assert undo.frozen() == []


def test_a_stopped_process_in_a_frozen_cgroup_stays_stopped(freezer: Freezer, group: Path, start: Start) -> None:
    victim = start()
    join(group, victim)
    victim.kill(signal.SIGTSTP)
    until(lambda: state(victim.pid) == "T")
    assert freezer.freeze([victim.pid]) == {victim.pid: "cgroup"}
    freezer.thaw([victim.pid])
    assert victim.still()
    victim.kill(signal.SIGCONT)
    assert victim.runs()


def test_holders_share_a_cgroup(freezer: Freezer, group: Path, start: Start) -> None:
    one, other = start(), start()
    join(group, one, other)
    freezer.freeze([one.pid, other.pid], holder=1)
    assert freezer.freeze([one.pid], holder=2) == {one.pid: "cgroup"}
    freezer.thaw([one.pid, other.pid], holder=1)
    until(freezer.settled)
    assert one.still()
    freezer.thaw([one.pid], holder=2)
    assert one.runs()
    assert other.runs()


def test_processes_die_in_a_frozen_cgroup_and_the_next_ones_run(
    freezer: Freezer, undo: UndoLog, group: Path, start: Start
) -> None:
    victim = start()
    join(group, victim)
    freezer.freeze([victim.pid])
    until(freezer.settled)
    victim.end()
    freezer.thaw([victim.pid])
    successor = start()
    join(group, successor)
    assert successor.runs()
    assert undo.frozen() == []


def test_a_cgroup_that_was_removed_meanwhile_is_no_error(
    freezer: Freezer, undo: UndoLog, group: Path, start: Start
) -> None:
    victim = start()
    join(group, victim)
    freezer.freeze([victim.pid])
    victim.end()
    until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()
    assert freezer.thaw_all() == 1
    assert undo.frozen() == []


def test_another_cgroup_of_that_name_is_left_alone(undo: UndoLog, group: Path) -> None:
    undo.changing(FrozenCgroup(path=str(group), inode=group.stat().st_ino + 1))
    (group / "cgroup.freeze").write_text("1")
    assert restore_frozen(undo) == 1
    assert frozen(group)
    assert undo.frozen() == []


def test_our_own_cgroup_is_never_frozen(
    freezer: Freezer, group: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even when the list of its members lacks us."""
    victim = start()
    join(group, victim)
    monkeypatch.setattr(Cgroup, "members", lambda _self: {victim.pid})
    (group / "below").mkdir()
    home = Cgroup.of(os.getpid(), cgroups.mount())
    (group / "below" / "cgroup.procs").write_text(str(os.getpid()))
    try:
        assert freezer.freeze([victim.pid]) == {victim.pid: "signal"}
    finally:
        hierarchy = cgroups.mount()
        assert hierarchy
        ((home.directory if home else hierarchy) / "cgroup.procs").write_text(str(os.getpid()))


def test_the_root_cgroup_has_no_freezer() -> None:
    assert Cgroup.of(1, None) is None


def test_where_the_hierarchy_is_mounted(tmp_path: Path) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(
        "30 25 0:26 /a /in/container rw shared:9 - cgroup2 cgroup2 rw\n"
        "31 25 0:27 / /sys/fs/cgroup/with\\040space rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    assert cgroups.mount(file) == Path("/sys/fs/cgroup/with space")
    file.write_text("31 25 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n")
    assert cgroups.mount(file) is None
