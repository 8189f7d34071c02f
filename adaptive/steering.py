"""Keeps the actuator's plans in step with the processes and with what is learned about their bursts.

The slow way of docs/design.md: events feed a learner per latency-critical process, its choice decides the level, policy
turns both into plans, and the actuator executes them without us.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpsched.adaptive.actuator.actuator import Actuator
from gpsched.adaptive.actuator.plans import Plan
from gpsched.adaptive.actuator.records import Record
from gpsched.adaptive.config import Config
from gpsched.adaptive.contention import Contention
from gpsched.adaptive.execution import Execution, StartActuator
from gpsched.adaptive.fastway import FastWay, Needs, Send
from gpsched.adaptive.freezing import Freezes, Freezing
from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.hints.observations import Lost, Tick, WakeKind
from gpsched.adaptive.hints.outputs import BurstBegan, BurstEnded, ChoiceChanged, Output, Release, Reserve
from gpsched.adaptive.learning import Learners
from gpsched.adaptive.leveling import Levels
from gpsched.adaptive.measure import BurstLog
from gpsched.adaptive.model import Level, ProcessView
from gpsched.adaptive.policy import plans
from gpsched.adaptive.policy.situation import Situation
from gpsched.adaptive.probes.events import Event, Hint, HintEvent, Kind, encode_hint
from gpsched.adaptive.reckoning import Due, Reckoning, reacted_us
from gpsched.adaptive.resting import Rests
from gpsched.adaptive.slices import SliceKeeper
from gpsched.adaptive.telemetry import Telemetry
from gpsched.adaptive.workloads.registry import Process, Registry


log = logging.getLogger(__name__)

_BUSY_S = 1.0


class Steering:
    """The learners and the actuator of the node. Everything happens on the daemon's loop.

    ``send_fast(pid, way)`` makes the kernel copy the process' events to the actuator's ring, whose map is ``ring``, and
    tell us of some of them at once, or of none.
    """

    def __init__(
        self,
        config: Config,
        registry: Registry,
        keeper: SliceKeeper,
        send_fast: Send,
        ring: Callable[[], int],
        start: StartActuator = Actuator,
        costs: Mapping[str, Costs] = LEVELS,
        freezer: Freezes | None = None,
    ) -> None:
        self.config = config
        self._tuned: Mapping[int | None, Config] = {}  # of single GPUs, where they differ
        self.freezing = Freezing(freezer, config.reservations)
        self._fast = FastWay(send_fast)
        self._costs = costs
        self._registry = registry
        self._seen = 0.0
        self._changed = False
        self.execution = Execution(registry, keeper, ring, start, started=self.freezing.spare, renew=self._decide_anew)
        self._telemetry = Telemetry()
        self._reckoning = Reckoning(costs)
        self.log = BurstLog()
        self.contention = Contention(registry, costs)
        self.learners = Learners(registry, costs["reserve"])
        self._levels = Levels(self.learners, self._reckoning.costs())
        self.rests = Rests(registry, self.learners, self.execution, self._predicts, self._shift_us)

    # ---- what the kernel and the clock report

    def observe(self, event: Event) -> None:
        """Feed an event of a latency-critical process to its learner."""
        if event.tid == self._levels.agents.thread(event.pid):
            return  # the kernel was not told of the agent yet
        if type(event) is HintEvent:
            self.rests.hinted(event.pid)
        outputs = self.learners.observe(event)
        if outputs is None:
            return
        self._seen = event.time_ns / 1e9
        self._take_all(event.pid, outputs)

    @property
    def urgent(self) -> bool:
        """Whether ``tick`` should come every few ms: a process that depends on what we tell in time did something."""
        recent = time.monotonic() - self._seen < _BUSY_S
        return recent and self._fast.wakes

    def lost(self, count: int) -> None:
        """Events were lost: what is pending can no longer be trusted."""
        for pid, output in self.learners.tell_all(Lost(time.monotonic_ns() / 1000, count)):
            self._take(pid, output)

    def tick(self, read_us: float | None = None) -> None:
        """Let time pass for the learners; collect what the actuator did; look after it.

        ``read_us``: up to when all events were observed (now, where nothing is said). Learners whose time is ahead of
        events that are yet to be read would take those for late ones: triggers and launches would lie at one instant.
        """
        now = time.monotonic_ns() / 1000 if read_us is None else read_us
        for pid, output in self.learners.tell_all(Tick(now)):
            self._take(pid, output)
        self.freezing.update()
        for record in self.execution.records():
            self._record(record)
        self._rest(now)
        if (turns := self.execution.turns()) is not None:
            self._telemetry.occupancy.turns(self.execution.published, turns, now)
        before = dict(self.contention.together)
        self._changed |= self.contention.update(self.config, self._tuned)
        if self.contention.together != before:  # other slices, other waits: no level is to be judged by that
            self._levels.forget_outcomes()

    # ---- what follows

    @property
    def changed(self) -> bool:
        """Whether ``choose`` and ``publish`` are due."""
        return self._changed

    def retune(self, tuned: Mapping[int | None, Config]) -> None:
        """Use these settings of single GPUs. Bursts under other ones tell of a level no more."""
        if any(self._tuned.get(gpu, config) != config for gpu, config in tuned.items()):
            self._levels.forget_outcomes()
        self._tuned = tuned

    def choose(self) -> None:
        """Choose the level of every latency-critical process."""
        self._changed = False
        shared = plans.sharing(self._registry)
        beside_be = {process.pid for lc, _ in shared.values() for process in lc}
        others_wait = plans.ordered(list(self._registry), self.situation())
        for process in self._registry:
            if process.class_ == "lc":
                self._levels.choose(
                    process,
                    self._config_of(process).reservations,
                    self.config.reservations.waste_budget,
                    worth=process.pid in beside_be | others_wait and not process.restraint,
                    actuator=self.execution.may_run,
                )

    def publish(self) -> None:
        """Hand the plans to the actuator, if they changed. On any failure best-effort work runs unhindered."""
        tuned = {gpu: config.reservations for gpu, config in self._tuned.items()}
        situation = self.situation()
        frozen = self.config.reservations.level == "freeze"  # then nothing is asked of the driver
        processes = () if frozen else self._registry
        plan_set = plans.build(processes, self.learners.choices(), self.config.reservations, tuned, situation)
        if self.execution.publish(plan_set) or self._fast.is_behind(self.freezing.watched, self.rests.pids):
            self._follow()

    def situation(self) -> Situation:
        """Return what plans and slices depend on beside the processes."""
        return self.contention.situation(self.config, lambda: self.execution.runs)

    def turns(self) -> frozenset[int | None]:
        """GPUs whose best-effort processes take turns."""
        together = self.contention.together
        several = {gpu for gpu, (_, be) in plans.sharing(self._registry).items() if len(be) > 1}
        crowded = frozenset(several - together.keys())
        return crowded if crowded and self.execution.runs else frozenset()

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self.learners.forget(pid)
        self.contention.forget(pid)
        self._telemetry.forget(pid)
        self.log.forget(pid)
        self._levels.forget(pid)
        self.freezing.forget(pid)
        self._fast.forget(pid)

    def replaced(self, pid: int) -> None:
        """The process runs another program: its hold agent is gone."""
        self._levels.agents.forget(pid)

    def reconfigure(self, config: Config) -> None:
        """Use new settings: levels are chosen anew."""
        self.config = config
        self.freezing.reconfigure(config.reservations)
        self._levels.renew()
        self._changed = True

    def in_burst(self) -> frozenset[int]:
        """Return the latency-critical processes in a burst now."""
        return self._telemetry.active()

    def filled(self, views: list[ProcessView]) -> list[ProcessView]:
        """Return the views with the shares and turns of the last seconds."""
        return self._telemetry.occupancy.fill(views)

    def agents(self) -> list[int]:
        """Return the threads of hold agents."""
        return self._levels.agents.threads()

    def levels(self, pid: int) -> tuple[Level, ...]:
        """Return the levels that this process could have."""
        return self._levels.possible(pid, actuator=self.execution.may_run)

    def figures(self, pid: int) -> dict[str, Any]:
        """Return the optional fields of the process' view."""
        learner = self.learners.known(pid)
        return self._telemetry.fields(pid, learner.chosen() if learner else None)

    def close(self) -> None:
        """End the actuator; it undoes everything. What is stopped runs again."""
        self.freezing.close()
        self.execution.close()

    # ---- inside

    def _decide_anew(self) -> None:
        self._changed = True

    def _follow(self) -> None:
        agent = self._levels.agents.thread
        needs = Needs(self.freezing.watched, self._predicts, self.rests.pids, agent)
        self._fast.follow(self.execution.published, needs)

    def _rest(self, now_us: float) -> None:
        """Leave services to the actuator for a while, or look at them again."""
        changed = self.rests.change(self.freezing.watched)
        if changed:
            self._follow()
        for pid in changed:
            self._take_all(pid, self.rests.tell(pid, now_us))

    def _record(self, record: Record) -> None:
        """Take what the actuator did for one reservation."""
        log.debug("%s", record)
        process = self._registry.get(record.pid)
        if process is not None and process.mechanism == "timeslice":
            return  # only its place in the order
        level, due = process.mechanism if process else "", self._due(record)
        if process is not None and level == "hold" and record.begin_ns:
            self._changed |= self._levels.held(process, launched=record.ready_ns > 0)
        if self._reckoning.learn(level, record, due):
            self._levels.set_costs(self._reckoning.costs())
            self._changed = True
        control_us, record = reacted_us(record, due), self._reckoning.reckoned(level, record)
        self._take_all(record.pid, self.rests.reserved(record))
        self.contention.reserved(record)
        self._telemetry.reservation(record, control_us)

    def _due(self, record: Record) -> Due | None:
        """When it was to begin, where the actuator knew: of requests that wait at a burst's end we tell it too late."""
        learner = self.learners.known(record.pid)
        kinds = {each.matcher.kind for each in learner.chosen().triggers} if learner else set()
        due = self.execution.due(record)
        return None if due and due.foretold and WakeKind.BURST_END in kinds else due

    def _take_all(self, pid: int, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self._take(pid, output)

    def _take(self, pid: int, output: Output) -> None:
        match output:
            case ChoiceChanged():
                self._changed = True
            case BurstBegan(time_us=now, reserved_us=reserved, allowed=allowed):
                self.log.began(pid, now, reserved, self._need_us(pid))
                self.contention.began(pid, now)
                self._telemetry.began(pid, now, allowed)
                self.freezing.began(pid)
            case BurstEnded(burst=burst):
                self.log.ended(pid, burst)
                self.contention.ended(pid, burst)
                self._telemetry.burst(pid, burst)
                process = self._registry.get(pid)
                if process is not None and self._levels.ended(process, burst.end_us - burst.start_us):
                    self._changed = True
                self.freezing.ended(pid)
            case Reserve(start_us=start, until_us=until, trigger=matcher):
                if learner := self.learners.known(pid):
                    self.log.announced(pid, output, learner.chosen())
                self.contention.asked(pid)
                self.freezing.announce(pid, start, until)
                if matcher.kind in plans.ANNOUNCED:
                    self._announce(pid, start + self._shift_us(pid), Hint.RESERVE)
            case Release(time_us=now):
                self.freezing.released(pid)
                self._announce(pid, now, Hint.CANCEL)

    def _announce(self, pid: int, start_us: float, hint: Hint) -> None:
        """A predicted arrival: no event in the kernel tells the actuator of it."""
        if any(plan.pid == pid and self._predicts(plan) for plan in self.execution.published.plans):
            self.execution.announce(encode_hint(round(start_us * 1000), pid, hint))

    def _predicts(self, plan: Plan) -> bool:
        """Whether the plan waits for our announcements; the program's own hints reach the actuator by themselves."""
        learner = self.learners.known(plan.pid)
        explicit = learner is not None and learner.chosen().state == "explicit"
        return not explicit and any(trigger.kind == Kind.HINT for trigger in plan.triggers)

    def _config_of(self, process: Process | None) -> Config:
        """A process has one level and one set of offsets: those of its first GPU."""
        gpus = sorted(process.gpus(), key=lambda gpu: -1 if gpu is None else gpu) if process else []
        return self._tuned.get(gpus[0], self.config) if gpus else self.config

    def _shift_us(self, pid: int) -> float:
        return self._config_of(self._registry.get(pid)).reservations.offset_shift_us

    def _need_us(self, pid: int) -> float:
        process = self._registry.get(pid)
        return self._costs[process.mechanism].need_us if process else 0.0
