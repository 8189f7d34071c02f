"""Whom level ``freeze`` stops, for whom and how long: best-effort processes that no control of the driver reaches.

All of them, where the configuration's highest level is ``freeze``. They are stopped while a latency-critical process
that shares their GPU is in a burst, or has one announced. Each stop is at most ``limit_us`` long, and all of them at
most the share of the time that ``be_floor`` leaves.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gpsched.adaptive.config import Reservations
from gpsched.adaptive.errors import GpschedError
from gpsched.adaptive.workloads.registry import Process


log = logging.getLogger(__name__)

_WORTH_US = 1000.0  # a stop that the budget ends sooner costs more than it gives
_RETRY_S = 0.005


class Freezes(Protocol):
    """What is needed of the ``Freezer``."""

    never: set[int]

    def freeze(self, pids: Iterable[int], holder: int = 0) -> Mapping[int, str]: ...  # noqa: D102
    def thaw(self, pids: Iterable[int], holder: int | None = None) -> None: ...  # noqa: D102
    def thaw_all(self) -> int: ...  # noqa: D102
    def frozen(self) -> frozenset[int]: ...  # noqa: D102


def victims(processes: Collection[Process], *, everyone: bool = False) -> dict[int, frozenset[int]]:
    """Return the best-effort processes out of control (or all), and for each the latency-critical ones it may hinder.

    A process whose GPU is not known may hinder any on the node.
    """
    critical = [process for process in processes if process.class_ == "lc"]
    found = {
        process.pid: frozenset(lc.pid for lc in critical if _may_share(process, lc))
        for process in processes
        if process.class_ == "be" and (everyone or process.out_of_control)
    }
    return {pid: hindered for pid, hindered in found.items() if hindered}


def _may_share(one: Process, other: Process) -> bool:
    gpus = one.gpus(), other.gpus()
    return any(not known or None in known for known in gpus) or not gpus[0].isdisjoint(gpus[1])


@dataclass
class _Victim:
    """``credit_us``: what the floor leaves for stops, spent by them and earned otherwise. It starts empty."""

    seen_us: float
    credit_us: float = 0.0
    stopped_us: float | None = None
    not_before_us: float = -math.inf  # what began earlier has had its time, or could not have it

    def pass_time(self, now: float, settings: Reservations) -> None:
        rate = 1.0 - settings.be_floor if self.stopped_us is None else -settings.be_floor
        most = settings.be_floor * settings.limit_us
        self.credit_us = min(most, self.credit_us + rate * (now - self.seen_us))
        self.seen_us = now

    def due_us(self, settings: Reservations) -> float:
        """When the stop has to end, whoever is busy; infinity while there is none."""
        if self.stopped_us is None:
            return math.inf
        spent = self.seen_us + self.credit_us / settings.be_floor if settings.be_floor else math.inf
        return min(self.stopped_us + settings.limit_us, spent)

    def affords(self, settings: Reservations) -> bool:
        worth = min(_WORTH_US, settings.limit_us / 2)
        return settings.be_floor < 1.0 and self.credit_us >= settings.be_floor * worth


class Freezing:
    """Follows the bursts; stops and thaws. Without a freezer it does nothing. ``clock`` gives µs. Not thread-safe."""

    def __init__(
        self,
        freezer: Freezes | None,
        settings: Reservations,
        clock: Callable[[], float] = lambda: time.monotonic_ns() / 1000,
    ) -> None:
        self._freezer, self._settings, self._clock = freezer, settings, clock
        self._sharing: dict[int, frozenset[int]] = {}
        self._victims: dict[int, _Victim] = {}
        self._bursts: dict[int, tuple[float, float]] = {}  # of latency-critical processes: from, until
        self._announced: dict[int, tuple[float, float]] = {}

    @property
    def watched(self) -> frozenset[int]:
        """The latency-critical processes whose bursts have to be known at once."""
        return frozenset().union(*self._sharing.values())

    def follow(self, processes: Collection[Process]) -> None:
        """Take the processes as they are now; those at this level get it, with the reason."""
        if self._freezer is None:
            return
        now = self._clock()
        self._sharing = victims(processes, everyone=self._settings.level == "freeze")
        self._victims = {pid: self._victims.get(pid) or _Victim(now) for pid in self._sharing}
        for process in processes:
            if hindered := self._sharing.get(process.pid):
                process.level = "freeze"
                process.reason += f"; stopped during bursts of {', '.join(map(str, sorted(hindered)))}"
        self.update()

    # ---- what the learners say

    def began(self, lc: int) -> None:
        """A burst began; it is the one that was announced."""
        now = self._clock()
        self._announced.pop(lc, None)
        self._bursts[lc] = (now, now + self._settings.limit_us)
        self.update()

    def announce(self, lc: int, start_us: float, until_us: float) -> None:
        """A burst is expected between the two; an announcement that overlaps the one before extends it."""
        before = self._announced.get(lc)
        if before is not None and start_us <= before[1] and before[0] <= until_us:
            start_us, until_us = min(start_us, before[0]), max(until_us, before[1])
        self._announced[lc] = (start_us, min(until_us, start_us + self._settings.limit_us))
        self.update()

    def released(self, lc: int) -> None:
        """What was announced does not come."""
        self._announced.pop(lc, None)
        self.update()

    def ended(self, lc: int) -> None:
        """The burst is over."""
        self._bursts.pop(lc, None)
        self.update()

    # ---- what follows

    def update(self) -> None:
        """Stop and thaw what is due."""
        if self._freezer is None or not (self._victims or self._freezer.frozen()):
            return
        now = self._clock()
        for victim in self._victims.values():
            victim.pass_time(now, self._settings)
        wanted = {pid for pid, victim in self._victims.items() if self._wants(pid, victim, now)}
        if unwanted := self._freezer.frozen() - wanted:
            self._freezer.thaw(unwanted)
        if missing := wanted - self._freezer.frozen():  # also what was thawed with its whole cgroup
            self._stop(self._freezer, missing, now)
        frozen = self._freezer.frozen()
        for pid, victim in self._victims.items():
            victim.stopped_us = (victim.stopped_us or now) if pid in frozen else None

    def wait_s(self) -> float:
        """How long from now ``update`` may wait, whatever happens."""
        if not self._victims:
            return math.inf
        now = self._clock()
        times = [at for claim in (*self._bursts.values(), *self._announced.values()) for at in claim if at > now]
        due = min(times + [victim.due_us(self._settings) for victim in self._victims.values()], default=math.inf)
        return (due - now) / 1e6 if due > now else _RETRY_S

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        for known in (self._bursts, self._announced, self._victims, self._sharing):
            known.pop(pid, None)
        self.update()

    def reconfigure(self, settings: Reservations) -> None:
        """Use new settings; no stop goes on by the old ones."""
        self.update()
        self._settings = settings
        for victim in self._victims.values():
            victim.not_before_us = self._clock()
        self.update()

    def spare(self, pid: int) -> None:
        """Never stop this process."""
        if self._freezer is not None:
            self._freezer.never.add(pid)

    def close(self) -> None:
        """Thaw everything and forget all processes."""
        for known in (self._bursts, self._announced, self._victims, self._sharing):
            known.clear()
        if self._freezer is not None:
            self._freezer.thaw_all()

    # ---- inside

    def _wants(self, pid: int, victim: _Victim, now: float) -> bool:
        if victim.due_us(self._settings) <= now:
            victim.not_before_us = now
        claims = (known.get(lc) for lc in self._sharing[pid] for known in (self._bursts, self._announced))
        busy = any(claim and victim.not_before_us < claim[0] <= now < claim[1] for claim in claims)
        return busy and (victim.stopped_us is not None or victim.affords(self._settings))

    def _stop(self, freezer: Freezes, pids: set[int], now: float) -> None:
        try:
            freezer.freeze(pids)
        except GpschedError as error:
            log.warning("%s", error)
        for pid in pids - freezer.frozen():  # its user stopped it, or it cannot be: not again for this burst
            self._victims[pid].not_before_us = now
