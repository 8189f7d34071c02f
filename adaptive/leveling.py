"""Which level each latency-critical process has: what it could have, what that would gain, and whether that is new."""

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from gpsched.adaptive.agents import Agents
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


class Levels:
    """Sets ``mechanism`` and ``hint_reason`` of processes. ``costs``: by level, as calibrated."""

    def __init__(self, learners: Learners, costs: Mapping[str, Costs]) -> None:
        self._learners, self._costs = learners, costs
        self._chosen: dict[int, _Grounds] = {}
        self.agents = Agents()
        self._outcomes: dict[int, Outcomes] = {}
        self._shared: dict[int, bool] = {}  # whether bursts have somebody to wait for

    def choose(
        self, process: Process, settings: Reservations, waste_budget: float, *, worth: bool, actuator: bool
    ) -> None:
        """Choose anew, if anything that the choice depends on is new.

        ``worth``: whether the process shares a GPU with who could give way; ``actuator``: whether there is one.
        """
        if self._shared.get(process.pid, worth) != worth and process.pid in self._outcomes:
            self._outcomes[process.pid].begin_anew()
        self._shared[process.pid] = worth
        learner = self._learners.known(process.pid)
        wanted = self._wanted(process.pid, settings.level) if worth and actuator else ()
        refused = self._refused(process.pid, wanted)
        available = within(settings.level, tuple(level for level in wanted if level not in refused))
        grounds = _grounds(learner, worth, available, tuple(refused.items()))
        if (known := self._chosen.get(process.pid)) and grounds.much_as(known):
            return
        self._chosen[process.pid] = grounds
        refusals = [f"not {level}: {why}" for level, why in refused.items()]
        if learner is None or not available:
            process.mechanism = "timeslice"
            process.hint_reason = "; ".join(refusals) if learner else ""
            return
        prospects: dict[Level, Prospect] = {level: self._prospect(learner, level) for level in available}
        level, reason = choose_level(prospects, process.mechanism, waste_budget)
        process.hint_reason = "; ".join((reason, *refusals))
        if level != process.mechanism:
            learned = f" ({learner.chosen().why})" if level == "timeslice" else ""
            log.info("pid %d: level %s, %s%s", process.pid, level, process.hint_reason, learned)
        process.mechanism = level
        learner.set_costs(self._costs[level if level != "timeslice" else available[-1]])

    def ended(self, process: Process, length_us: float) -> bool:
        """A burst is over; True when it shows that another level is to be chosen."""
        outcomes = self._outcomes.setdefault(process.pid, Outcomes())
        found = outcomes.ended(process.mechanism, length_us, time.monotonic())
        if found:
            log.info("pid %d: %s", process.pid, found)
        return bool(found)

    def held(self, process: Process, launched: bool) -> bool:
        """A hold that was asked for is over; True when holds proved to be no good: choose another level."""
        useless = self._outcomes.setdefault(process.pid, Outcomes()).held(launched, time.monotonic())
        if useless:
            log.info("pid %d: holds are asked for and not launched", process.pid)
        return useless

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
        holds = self.agents.thread(pid) is not None and not self.agents.inability(pid)
        return ("timeslice", "reserve", "hold") if holds else ("timeslice", "reserve")

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._chosen.pop(pid, None)
        self._shared.pop(pid, None)
        self.agents.forget(pid)
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

    def _wanted(self, pid: int, wanted: str) -> tuple[Level, ...]:
        """The levels that the settings allow and that the program was started for."""
        if wanted in ("freeze", "timeslice"):
            return ()
        levels: tuple[Level, ...] = ("reserve", "hold") if self.agents.look(pid) else ("reserve",)
        return levels if wanted in ("auto", "hold") else levels[:1]

    def _refused(self, pid: int, levels: tuple[Level, ...]) -> dict[Level, str]:
        """Which of them do not work, and why."""
        outcomes = self._outcomes.get(pid)
        refused = dict(outcomes.disproved(time.monotonic())) if outcomes else {}
        if inability := self.agents.inability(pid):
            refused["hold"] = inability
        return {level: refused[level] for level in levels if level in refused}


class _Grounds(NamedTuple):
    """What a level follows from. Finer changes of the choice are the plans' alone, and weighing costs ms."""

    facts: tuple[object, ...]
    gain_us: float

    def much_as(self, other: "_Grounds") -> bool:
        """Whether a level that followed from the others follows from these."""
        return self.facts == other.facts and abs(self.gain_us - other.gain_us) <= _GAIN_STEP_US


def _grounds(learner: HintLearner | None, *facts: object) -> _Grounds:
    if learner is None:
        return _Grounds(facts, 0.0)
    choice = learner.chosen()
    triggers = frozenset(trigger.matcher for trigger in choice.triggers)
    return _Grounds((*facts, choice.state, triggers, learner.gaps), choice.gain_us)
