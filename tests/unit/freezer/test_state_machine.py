"""Freezes of several holders and stops by the user in any order: the process runs when nobody wants it stopped."""

import signal
import tempfile
from pathlib import Path
from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gpsched.adaptive.freezer import Freezer
from gpsched.adaptive.thaw import restore_frozen
from gpsched.adaptive.undo import UndoLog
from tests.unit.freezer.victims import Victim, state, until


HOLDERS = st.integers(min_value=1, max_value=3)


class Machine(RuleBasedStateMachine):
    """``holders`` who froze it, and whether its user wants it stopped."""

    victim: ClassVar[Victim]
    directory: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.undo = UndoLog(Path(tempfile.mkdtemp(dir=self.directory)))
        self.freezer = Freezer(self.undo)
        self.holders: set[int] = set()
        self.stopped = False

    @rule(holder=HOLDERS)
    def freeze(self, holder: int) -> None:
        expected = "already" if self.stopped and not self.holders else "signal"
        assert self.freezer.freeze([self.victim.pid], holder) == {self.victim.pid: expected}
        until(self.freezer.settled)
        self.holders |= {holder} if expected == "signal" else set()

    @rule(holder=HOLDERS)
    def thaw(self, holder: int) -> None:
        self.freezer.thaw([self.victim.pid], holder)
        self.holders.discard(holder)

    @rule()
    def thaw_all(self) -> None:
        assert self.freezer.thaw_all() == bool(self.holders)
        self.holders.clear()

    @rule()
    def crash_and_start_again(self) -> None:
        self.freezer = Freezer(self.undo)
        assert restore_frozen(self.undo) == bool(self.holders)
        self.holders.clear()

    @rule(number=st.sampled_from([signal.SIGSTOP, signal.SIGTSTP]))
    def user_stops(self, number: signal.Signals) -> None:
        self.victim.kill(number)
        self.stopped = True

    @rule()
    def user_continues(self) -> None:
        if not self.holders:  # while frozen it is not told apart from a thaw: docs/freeze.md
            self.victim.kill(signal.SIGCONT)
            self.stopped = False

    @invariant()
    def runs_when_nobody_wants_it_stopped(self) -> None:
        stopped = bool(self.holders) or self.stopped
        until(lambda: (state(self.victim.pid) == "T") == stopped)
        assert self.freezer.frozen() == ({self.victim.pid} if self.holders else frozenset())
        assert bool(self.undo.frozen()) == bool(self.holders)

    def teardown(self) -> None:
        self.freezer.close()
        self.undo.close()
        self.victim.kill(signal.SIGCONT)
        assert self.victim.runs()


def test_any_order(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    try:
        run_state_machine_as_test(
            type("Case", (Machine,), {"victim": victim, "directory": tmp_path}),
            settings=settings(
                max_examples=60, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
    finally:
        victim.end()
