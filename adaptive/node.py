"""The node's state and what changes it: events from the probes, calls from users, and the decisions that follow."""

import logging
from collections.abc import Mapping
from typing import Protocol

import msgspec

from gpsched.adaptive.actuator.actuator import Actuator
from gpsched.adaptive.config import Config
from gpsched.adaptive.discovery import Discovery
from gpsched.adaptive.driver.module_level import ModuleLevel
from gpsched.adaptive.enforcing import enforce
from gpsched.adaptive.errors import NotLatencyCriticalError, NotManagedError, ProcessGoneError
from gpsched.adaptive.execution import StartActuator
from gpsched.adaptive.fastway import Way
from gpsched.adaptive.freezing import Freezes
from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.hints.model import HintsReport
from gpsched.adaptive.measure import Measurement
from gpsched.adaptive.measuring import measurement
from gpsched.adaptive.membership import Membership, Watching, lives
from gpsched.adaptive.model import ProcessView
from gpsched.adaptive.policy.timeslice import Decision, decide
from gpsched.adaptive.probes.events import (
    AtOnce,
    CudaEvent,
    Event,
    HintEvent,
    ProcExec,
    ProcExit,
    ProcFork,
    RmAlloc,
    RmControl,
    RmDup,
    RmFree,
    WakeEvent,
)
from gpsched.adaptive.settings import LiveSettings
from gpsched.adaptive.slices import SliceKeeper
from gpsched.adaptive.steering import Steering
from gpsched.adaptive.undo import UndoLog
from gpsched.adaptive.views import GpuNumbers, process_view
from gpsched.adaptive.workloads import procinfo
from gpsched.adaptive.workloads.registry import Registry


log = logging.getLogger(__name__)


class Prober(Watching, Protocol):
    """What the node needs of the probes."""

    def send_fast(self, pid: int, enabled: bool, *, at_once: AtOnce, agent: int, wakes: int) -> None: ...  # noqa: D102
    @property
    def fast_ring(self) -> int: ...  # noqa: D102
    def counters(self, pid: int) -> dict[str, int]: ...  # noqa: D102
    def lost(self) -> int: ...  # noqa: D102


class Node:
    """All managed processes and their control. Not thread-safe: everything happens on the daemon's loop."""

    def __init__(
        self,
        config: Config,
        probes: Prober,
        undo: UndoLog,
        actuator: StartActuator = Actuator,
        costs: Mapping[str, Costs] = LEVELS,
        freezer: Freezes | None = None,
        module: ModuleLevel | None = None,
        settings: LiveSettings | None = None,
    ) -> None:
        self.config = config
        self.settings = settings or LiveSettings(config)
        self.registry = Registry()
        self.keeper = SliceKeeper(undo, module=module)
        self._undo = undo
        self._probes = probes
        self._members = Membership(self.registry, probes, lambda: self.config.rule, self._remove)
        self._discovery = Discovery(self.registry, self.keeper)
        self._lost = 0
        self._numbers = GpuNumbers()
        ring = lambda: probes.fast_ring  # noqa: E731 - exists once the probes are loaded

        def send(pid: int, way: Way) -> None:
            probes.send_fast(pid, way.copied, at_once=way.at_once, agent=way.agent, wakes=way.wakes)

        self.steering = Steering(config, self.registry, self.keeper, send, ring, actuator, costs, freezer)

    # ---- what the probes report

    def handle(self, event: Event) -> None:
        """Take one event into account."""
        match event:  # the frequent ones first
            case CudaEvent() | WakeEvent() | HintEvent():
                self.steering.observe(event)
            case RmAlloc() | RmFree() | RmControl() | RmDup():
                self._on_rm(event)
            case ProcFork():
                self._members.follow(event.parent, event.pid)
            case ProcExec():
                self._on_exec(event)
            case ProcExit():
                self._remove(event.pid)

    def _on_rm(self, event: RmAlloc | RmFree | RmControl | RmDup) -> None:
        process = self.registry.get(event.pid) or self._members.classify(event.pid)
        if process is not None and self._discovery.feed(process, event):
            self.apply()

    def _on_exec(self, event: ProcExec) -> None:
        """A new program: its descriptors of the driver, and with them its clients, are closed."""
        process = self.registry.get(event.pid)
        if process is None:
            return
        self._discovery.forget_groups(process)
        self.steering.replaced(event.pid)
        try:
            process.info = procinfo.read(event.pid)
        except ProcessGoneError:
            self._remove(event.pid)

    # ---- what users ask for

    def attach(
        self,
        pid: int,
        name: str,
        slo_us: float | None,
        tenant: str | None,
        *,
        starting: bool,
        priority: int = 0,
        weight: float = 1.0,
    ) -> None:
        """Manage ``pid`` and its descendants; ``starting`` processes have no GPU context yet.

        Raises ``UsageError``, ``ProcessGoneError``, ``NoGpuError``.
        """
        users = self._members.attach(pid, name, slo_us, tenant, starting=starting, priority=priority, weight=weight)
        for user in users:
            self._scan(user)
        self.apply()

    def detach(self, pid: int) -> None:
        """Give ``pid`` and its descendants their own settings back and leave them alone; raise ``NotManagedError``."""
        if self.registry.get(pid) is None:
            raise NotManagedError(pid)
        for member in (pid, *procinfo.children(pid)):
            self._release(member)
        self.apply()

    def restore_all(self) -> int:
        """Detach every process; return how many settings were put back."""
        changed = len(self._undo.pending())
        self.steering.close()
        for process in self.registry:
            self._release(process.pid)
        return changed - len(self._undo.pending())

    def adopt_running(self) -> None:
        """Apply the rules to the processes that use the driver already."""
        for pid in procinfo.driver_users():
            if self.registry.get(pid) is None and self._members.classify(pid) is not None:
                self._scan(pid)
        self.apply()

    def reconfigure(self, config: Config) -> None:
        """Use new settings; processes that a rule had named are judged anew, the others keep their class."""
        self.config = config
        self.steering.reconfigure(config)
        for process in self.registry:
            if process.source.startswith("rule ") and self._members.classify(process.pid) is None:
                self._release(process.pid)
        self.adopt_running()

    # ---- upkeep

    def follow(self, read_us: float | None = None) -> None:
        """Between ticks, while latency-critical processes are busy: learn, and replan when something was learned.

        ``read_us`` as for ``Steering.tick``.
        """
        self.steering.tick(read_us)
        if self.steering.changed:
            self.apply()

    def hints(self, pid: int) -> HintsReport:
        """Return what was learned about a process; raise ``NotManagedError``, ``NotLatencyCriticalError``."""
        if self.registry.get(pid) is None:
            raise NotManagedError(pid)
        learner = self.steering.learners.of(pid)
        if learner is None:
            raise NotLatencyCriticalError(pid)
        steering = self.steering
        return msgspec.structs.replace(
            learner.report(), resting=pid in steering.rests.pids, beside=steering.execution.beside
        )

    def reap(self) -> None:
        """Forget the processes that have ended: copies of their descriptors keep their GPU memory allocated."""
        for pid in self.keeper.exited():
            self._remove(pid)

    def tick(self, read_us: float | None = None) -> None:
        """Look for what events may have missed: processes that ended, groups of processes that were scanned.

        ``read_us`` as for ``Steering.tick``.
        """
        for process in self.registry:
            if not lives(process):
                self._remove(process.pid)
        if (lost := self._probes.lost()) > self._lost:
            self.steering.lost(lost - self._lost)
            self._lost = lost
        self._count_calls()
        self.steering.tick(read_us)
        for pid in self._discovery.unclear():
            if self.registry.get(pid) is not None:
                self._scan(pid)
        self.apply()
        self.keeper.renew()  # last: what the driver module gave up is undone by the next time

    def apply(self) -> None:
        """Carry out what policy decides for the present processes."""
        tuned = self._tuned()
        self.steering.retune(tuned)
        self.steering.choose()
        slices = {gpu: config.timeslice for gpu, config in tuned.items()}
        situation = self.steering.situation()
        decisions = decide(list(self.registry), self.config.timeslice, self.steering.turns(), slices, situation)
        if self.config.reservations.level == "freeze":
            decisions = dict.fromkeys(decisions, Decision(None, "own slice at level freeze"))
        for process in self.registry:
            enforce(process, decisions, self.keeper, self._launches)
        self.steering.freezing.follow(list(self.registry))
        self.steering.publish()

    def views(self) -> list[ProcessView]:
        """The managed processes that use a GPU or were named by a user or a rule."""
        shown = [process for process in self.registry if process.groups or not process.source.startswith("child")]
        views = [process_view(process, self._probes.counters(process.pid), self._numbers) for process in shown]
        return [
            msgspec.structs.replace(view, **self.steering.figures(view.pid), last_tuning=self._note(view.gpus))
            for view in views
        ]

    def measure(self, since_us: float) -> Measurement:
        """Return what the tuner measures by: bursts that ended after ``since_us``, launches so far."""
        counters = self._probes.counters
        found = measurement(self.registry, self.steering, self._numbers, counters, since_us, self.settings.view)
        return msgspec.structs.replace(found, lost_events=self._lost)

    def _tuned(self) -> dict[int | None, Config]:
        gpus = {gpu for process in self.registry for gpu in process.gpus()}
        return {gpu: self.settings.of(self._numbers.number(gpu)) for gpu in gpus}

    def _note(self, gpus: list[int]) -> str | None:
        return next((note for gpu in gpus if (note := self.settings.note(gpu))), None)

    def _count_calls(self) -> None:
        for process in self.registry:
            if process.class_ == "be":
                self.steering.contention.called(process.pid, sum(self._probes.counters(process.pid).values()))

    def _launches(self, pid: int) -> bool:
        """Whether the process uses a GPU, and not only did so before it became another program."""
        calls = self._probes.counters(pid)
        return any(calls.get(kind) for kind in ("launch", "graph_launch")) and procinfo.has_driver_open(pid)

    def _scan(self, pid: int) -> None:
        process = self.registry.get(pid)
        if process is None:
            return
        try:
            self._discovery.scan(process)
        except ProcessGoneError:
            self._remove(pid)

    def _release(self, pid: int) -> None:
        """Out of the plans first, so that the actuator enables it, then its own slices, then its descriptors."""
        process = self.registry.get(pid)
        if process is None:
            return
        self.steering.learners.set_aside(process)
        self._drop(pid)
        self._probes.forget(pid)
        self.steering.publish()
        kept = [group for group in process.groups.values() if not self.keeper.want(process, group, None)]
        if any(group.original_us is not None for group in kept) and lives(process):
            log.warning("process %d keeps changed settings; gpsched restore tries again", pid)
            self.keeper.close(process)
        else:
            self.keeper.forget(process)

    def _remove(self, pid: int) -> None:
        """The process ended."""
        process = self.registry.get(pid)
        if process is not None:
            self.keeper.forget(process)
            self._drop(pid)
            self._probes.forget(pid)
            self.apply()

    def _drop(self, pid: int) -> None:
        self.registry.remove(pid)
        self.steering.forget(pid)
        self._discovery.forget(pid)
