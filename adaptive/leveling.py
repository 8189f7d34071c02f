"""Which level each latency-critical process has: what it could have, what that would gain, and whether that is new."""

import logging
import os
import time
from collections.abc import Mapping

from gpsched.adaptive.actuator.slots import find_agent
from gpsched.adaptive.config import Reservations
from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.learning import Learners
from gpsched.adaptive.model import Level
from gpsched.adaptive.outcomes import Outcomes
from gpsched.adaptive.policy.levels import Prospect, choose_level, within
from gpsched.adaptive.workloads.registry import Process


log = logging.getLogger(__name__)

_GAIN_STEP_US = 20.0
_DISPROVED = "its bursts took longer with {} than without: tried again later"
_RESERVING: tuple[Level, ...] = ("reserve", "hold")


class Levels:
    """Sets ``mechanism`` and ``hint_reason`` of processes. ``costs``: by level, as calibrated."""

    def __init__(self, learners: Learners, costs: Mapping[str, Costs]) -> None:
        self._learners, self._costs = learners, costs
        self._chosen: dict[int, tuple[object, ...]] = {}
        self._agents: dict[int, int | None] = {}
        self._outcomes: dict[int, Outcomes] = {}

    def choose(
        self, process: Process, settings: Reservations, waste_budget: float, *, worth: bool, actuator: bool
    ) -> None:
        """Choose anew, if anything that the choice depends on is new.

        ``worth``: whether the process shares a GPU with who could give way; ``actuator``: whether there is one.
        """
        learner = self._learners.known(process.pid)
        disproved = self._outcomes[process.pid].disproved(time.monotonic()) if process.pid in self._outcomes else ()
        possible = self._available(process.pid, settings.level) if worth and actuator else ()
        available = tuple(level for level in possible if level not in disproved)
        basis = (worth, available, learner and _grounds(learner))
        if self._chosen.get(process.pid) == basis:
            return
        self._chosen[process.pid] = basis
        if learner is None or not available:
            process.mechanism = "timeslice"
            process.hint_reason = _DISPROVED.format(", ".join(possible)) if learner and possible else ""
            return
        prospects: dict[Level, Prospect] = {level: self._prospect(learner, level) for level in available}
        level, process.hint_reason = choose_level(prospects, process.mechanism, waste_budget)
        if level != process.mechanism:
            log.info("pid %d: level %s, %s", process.pid, level, process.hint_reason)
        process.mechanism = level
        learner.set_costs(self._costs[level if level != "timeslice" else available[-1]])

    def ended(self, process: Process, length_us: float) -> bool:
        """A burst is over; True when its level proved to be no good, and another is to be chosen."""
        outcomes = self._outcomes.setdefault(process.pid, Outcomes())
        worse = outcomes.ended(process.mechanism, length_us, time.monotonic())
        if worse:
            log.info("pid %d: bursts take longer at level %s than without it", process.pid, process.mechanism)
        return worse

    def forget_outcomes(self) -> None:
        """Bursts are about to take another time for reasons that no level has: those before are no comparison."""
        self._outcomes.clear()

    def set_costs(self, costs: Mapping[str, Costs]) -> None:
        """Other costs were found: levels are chosen anew by them."""
        self._costs = costs
        self.renew()

    def possible(self, pid: int, *, actuator: bool) -> tuple[Level, ...]:
        """Return the levels that this process could have."""
        if not actuator:
            return ("timeslice",)
        return ("timeslice", "reserve", "hold") if self._agents.get(pid) else ("timeslice", "reserve")

    def agent(self, pid: int) -> int | None:
        """Return the thread of a process' hold agent, whose calls are not its own; None when it has none."""
        return self._agents.get(pid)

    def agents(self) -> list[int]:
        """Return the threads of all hold agents."""
        return [tid for tid in self._agents.values() if tid is not None]

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._chosen.pop(pid, None)
        self._agents.pop(pid, None)
        self._outcomes.pop(pid, None)

    def renew(self) -> None:
        """Settings are new: the next choices are made anew."""
        self._chosen.clear()

    def _prospect(self, learner: HintLearner, level: Level) -> Prospect:
        """Where the program itself tells when, nothing has to be expected of what was learned."""
        costs = self._costs[level]
        if learner.chosen().state == "explicit":
            return Prospect(costs.switch_us - costs.residual_us, 0.0)
        return Prospect(*learner.expected(costs))

    def _available(self, pid: int, wanted: str) -> tuple[Level, ...]:
        if wanted in ("freeze", "timeslice"):
            return ()
        if not self._agents.get(pid):
            self._agents[pid] = _agent_thread(pid)
        levels = tuple(level for level in _RESERVING if level != "hold" or self._agents[pid])
        return within(wanted, levels)


def _grounds(learner: HintLearner) -> tuple[object, ...]:
    """What a level follows from, coarsely: finer changes of the choice are the plans' alone, and weighing costs ms."""
    choice = learner.chosen()
    triggers = frozenset(trigger.matcher for trigger in choice.triggers)
    return choice.state, triggers, round(choice.gain_us / _GAIN_STEP_US), learner.gaps


def _agent_thread(pid: int) -> int | None:
    found = find_agent(pid)
    if found is None:
        return None
    os.close(found[1])
    return found[0]
