"""Processes outside a cgroup of their own: stopped and continued by signals."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gpsched.adaptive import thaw as module
from gpsched.adaptive.freezer import Freezer
from gpsched.adaptive.thaw import restore_frozen
from gpsched.adaptive.undo import StoppedProcess, UndoLog, UndoLogError
from gpsched.adaptive.workloads import procinfo
from tests.unit.freezer.victims import Victim, state, until


Start = Callable[[], Victim]


def test_all_threads_stop_and_run_again(freezer: Freezer, undo: UndoLog, start: Start) -> None:
    one, other, bystander = start(), start(), start()
    assert freezer.freeze([one.pid, other.pid]) == {one.pid: "signal", other.pid: "signal"}
    until(freezer.settled)
    assert one.still()
    assert other.still()
    assert bystander.runs()
    assert freezer.frozen() == {one.pid, other.pid}
    assert {record.pid for record in undo.frozen() if isinstance(record, StoppedProcess)} == {one.pid, other.pid}
    freezer.thaw([one.pid, other.pid])
    assert one.runs()
    assert other.runs()
    assert undo.frozen() == []


def test_freezing_twice_is_freezing_once(freezer: Freezer, start: Start) -> None:
    victim = start()
    freezer.freeze([victim.pid])
    until(freezer.settled)
    assert freezer.freeze([victim.pid]) == {victim.pid: "signal"}
    freezer.thaw([victim.pid])
    assert victim.runs()


def test_a_process_runs_when_its_last_holder_thaws_it(freezer: Freezer, start: Start) -> None:
    victim = start()
    freezer.freeze([victim.pid], holder=1)
    freezer.freeze([victim.pid], holder=2)
    freezer.thaw([victim.pid], holder=1)
    until(freezer.settled)
    assert victim.still()
    freezer.thaw([victim.pid], holder=1)
    assert victim.still()
    freezer.thaw([victim.pid], holder=2)
    assert victim.runs()


def test_thawing_for_nobody_in_particular_thaws_for_all(freezer: Freezer, start: Start) -> None:
    victim = start()
    freezer.freeze([victim.pid], holder=1)
    freezer.freeze([victim.pid], holder=2)
    freezer.thaw([victim.pid])
    assert victim.runs()


def test_thaw_all(freezer: Freezer, start: Start) -> None:
    victims = [start(), start()]
    freezer.freeze([victims[0].pid], holder=1)
    freezer.freeze([victims[1].pid], holder=2)
    assert freezer.thaw_all() == 2
    assert all(victim.runs() for victim in victims)
    assert freezer.thaw_all() == 0


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTSTP])
def test_what_its_user_had_stopped_stays_stopped(
    freezer: Freezer, undo: UndoLog, start: Start, number: signal.Signals
) -> None:
    victim = start()
    victim.kill(number)
    until(lambda: state(victim.pid) == "T")
    assert freezer.freeze([victim.pid]) == {victim.pid: "already"}
    assert undo.frozen() == []
    freezer.thaw([victim.pid])
    freezer.thaw_all()
    assert victim.still()
    victim.kill(signal.SIGCONT)
    assert victim.runs()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTSTP])
def test_what_its_user_stops_meanwhile_stays_stopped(freezer: Freezer, start: Start, number: signal.Signals) -> None:
    victim = start()
    freezer.freeze([victim.pid])
    until(freezer.settled)
    victim.kill(number)
    freezer.thaw([victim.pid])
    assert victim.still()
    victim.kill(signal.SIGCONT)
    assert victim.runs()


@pytest.mark.parametrize("turn", range(30))
def test_our_own_stop_that_has_not_come_yet_does_not_count_as_the_users(
    freezer: Freezer, start: Start, turn: int
) -> None:
    victim = start()
    for _ in range(50):
        freezer.freeze([victim.pid])
        freezer.thaw([victim.pid])
    assert victim.runs(), turn


def test_a_process_that_is_killed_while_frozen_ends(freezer: Freezer, undo: UndoLog, start: Start) -> None:
    victim = start()
    freezer.freeze([victim.pid])
    victim.end()
    freezer.thaw([victim.pid])
    assert freezer.frozen() == frozenset()
    assert undo.frozen() == []


def test_a_process_that_is_terminated_while_frozen_ends_when_thawed(freezer: Freezer, start: Start) -> None:
    victim = start()
    freezer.freeze([victim.pid])
    until(freezer.settled)
    victim.kill(signal.SIGTERM)
    assert victim.still()
    freezer.thaw([victim.pid])
    assert victim.process.wait(10) == -signal.SIGTERM


def test_a_process_that_is_gone_is_said(freezer: Freezer, undo: UndoLog, start: Start) -> None:
    victim = start()
    victim.end()
    assert freezer.freeze([victim.pid]) == {victim.pid: "gone"}
    assert undo.frozen() == []


def test_a_reused_pid_is_left_alone(
    freezer: Freezer, undo: UndoLog, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process had ended and another had its pid since."""
    victim = start()
    ticks = procinfo.start_ticks(victim.pid)
    undo.changing(StoppedProcess(pid=victim.pid, start_ticks=ticks - 1))
    victim.kill(signal.SIGSTOP)
    until(lambda: state(victim.pid) == "T")
    assert restore_frozen(undo) == 1
    assert undo.frozen() == []
    assert victim.still()

    victim.kill(signal.SIGCONT)
    answers = iter([ticks - 1])
    monkeypatch.setattr(module.procinfo, "start_ticks", lambda _pid: next(answers, ticks))
    assert freezer.freeze([victim.pid]) == {victim.pid: "gone"}
    assert victim.runs()
    assert undo.frozen() == []


def test_this_process_and_the_named_ones_are_never_frozen(undo: UndoLog, start: Start) -> None:
    victim = start()
    freezer = Freezer(undo, never=[victim.pid])
    assert freezer.freeze([os.getpid(), victim.pid]) == {}
    assert victim.runs()


def test_a_signal_that_is_refused_is_said(
    freezer: Freezer, undo: UndoLog, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = start()

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(module.signal, "pidfd_send_signal", refuse)
    assert freezer.freeze([victim.pid]) == {victim.pid: "refused"}
    assert undo.frozen() == []
    assert victim.runs()


def test_what_cannot_be_recorded_is_not_frozen(
    freezer: Freezer, undo: UndoLog, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = start()

    def full(*_: object) -> None:
        raise UndoLogError(Path("undo.jsonl"), "No space left on device")

    monkeypatch.setattr(undo, "changing", full)
    with pytest.raises(UndoLogError):
        freezer.freeze([victim.pid])
    assert victim.runs()


def test_a_full_disk_keeps_nothing_frozen(
    freezer: Freezer, undo: UndoLog, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    victims = [start(), start()]
    freezer.freeze([victim.pid for victim in victims])

    def full(*_: object) -> None:
        raise UndoLogError(Path("undo.jsonl"), "No space left on device")

    monkeypatch.setattr(undo, "restored", full)
    assert freezer.thaw_all() == 2
    assert all(victim.runs() for victim in victims)


def test_what_cannot_be_thawed_is_tried_again(
    freezer: Freezer, undo: UndoLog, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = start()
    freezer.freeze([victim.pid])
    until(freezer.settled)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(module.signal, "pidfd_send_signal", refuse)
        freezer.thaw([victim.pid])
        assert victim.still()
        assert len(undo.frozen()) == 1
    freezer.thaw([victim.pid])
    assert victim.runs()
    assert undo.frozen() == []


def test_the_cost_is_measured(freezer: Freezer, start: Start) -> None:
    victim = start()
    freezer.freeze([victim.pid])
    assert 0 < freezer.last_cost_us < 1e6
    freezer.thaw([victim.pid])
    assert 0 < freezer.last_cost_us < 1e6
