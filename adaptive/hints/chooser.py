"""Keeps the choice of one process up to date, and drops it when it no longer holds."""

from collections import deque

from msgspec.structs import replace

from gpsched.adaptive.hints import choose
from gpsched.adaptive.hints.announced import Announcements
from gpsched.adaptive.hints.bursts import Burst, BurstSegmenter
from gpsched.adaptive.hints.candidates import CandidateTable
from gpsched.adaptive.hints.clock import Clock
from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.evaluation import Evaluation
from gpsched.adaptive.hints.leads import Bursts, quantile
from gpsched.adaptive.hints.model import Choice, State, Trigger
from gpsched.adaptive.hints.observations import Matcher, WakeKind
from gpsched.adaptive.hints.reservations import Reservations


_NOTICED = 0.05  # part of a time, or of what the mechanism needs, by which it must change to make other plans
_GAIN, _GAIN_US = 0.15, 10.0  # changes of the expected gain by which a level may be chosen anew


class Chooser:
    """Chooses every few bursts while learning, refines what is chosen now and then, and looks for better rarely."""

    _LEARNING = 4  # bursts between choices until sure
    _YOUTH = 64  # bursts within which every choice looks at all candidates
    _REFINE = 16  # between looks at the chosen triggers alone
    _RENEW = 16  # refinements between looks at all candidates
    _FRUITLESS, _RAREST = 16, 4  # looks that find no trigger until each next one is twice as rare, and how many times
    _KEEP = 4  # occurrences that survive a drift
    _SHORTEST_US, _LONGEST_US = 10_000.0, 1_000_000.0  # of a burst's limit
    _UNSETTLED = 5  # such looks: until there are enough of the new leads to go by them alone
    _BETTER = 1.015  # what a new set must gain over the present one to replace it

    def __init__(
        self,
        costs: Costs,
        table: CandidateTable,
        clock: Clock,
        announced: Announcements,
        reservations: Reservations,
        segmenter: BurstSegmenter,
    ) -> None:
        self.costs = self.weighed = costs  # the latter when all candidates were looked at last
        self.choice = Choice("learning")
        self.table, self.clock, self.announced = table, clock, announced
        self.reservations, self.segmenter = reservations, segmenter
        self.drifts = 0
        self.learned_after: int | None = None  # bursts until the first triggers
        self._starts: deque[float] = deque(maxlen=128)
        self._lengths: deque[float] = deque(maxlen=128)
        self._wait = self._LEARNING
        self._refined = 0
        self._unsettled = 0
        self._fruitless = 0
        self._patience = 1  # refinements until all candidates are looked at again
        self._source: Trigger | None = None
        self._taker: Trigger | None = None
        self.earliest: Matcher | None = None  # what tells of most bursts first, chosen or not

    # ---- what happened

    def burst(self, now: float) -> bool:
        """A burst began; True when the choice changed."""
        self._starts.append(now)
        if self.check_drift():
            return True
        self._wait -= 1
        return self._wait <= 0 and self.decide()

    def burst_ended(self, burst: Burst) -> None:
        """Learn how long bursts last."""
        if burst.closed_by in ("sync", "quiet"):
            self._lengths.append(burst.end_us - burst.start_us)

    def check_drift(self) -> bool:
        """Fall back to the first launch when the choice's outcomes are not what was expected; True when it did.

        Where bursts only come sooner after what announces them, the new leads are all that has to be learned.
        """
        drift = self.reservations.drift
        if not drift or not self.choice.triggers or self.choice.state == "explicit":
            return False
        self.drifts += 1
        self._fruitless = 0
        if late := self.reservations.late:
            self.table.retime(late)
        else:
            self.table.truncate(self._KEEP)
        why = f"{self.choice.triggers[0].matcher} no longer announces bursts as it did ({drift}); learning again"
        return self._set(Choice("drift", why=f"{why}; the GPU is taken at the first launch"))

    def reset(self) -> None:
        """Times before now mean nothing any more."""
        self._starts.clear()

    def soon(self) -> None:
        """Choose at the next burst, among all candidates."""
        self._wait, self._patience, self._fruitless = 0, 1, 0

    def unsettle(self) -> None:
        """Bursts come a little later than the choice waits for: look at all candidates again and again for a while."""
        self._unsettled, self._wait = self._UNSETTLED, min(self._wait, self._LEARNING)

    # ---- choosing

    @property
    def interval_us(self) -> float:
        """Mean time between bursts; a cautious 5 ms until known."""
        if len(self._starts) < 8:
            return 5_000.0
        return max((self._starts[-1] - self._starts[0]) / (len(self._starts) - 1), 1.0)

    def burst_quantiles(self) -> dict[str, float]:
        """P50 and P99 of the bursts' lengths in µs."""
        if not self._lengths:
            return {}
        lengths = sorted(self._lengths)
        return {f"p{percent}": round(quantile(lengths, percent), 1) for percent in (50, 99)}

    def decide(self) -> bool:
        """Choose; True when the choice changed."""
        if self.announced.active:
            self._wait = self._REFINE
            why = "the program gives explicit hints, which outrank what was learned"
            return self._set(Choice("explicit", (self.announced.trigger(self.costs),), why=why))
        sure = self.choice.state == "sure" and self.table.burst > self._YOUTH and not self._unsettled
        self._unsettled = max(self._unsettled - 1, 0)
        self._wait = self._REFINE if sure else self._learning_wait()
        self._refined += 1
        if sure and not self._knows_better() and self._refined < self._patience and (kept := self._refine()):
            return self._set(self._from_rated(kept))
        return self._look_around()

    def _learning_wait(self) -> int:
        """A process that nothing announces, or now this and now that, should cost little."""
        rarer = max(self._fruitless - self._FRUITLESS, 0)
        is_new = self.table.burst <= self._YOUTH or self.choice.state == "drift" or self._unsettled > 0
        return (self._LEARNING if is_new else self._REFINE) << min(rarer, self._RAREST)

    def _look_around(self) -> bool:
        """Choose among all candidates; ever more rarely while that changes nothing."""
        before = _matchers(self.choice)
        changed = self._renew()
        kept = _matchers(self.choice) == before and self.table.burst > self._YOUTH
        self._patience = min(2 * self._patience, self._RENEW) if kept else 1
        self._fruitless = 0 if self.choice.triggers else self._fruitless + 1
        self._refined = 0
        return changed

    def rate(self, costs: Costs, wanted: set[Matcher] | None = None) -> list[choose.Rated]:
        """Evaluate all candidates, or the wanted ones."""
        last = Bursts(self.table.burst, list(self.table.gaps), self.interval_us)
        return choose.rate(self.table.windows(wanted), last, costs)

    def expected(self, costs: Costs) -> tuple[float, float]:
        """Return µs gained per burst and wasted share of GPU time of the best choice at ``costs``."""
        chosen = choose.select(self.rate(costs), costs, self.table.burst)
        return choose.total_gain(chosen, self.table.burst), sum(found.waste_share for _, found in chosen)

    def _refine(self) -> list[choose.Rated]:
        """Evaluate the chosen triggers anew; empty when they no longer qualify."""
        wanted = {trigger.matcher for trigger in self.choice.triggers if trigger.recall}
        rated = self.rate(self.costs, wanted)
        if len(rated) < len(wanted) or any(choose.objection(*item, self.costs) for item in rated):
            return []
        by_matcher = dict(rated)
        order = [trigger.matcher for trigger in self.choice.triggers if trigger.recall]
        return [(matcher, by_matcher[matcher]) for matcher in order]

    def _renew(self) -> bool:
        self.weighed = self.costs
        for _, window in self.table.windows():
            window.follow_drift()
        rated = self.rate(self.costs)
        self._set_source(choose.source(rated, self.costs))
        self._taker = choose.taker(rated, self._source)
        self.earliest = choose.earliest(rated, self.costs)
        chosen = choose.select(rated, self.costs, self.table.burst)
        present = {trigger.matcher for trigger in self.choice.triggers if trigger.recall}
        kept = [item for item in rated if item[0] in present and choose.objection(*item, self.costs) is None]
        if (
            len(kept) == len(present)
            and len(kept) <= len(chosen)
            and self._gain(chosen) < self._BETTER * self._gain(kept)
        ):
            chosen = kept
        if chosen:
            return self._set(self._from_rated(chosen))
        state: State = "drift" if self.choice.state == "drift" else "learning"
        return self._set(Choice(state, why=choose.explain_fallback(rated, self.costs)))

    def _set_source(self, source: Trigger | None) -> None:
        if source and self.table.bound(source.matcher.kind):
            source = None  # its thread launches itself: nothing is queued
        before, self._source = self._source, source
        # Wakes between a burst's end and the launch of what waited then seemed to be idle ones with a short lead.
        if source and (before is None or before.matcher != source.matcher) and source.lead_us["p1"] < source.young_us:
            self.table.forget_idle()

    def _gain(self, rated: list[choose.Rated]) -> float:
        return choose.total_gain(rated, self.table.burst)

    def _from_rated(self, rated: list[choose.Rated]) -> Choice:
        why = "; ".join(choose.explain(*item, self.costs) for item in rated)
        triggers = [self._trigger(*item) for item in rated]
        if self._source and self._waiting_seen() < choose.MINIMUM_BURST_END and len(triggers) < choose.MOST:
            triggers.append(choose.provisional(self._source))
        return Choice("sure", tuple(triggers), gain_us=round(self._gain(rated), 1), why=why)

    def _waiting_seen(self) -> int:
        return sum(len(window) for _, window in self.table.windows({Matcher(WakeKind.BURST_END)}))

    def _knows_better(self) -> bool:
        provisional = any(not trigger.recall for trigger in self.choice.triggers)
        return provisional and self._waiting_seen() >= choose.MINIMUM_BURST_END

    def _trigger(self, matcher: Matcher, found: Evaluation) -> Trigger:
        trigger = replace(choose.trigger(matcher, found), same_thread=self.table.bound(matcher.kind))
        predictor = self.clock.predictor
        if matcher.kind == WakeKind.CLOCK and predictor.next_us is not None:
            return replace(trigger, period_us=predictor.period_us, next_us=predictor.next_us)
        return trigger

    def _set(self, choice: Choice) -> bool:
        """Put the choice in force; True when it differs enough from the present one to be worth new plans."""
        choice = replace(
            choice,
            quiet_us=round(self.segmenter.between.us, 1),
            burst_limit_us=self._burst_limit(),
            source=self._source,
            taker=self._taker,
            keep_companions=self.reservations.keep_companions,
            generation=self.choice.generation + 1,
        )
        if not _differs(choice, self.choice, _NOTICED * self.costs.need_us):
            self.choice = replace(self.choice, why=choice.why)
            return False
        if choice.state != self.choice.state or _matchers(choice) != _matchers(self.choice):
            self.reservations.fresh(min(sum(trigger.recall for trigger in choice.triggers), 1.0))
        self.choice = choice
        if choice.triggers and self.learned_after is None:
            self.learned_after = self.table.burst
        return True

    def _burst_limit(self) -> float:
        longest = self.burst_quantiles().get("p99", self._LONGEST_US)
        return min(max(3 * longest, self._SHORTEST_US), self._LONGEST_US)


def _matchers(choice: Choice) -> set[Matcher]:
    return {trigger.matcher for trigger in choice.triggers}


def _differs(new: Choice, old: Choice, least_us: float) -> bool:
    """Whether ``new`` is worth other plans: times that differ by less than ``least_us`` are not."""
    if new.state != old.state or new.keep_companions != old.keep_companions or _matchers(new) != _matchers(old):
        return True
    for wake, known_wake in ((new.source, old.source), (new.taker, old.taker)):
        if (wake and wake.matcher) != (known_wake and known_wake.matcher):
            return True
    if new.source and old.source and abs(new.source.young_us - old.source.young_us) > 0.01 * old.source.young_us:
        return True
    if abs(new.gain_us - old.gain_us) > max(_GAIN_US, _GAIN * old.gain_us):
        return True
    pairs = [(new.quiet_us, old.quiet_us), (new.burst_limit_us, old.burst_limit_us)]
    before = {trigger.matcher: trigger for trigger in old.triggers}
    for trigger in new.triggers:
        known = before[trigger.matcher]
        pairs += [(trigger.offset_us, known.offset_us), (trigger.limit_us, known.limit_us)]
    return any(abs(a - b) > max(least_us, _NOTICED * abs(b)) for a, b in pairs)
