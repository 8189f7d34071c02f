"""Leaves services that are known well to the actuator for a while: the kernel, the learner and the actuator are told.

See policy/rest.py for which, and for how long.
"""

from collections.abc import Callable, Iterator

from gpsched.adaptive.actuator.plans import Plan
from gpsched.adaptive.actuator.records import Reason, Record
from gpsched.adaptive.execution import Execution
from gpsched.adaptive.hints.bursts import Burst
from gpsched.adaptive.hints.clock import Rhythm
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.hints.observations import Rest, WakeKind
from gpsched.adaptive.hints.outputs import BurstBegan, BurstEnded, Output, Reserve
from gpsched.adaptive.learning import Learners
from gpsched.adaptive.policy.rest import Resting, announces_all
from gpsched.adaptive.probes.events import Hint, encode_hint
from gpsched.adaptive.workloads.registry import Registry


_SERVED = {Reason.SYNC, Reason.QUIET, Reason.LIMIT}


class Rests:
    """``predicts``: whether a plan waits for what we announce; ``shift_us``: how much later than learned to reserve.

    ``must_observe``: whether somebody wants to know of all events.
    """

    def __init__(
        self,
        registry: Registry,
        learners: Learners,
        execution: Execution,
        predicts: Callable[[Plan], bool],
        shift_us: Callable[[int], float],
    ) -> None:
        self._registry, self._learners, self._execution = registry, learners, execution
        self._predicts, self._shift_us = predicts, shift_us
        self._resting = Resting()
        self.must_observe: Callable[[], bool] = lambda: False

    @property
    def pids(self) -> frozenset[int]:
        """Return the services that rest."""
        return self._resting.pids

    def change(self, watched: frozenset[int]) -> frozenset[int]:
        """Return who begins or ends to rest now; ``watched`` never do. Tell the kernel first, then call ``tell``."""
        if not self._resting.due:
            return frozenset()
        return self._resting.update({} if self.must_observe() else dict(self._known_well(watched)))

    def hinted(self, pid: int) -> None:
        """The program gives hints of its own, which outrank what was learned."""
        self._resting.wake(pid)

    def tell(self, pid: int, now_us: float) -> Iterator[Output]:
        """Tell the learner of a change, and the actuator what it has to foretell; yield what follows."""
        rests = pid in self.pids
        yield from self._learners.tell(pid, Rest(now_us, over=not rests))
        if rests and (rhythm := self._rhythm(pid)):
            start_ns, every_ns, lead_ns = (round(us * 1000) for us in rhythm.after(now_us))
            self._execution.announce(encode_hint(start_ns, pid, Hint.RESERVE, every_ns, lead_ns))

    def reserved(self, record: Record) -> Iterator[Output]:
        """Take what the actuator did; yield what the learner would have said, had it been told of this burst."""
        self._resting.reserved(record)
        learner = self._learners.known(record.pid)
        if not (
            learner and learner.chosen().triggers and learner.missed((record.launch_ns or record.trigger_ns) / 1000)
        ):
            return
        for output in outputs(record, learner.chosen(), learner.lead_us):
            if isinstance(output, BurstBegan):
                learner.keep_time(output.time_us)
            yield output

    def _known_well(self, watched: frozenset[int]) -> Iterator[tuple[int, int]]:
        """Services on one GPU whose bursts the actuator sees announced, all of them, and how many were observed."""
        plans = self._execution.published.plans
        plan_pids = [plan.pid for plan in plans]
        for plan in plans:
            process, learner = self._registry.get(plan.pid), self._learners.known(plan.pid)
            if process is None or learner is None or plan_pids.count(plan.pid) > 1 or plan.pid in watched:
                continue
            foretold = not self._predicts(plan) or self._rhythm(plan.pid)
            if process.mechanism != "timeslice" and foretold and announces_all(learner.chosen()):
                yield plan.pid, learner.bursts

    def _rhythm(self, pid: int) -> Rhythm | None:
        """What the actuator could foretell the bursts by; None where no rhythm announces them ahead of their launch."""
        learner = self._learners.known(pid)
        if learner is None or (rhythm := learner.rhythm) is None:
            return None
        shifted = rhythm.shifted(self._shift_us(pid))
        return shifted if shifted.lead_us > 0.0 else None


def outputs(record: Record, choice: Choice, lead_us: float) -> Iterator[Output]:
    """Yield what the learner would have said of the burst that a reservation served.

    ``lead_us``: how long before its launch a burst has to be announced to be reserved for in time.
    """
    trigger = choice.triggers[min(record.trigger, len(choice.triggers) - 1)]
    occurred = record.trigger_ns / 1000
    clock = trigger.matcher.kind == WakeKind.CLOCK  # foretold: nothing announced it
    if not clock:
        yield Reserve(occurred + trigger.offset_us, occurred + trigger.limit_us, trigger.matcher)
    if record.launch_ns and record.reason in _SERVED:
        launch, begin = record.launch_ns / 1000, record.begin_ns / 1000
        reserved = launch - begin if record.begin_ns and begin <= launch else None
        yield BurstBegan(launch, reserved, not clock and launch - occurred >= lead_us)
        yield BurstEnded(Burst(launch, max(record.end_ns / 1000, launch), 1, "sync"))
