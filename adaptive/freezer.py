"""Level ``freeze``: stops the host threads of best-effort processes, whatever accelerator they use.

A cgroup (v2) whose processes are all to be frozen is frozen as a whole: neither the processes nor their parents notice.
Everything else gets SIGSTOP, and SIGCONT in the end. What is queued on the accelerator already runs on. The undo log
has each freeze before it happens, so that whoever comes after a crash can thaw; see docs/freeze.md.
"""

import logging
import os
import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpsched.adaptive import cgroups, thaw
from gpsched.adaptive.cgroups import Cgroup
from gpsched.adaptive.errors import ProcessGoneError
from gpsched.adaptive.survivor import Survivor
from gpsched.adaptive.undo import Frozen, FrozenCgroup, StoppedProcess, UndoLog, UndoLogError
from gpsched.adaptive.workloads import procinfo


log = logging.getLogger(__name__)

#: How a process is frozen, or why not: ``already`` means that its user had stopped it or its cgroup before.
Outcome = Literal["cgroup", "signal", "already", "gone", "refused"]


@dataclass
class _Held:
    """Something that we froze: for whom, and which of the asked processes it covers."""

    record: Frozen
    pids: set[int] = field(default_factory=set)
    holders: set[int] = field(default_factory=set)


class Freezer:
    """Freezes processes for holders (the pids of the latency-critical processes, or any numbers).

    A process runs again when its last holder thaws it. Not thread-safe. ``never``: processes that are never frozen,
    such as the actuator; this process is always one of them. ``last_cost_us``: how long the last ``freeze`` or
    ``thaw`` took, in µs. ``close`` it in the end.
    """

    def __init__(self, undo: UndoLog, never: Collection[int] = (), survivor: Survivor | None = None) -> None:
        """``survivor`` thaws, should this process be killed; it is started by the first ``freeze``."""
        self._undo, self._survivor = undo, survivor
        self._hierarchy = cgroups.mount()
        self.never = {os.getpid(), *never}
        self.last_cost_us = 0.0
        self._held: dict[tuple[int | str, ...], _Held] = {}

    def freeze(self, pids: Iterable[int], holder: int = 0) -> dict[int, Outcome]:
        """Ask for all of these managed processes to be stopped, and return how each is; ``settled`` tells when.

        Raises ``UndoLogError`` before anything is frozen that could not be thawed after a crash.
        """
        started = time.perf_counter_ns()
        wanted = set(pids) - self.never
        if wanted and self._survivor:
            self._survivor.watch()
            wanted.discard(self._survivor.pid)
        outcomes = self._freeze_cgroups(wanted, holder)
        outcomes |= {pid: self._stop(pid, holder) for pid in sorted(wanted - outcomes.keys())}
        self.last_cost_us = (time.perf_counter_ns() - started) / 1000
        return outcomes

    def thaw(self, pids: Iterable[int], holder: int | None = None) -> None:
        """Let the processes run, as far as this holder is concerned; without one, whoever froze them.

        A cgroup is thawed as a whole. What cannot be thawed is tried again by the next thaw.
        """
        started = time.perf_counter_ns()
        wanted = set(pids)
        for held in [held for held in self._held.values() if held.pids & wanted]:
            held.holders = held.holders - {holder} if holder is not None else set()
            if not held.holders:
                self._release(held)
        self.last_cost_us = (time.perf_counter_ns() - started) / 1000

    def thaw_all(self) -> int:
        """Let every process run, whoever froze it; return how much was thawed."""
        return sum(self._release(held) for held in list(self._held.values()))

    def close(self) -> None:
        """Let every process run, and the survivor end."""
        self.thaw_all()
        if self._survivor:
            self._survivor.close()

    def frozen(self) -> frozenset[int]:
        """Return the processes that are frozen by us now."""
        return frozenset(pid for held in self._held.values() for pid in held.pids)

    def settled(self) -> bool:
        """Whether everything that was frozen has come to a stop."""
        return all(thaw.settled(held.record) for held in self._held.values())

    # ---- cgroups

    def _freeze_cgroups(self, wanted: set[int], holder: int) -> dict[int, Outcome]:
        outcomes: dict[int, Outcome] = {}
        by_directory: dict[Path, set[int]] = {}
        for pid in wanted:
            if cgroup := Cgroup.of(pid, self._hierarchy):
                by_directory.setdefault(cgroup.directory, set()).add(pid)
        for directory, pids in by_directory.items():
            outcome = self._freeze_cgroup(Cgroup(directory), pids, wanted, holder)
            if outcome is not None:
                outcomes |= dict.fromkeys(pids, outcome)
        return outcomes

    def _freeze_cgroup(self, cgroup: Cgroup, pids: set[int], wanted: set[int], holder: int) -> Outcome | None:
        """None: this cgroup is not to be frozen, or cannot be; use signals."""
        try:
            record = FrozenCgroup(path=str(cgroup.directory), inode=cgroup.inode)
            if record.key not in self._held:
                if cgroup.frozen:
                    return "already"
                if not cgroup.writable or cgroup.holds_us() or not cgroup.members() <= wanted:
                    return None
            self._hold(record, pids, holder)
            cgroup.set_frozen(True)
            held = self._held[record.key]
            if cgroup.members() <= wanted | held.pids:
                return "cgroup"
            self._release(held)  # someone joined since we looked
        except OSError as error:
            log.info("cannot freeze %s (%s); its processes are stopped by signals", cgroup.directory, error.strerror)
        return None

    # ---- signals

    def _stop(self, pid: int, holder: int) -> Outcome:
        try:
            record = StoppedProcess(pid=pid, start_ticks=procinfo.start_ticks(pid))
            if record.key in self._held:
                self._hold(record, {pid}, holder)
                return "signal"
            if thaw.state(pid) in "Tt":
                return "already"
            self._hold(record, {pid}, holder)
            thaw.send(record, signal.SIGSTOP)
        except ProcessGoneError:
            self._forget(pid)
            return "gone"
        except OSError as error:
            log.warning("cannot stop process %d: %s", pid, error.strerror)
            self._forget(pid)
            return "refused"
        return "signal"

    # ---- both

    def _hold(self, record: Frozen, pids: set[int], holder: int) -> None:
        """On disk first, then it may be frozen."""
        if record.key not in self._held:
            self._undo.changing(record)
            self._held[record.key] = _Held(record)
        self._held[record.key].pids |= pids
        self._held[record.key].holders.add(holder)

    def _release(self, held: _Held) -> bool:
        held.holders.clear()
        if not thaw.thaw(held.record):
            return False
        self._strike_off(held)
        return True

    def _forget(self, pid: int) -> None:
        """The process cannot be frozen (any more)."""
        for held in [held for held in self._held.values() if isinstance(held.record, StoppedProcess)]:
            if held.pids == {pid}:
                self._strike_off(held)

    def _strike_off(self, held: _Held) -> None:
        """A full disk must not keep the others frozen: what the log still has is thawed once more, without harm."""
        del self._held[held.record.key]
        try:
            self._undo.restored(held.record)
        except UndoLogError as error:
            log.warning("%s", error)
