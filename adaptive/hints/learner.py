"""The learner of one latency-critical process: observations in, reservations and a choice out. No I/O."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from gpsched.adaptive.hints.announced import Announcements
from gpsched.adaptive.hints.bursts import Burst, BurstSegmenter
from gpsched.adaptive.hints.candidates import CandidateTable
from gpsched.adaptive.hints.chooser import Chooser
from gpsched.adaptive.hints.clock import Clock, Rhythm
from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.hints.matching import NO_MATCH, Matching
from gpsched.adaptive.hints.model import Choice, HintsReport, Trigger
from gpsched.adaptive.hints.observations import (
    UNKNOWN,
    Copy,
    EventRecord,
    Explicit,
    Launch,
    Lost,
    Matcher,
    Observation,
    Rest,
    SyncEnter,
    SyncReturn,
    Wake,
    WakeKind,
)
from gpsched.adaptive.hints.outputs import BurstBegan, BurstEnded, ChoiceChanged, Claimed, Output, Release, Reserve
from gpsched.adaptive.hints.report import build_report
from gpsched.adaptive.hints.reservations import Reservations
from gpsched.adaptive.hints.resumption import Respite
from gpsched.adaptive.hints.waiting import Waiting


Handler = Callable[[Any, float, list[Output]], None]


class HintLearner:
    """Learns what announces the bursts of process ``pid`` and reserves by it, at the given level's costs.

    Feed every observation in order of time, and a Tick every few ms while there are none. One process, one thread.
    """

    STEP_BACK_US = 10_000.0  # events of several CPUs may be out of order by less
    STEP_AHEAD_US = 60e6
    NOTICED = 0.25  # of the lead that the costs ask for

    def __init__(self, costs: Costs = LEVELS["hold"], pid: int = 0) -> None:
        self.pid = pid
        self._now = 0.0
        self._lost = 0
        self._segmenter = BurstSegmenter(costs.gap_us)
        self._table = CandidateTable()
        self._clock = Clock()
        self._announced = Announcements()
        self._reservations = Reservations(costs)
        self._chooser = Chooser(costs, self._table, self._clock, self._announced, self._reservations, self._segmenter)
        self._matching = Matching(self._chooser, self._announced)
        self._waiting = Waiting()
        self._told_us = float("inf")  # the first wake since the last burst began that told of the next one
        self._earliest: Matcher | None = None
        self._gaps: deque[int] = deque(maxlen=16)
        self._respite = Respite()
        self._handlers: dict[type[Observation], Handler] = {
            Wake: self._on_wake,
            Launch: self._on_launch,
            Copy: self._on_copy,
            SyncEnter: self._on_sync_enter,
            SyncReturn: self._on_sync_return,
            EventRecord: lambda call, _now, _out: self._segmenter.record(call),
            Explicit: self._on_explicit,
            Lost: self._on_lost,
            Rest: self._on_rest,
        }

    def observe(self, observation: Observation) -> Sequence[Output]:
        """Take one observation and return what follows from it, in order."""
        if self._respite.lasts and not self._resumes(observation):
            return ()
        out: list[Output] = []
        now = observation.time_us
        if not self._now - self.STEP_BACK_US <= now <= self._now + self.STEP_AHEAD_US:
            self._reset("the clock stepped or the process was idle for long", out)
            self._now = now
        now = self._now = max(now, self._now)
        self._advance(now, out)
        handler = self._handlers.get(type(observation))
        if handler:
            handler(observation, now, out)
        return out

    def chosen(self) -> Choice:
        """Return the choice in force."""
        return self._chooser.choice

    def set_costs(self, costs: Costs) -> None:
        """Another level is in force, or other costs were found; the next choice is made by them.

        Where they are much different from those that all candidates were weighed by, so are these, at the next burst.
        """
        self._chooser.costs = self._reservations.costs = costs
        weighed = self._chooser.weighed
        if costs.keeps != weighed.keeps or abs(costs.lead_us - weighed.lead_us) > self.NOTICED * weighed.lead_us:
            self._chooser.soon()

    def expected(self, costs: Costs) -> tuple[float, float]:
        """Return what the best choice at other costs would gain per burst (µs) and waste (share of GPU time).

        For choosing the level.
        """
        gain, waste = self._chooser.expected(costs)
        if not costs.keeps or not self.gaps:
            return gain, waste
        return (gain or min(costs.hidden(0.0), 0.0)) + self.gaps * costs.switch_us, waste

    def missed(self, time_us: float) -> bool:
        """Whether it was told nothing of what happened then, as far as it remembers."""
        return self._respite.covers(time_us)

    def keep_time(self, launch_us: float) -> None:
        """A burst began of which it is told nothing else: the rhythm is followed all the same."""
        if self._respite.lasts:
            self._clock.burst(launch_us)

    @property
    def rhythm(self) -> Rhythm | None:
        """When to reserve by the clock; None where that is no chosen trigger, or there is no rhythm now."""
        clocks = [each for each in self.chosen().triggers if each.matcher.kind == WakeKind.CLOCK]
        return self._clock.rhythm(clocks[0].offset_us) if clocks else None

    @property
    def bursts(self) -> int:
        """How many bursts were observed so far."""
        return self._table.burst

    @property
    def lead_us(self) -> float:
        """How long before its first launch a burst must be announced to be reserved for in time, at its level."""
        return self._chooser.costs.lead_us

    @property
    def gaps(self) -> int:
        """How often the GPU is idle within a burst lately; coarsely, so that noise changes no level."""
        mean = round(sum(self._gaps) / len(self._gaps)) if self._gaps else 0
        return 1 << mean.bit_length() - 1 if mean else 0

    def report(self) -> HintsReport:
        """Return what ``gpsched hints`` shows."""
        return build_report(self.pid, self._chooser, self._lost)

    # ---- observations

    def _on_wake(self, wake: Wake, now: float, out: list[Output]) -> None:
        if wake.kind <= WakeKind.ACCEPT:  # other kinds of wakes happen inside a synchronisation, too
            self._ended(self._segmenter.resume(wake.tid), out)
        self._waiting.wake(wake, now)
        busy = self._segmenter.start_us is not None or self._waiting.busy(now)
        group = self._table.occur(now, wake.kind, wake.tid, wake.descriptor, wake.size, busy)
        match = self._matching.of(group.key, wake)
        if match is NO_MATCH:
            return
        self._waiting.matched(match, now, busy=busy)
        if match.tells and now < self._told_us and not (busy and match.idle):
            self._told_us = now
        busy = busy or self._reservations.waiting(now)
        tid = wake.tid if self._table.bound(wake.kind) else None
        for trigger in match.triggers:
            if not (busy and trigger.matcher.idle):
                self._reserve(now, now + trigger.offset_us, now + trigger.limit_us, trigger, out, tid)

    def _on_launch(self, call: Launch, now: float, out: list[Output]) -> None:
        self._ended(self._segmenter.resume(call.tid), out)
        if not self._segmenter.launch(call):
            self._table.follow(now, call.tid)
            if self._reservations.follow(call.tid):
                out.append(Claimed(now))
                self._ask_again(out)
            return
        queued = self._waiting.wakes_nobody
        gap = self._waiting.launch(now, call.tid)
        self._table.claim(now, gap, call.tid)
        self._announced.launch(now)
        allowed = now - self._told_us >= self._chooser.costs.lead_us
        self._told_us = float("inf")
        reserved_us = self._reservations.launch(now, gap, call.tid, queued=queued)
        out.append(BurstBegan(now, reserved_us, allowed))
        self._ask_again(out)
        self._clock.burst(now)
        if self._reservations.hasty:
            self._chooser.unsettle()
        if self._chooser.burst(now):
            self._adopt(out)
        elif self._earliest != self._chooser.earliest:
            self._matching.clear()
        self._earliest = self._chooser.earliest
        self._expect(out)

    def _ask_again(self, out: list[Output]) -> None:
        out.extend(Reserve(w.start_us, w.until_us, w.trigger.matcher) for w in self._reservations.kept())

    def _on_copy(self, call: Copy, now: float, out: list[Output]) -> None:
        self._ended(self._segmenter.resume(call.tid), out)
        if call.to_device and not self._segmenter.active:
            self._on_wake(Wake(now, call.tid, WakeKind.COPY_H2D, UNKNOWN, call.size), now, out)
        self._segmenter.copy(call)

    def _on_sync_enter(self, call: SyncEnter, _now: float, out: list[Output]) -> None:
        self._ended(self._segmenter.resume(call.tid), out)
        self._segmenter.sync_enter(call)

    def _on_sync_return(self, call: SyncReturn, _now: float, out: list[Output]) -> None:
        self._ended(self._segmenter.sync_return(call), out)

    def _on_explicit(self, hint: Explicit, now: float, out: list[Output]) -> None:
        first = not self._announced.active
        self._announced.hint(hint)
        if first:
            self._drop("the program gives hints itself", now, out)
            self._chooser.decide()
            self._adopt(out)
        if hint.cancel:
            self._drop("cancelled by the program", now, out)
            return
        trigger = self._announced.trigger(self._chooser.costs)
        at = now + hint.in_us
        self._told_us = min(self._told_us, now)
        self._reserve(now, max(now, at + trigger.offset_us), at + trigger.limit_us, trigger, out)

    def _on_rest(self, _rest: Rest, now: float, out: list[Output]) -> None:
        self._forget_pending("the service is left to the actuator for a while", out)
        self._respite.begin(now)

    def _resumes(self, observation: Observation) -> bool:
        """Whether this is to be learned from again. Until then no time passes: nothing that was expected is missed."""
        lasted_us = self._respite.end(observation, self._segmenter.between.us)
        if lasted_us is None:
            return False
        self._now = observation.time_us
        self._reservations.skip(lasted_us)
        self._clock.skip(self._now)
        return True

    def _on_lost(self, lost: Lost, _now: float, out: list[Output]) -> None:
        self._lost += lost.count
        self._reset("events were lost", out)

    # ---- consequences

    def _advance(self, now: float, out: list[Output]) -> None:
        if self._segmenter.start_us is not None:
            self._ended(self._segmenter.advance(now), out)
        if self._reservations.expire(now):
            out.append(Release(now, "no burst came in time"))
            if self._chooser.check_drift():
                self._adopt(out)
        if now < self._clock.next_us:
            return
        occurrence = self._clock.due(now)
        if occurrence is not None:
            self._table.occur(occurrence, WakeKind.CLOCK)
        if self._clock.missed(now):
            self._expect(out)

    def _expect(self, out: list[Output]) -> None:
        """Reserve ahead for the next burst of the rhythm, if the clock is a chosen trigger."""
        at = self._clock.upcoming_us
        for trigger in self._chooser.choice.triggers:
            if at is not None and trigger.matcher.kind == WakeKind.CLOCK:
                self._reserve(at, at + trigger.offset_us, at + trigger.limit_us, trigger, out)

    def _reserve(
        self,
        occurred: float,
        start: float,
        until: float,
        trigger: Trigger,
        out: list[Output],
        tid: int | None = None,
    ) -> None:
        self._reservations.open(occurred, start, until, trigger, tid)
        out.append(Reserve(start, until, trigger.matcher))

    def _ended(self, burst: Burst | None, out: list[Output]) -> None:
        if burst is None:
            return
        waiting = self._waiting.ended(burst, self.chosen(), reads=self._table.bound(WakeKind.SOCKET_READ))
        self._chooser.burst_ended(burst)
        out.append(BurstEnded(burst))
        self._count_gaps(burst, out)
        if waiting:
            self._on_wake(Wake(burst.end_us, UNKNOWN, WakeKind.BURST_END, size=waiting), burst.end_us, out)
            self._waiting.taken(burst.end_us, self.chosen())

    def _count_gaps(self, burst: Burst, out: list[Output]) -> None:
        """The level is chosen by them, too."""
        before = self.gaps
        self._gaps.append(burst.gaps)
        if self.gaps != before:
            out.append(ChoiceChanged(self._chooser.choice))

    def _adopt(self, out: list[Output]) -> None:
        self._matching.clear()
        out.append(ChoiceChanged(self._chooser.choice))

    def _drop(self, why: str, now: float, out: list[Output]) -> None:
        if self._reservations.drop():
            out.append(Release(now, why))

    def _reset(self, why: str, out: list[Output]) -> None:
        self._clock.reset()
        self._forget_pending(why, out)

    def _forget_pending(self, why: str, out: list[Output]) -> None:
        self._ended(self._segmenter.reset(), out)
        self._table.drop_pending()
        self._told_us = float("inf")
        self._chooser.reset()
        self._drop(why, self._now, out)
