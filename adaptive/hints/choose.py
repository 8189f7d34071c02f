"""Chooses the triggers that hide the most switch time for the least waste, and says why in words.

A candidate must announce reliably (hardly any false occurrence), often enough to tell, and within the waste budget.
Among those, triggers are added as long as they announce bursts that the ones before did not: one endpoint may be told
by its payload's size, another by its connection.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.evaluation import PATIENCE, WASTE_WEIGHT, Evaluation, evaluate
from gpsched.adaptive.hints.leads import Bursts, LeadWindow
from gpsched.adaptive.hints.model import Trigger
from gpsched.adaptive.hints.observations import WAKINGS, Matcher, WakeKind


MINIMUM = 16  # bursts that a candidate must have announced to be believed
MINIMUM_BURST_END = 6  # requests that wait at a burst's end are a rare but clear sign
MOST = 4  # triggers at once: as many as the actuator takes
_FALSE_SHARE = 0.01
# A skipped period costs its bounded waste, which the budget limits; waiting requests are but a part of all.
_FALSE_SHARES = {WakeKind.CLOCK: 0.1, WakeKind.BURST_END: 0.02}
_PATIENCE = {WakeKind.CLOCK: 0.0}  # its leads begin at an arbitrary time: their length tells nothing
_TOLD_ENOUGH, _TOLD_AS_WELL = 0.5, 0.9  # of what the clock gains: where it errs, and in any case
_ONE_FORGIVEN = 24  # occurrences that excuse one false one
_LEAST_GAIN = 0.01  # of the switch time, averaged over all bursts
_STARTS = 6
_TELLS_NOTHING = {WakeKind.CLOCK, WakeKind.BURST_END, WakeKind.COPY_H2D}
_NO_SOURCE = _TELLS_NOTHING | WAKINGS  # who is busy is not woken, though requests come
_SOURCE_RECALL = 0.2
_MOST_BURSTS = 0.9
_YOUNG = 0.97  # of the shortest usual lead
_GENERAL_BONUS = 0.01  # per condition spared: a general matcher survives more changes of the program

Rated = tuple[Matcher, Evaluation]


def rate(windows: Iterable[tuple[Matcher, LeadWindow]], last: Bursts, costs: Costs) -> list[Rated]:
    """Evaluate the windows that hold enough occurrences."""
    rated: list[Rated] = []
    for matcher, window in windows:
        if len(window) >= _minimum(matcher) and window.last_burst > last.newest - len(last.gaps_us):
            found = evaluate(window, last, costs.of(matcher.kind), _PATIENCE.get(matcher.kind, PATIENCE))
            if found:
                rated.append((matcher, found))
    return rated


def select(rated: Sequence[Rated], costs: Costs, newest: int) -> list[Rated]:
    """Return the best set of triggers, best first; empty when the first launch is best. ``newest``: last burst."""
    gains = [(Cover(newest).gain(item), item) for item in rated if objection(*item, costs) is None]
    gains.sort(key=lambda pair: pair[0], reverse=True)
    told = max((gain for gain, item in gains if item[0].kind != WakeKind.CLOCK), default=0.0)
    usable = [item for gain, item in gains if not _guesses(item, gain, told)]
    # Greedy sets from several starts: the best single trigger may leave gaps that none fills.
    sets = [_extend(start, usable, costs, newest) for start in usable[:_STARTS]]
    return max(sets, key=lambda chosen: total_gain(chosen, newest), default=[])


def _guesses(item: Rated, gain: float, told: float) -> bool:
    """Whether this is a clock that gains little beside wakes, which gain ``told``: half as much is enough if it errs.

    Whenever requests stop it errs a few times more, and it costs the daemon more than wakes do.
    """
    matcher, found = item
    if matcher.kind != WakeKind.CLOCK:
        return False
    errs = found.false > _FALSE_SHARE * found.samples
    return told >= (_TOLD_ENOUGH if errs else _TOLD_AS_WELL) * gain


class Cover:
    """What a growing set of triggers hides of each of the last bursts. µs."""

    def __init__(self, newest: int) -> None:
        self._bursts = max(min(newest, LeadWindow.SIZE), 1)
        self._hidden: dict[int, float] = {}

    def gain(self, item: Rated) -> float:
        """What a trigger would add per burst, less what its waste is worth."""
        matcher, found = item
        if self._hidden:
            known = self._hidden.get
            added = sum(us - before for burst, us in found.served.items() if us > (before := known(burst, 0.0)))
        else:
            added = found.worth_us
        kept = 1.0 - _GENERAL_BONUS * matcher.conditions
        return added * kept / self._bursts - WASTE_WEIGHT * found.waste_us

    def add(self, item: Rated) -> None:
        """Put a trigger into the set."""
        for burst, worth in item[1].served.items():
            self._hidden[burst] = max(worth, self._hidden.get(burst, 0.0))


def _extend(start: Rated, usable: list[Rated], costs: Costs, newest: int) -> list[Rated]:
    chosen: list[Rated] = []
    cover, budget, left = Cover(newest), costs.waste_budget, list(usable)
    best: Rated | None = start
    while best and len(chosen) < MOST and cover.gain(best) >= _LEAST_GAIN * costs.switch_us:
        left.remove(best)
        if best[1].waste_share <= budget:
            chosen.append(best)
            cover.add(best)
            budget -= best[1].waste_share
        best = max(left, key=cover.gain, default=None)
    return _prune(chosen, costs, newest)


def _prune(chosen: list[Rated], costs: Costs, newest: int) -> list[Rated]:
    """Drop what later additions made superfluous."""
    if len(chosen) < 2:
        return chosen
    for item in list(chosen):
        others = [other for other in chosen if other is not item]
        lost = total_gain(chosen, newest) - total_gain(others, newest)
        if lost < _LEAST_GAIN * costs.switch_us:
            chosen = others
    return chosen


def total_gain(chosen: Sequence[Rated], newest: int) -> float:
    """Return the µs per burst that a set gains, each burst counted once."""
    cover, total = Cover(newest), 0.0
    for item in chosen:
        total += cover.gain(item)
        cover.add(item)
    return total


def source(rated: Sequence[Rated], costs: Costs) -> Trigger | None:
    """Return the wakes that queue requests: of those that announce an idle process's bursts, the most frequent.

    A candidate that is no good trigger, for its leads spread too much, may be the one; but its leads are of the same
    order as those of the good ones.
    """
    wakes = [(matcher, found) for matcher, found in rated if matcher.kind not in _NO_SOURCE]
    longest = max((found.longest_us for matcher, found in wakes if objection(matcher, found, costs) is None), default=0)
    rates = {matcher: found.samples * found.recall / found.announced for matcher, found in wakes}

    def rank(item: Rated) -> tuple[float, float]:
        matcher, found = item
        return round(rates.get(replace(matcher, idle=False), rates[matcher]), 1), found.shortest_us

    likely = [item for item in wakes if _may_queue(*item) and item[1].shortest_us <= longest]
    best = max(likely, key=rank, default=None)
    return trigger(*best) if best else None


def earliest(rated: Sequence[Rated], costs: Costs) -> Matcher | None:
    """Return the wakes that announce most bursts earliest, reliably and within the waste budget: the natural lead.

    Not those of which some come much earlier than the others, so that most bursts would be reserved too late.
    """
    likely = [
        item
        for item in rated
        if item[0].kind not in _TELLS_NOTHING
        and min(item[1].recall, item[1].in_time) >= _MOST_BURSTS
        and _is_usable(*item, costs)
    ]
    return max(likely, key=lambda item: item[1].shortest_us)[0] if likely else None


def taker(rated: Sequence[Rated], source_trigger: Trigger | None) -> Trigger | None:
    """Return the wakes of who takes queued requests: nearer to the launch than the source's, and with the least spread.

    It must have been seen before nearly as many bursts of an idle process as the source.
    """
    if source_trigger is None:
        return None
    likely = [
        (matcher, found)
        for matcher, found in rated
        if _may_queue(matcher, found)
        and matcher.kind not in _NO_SOURCE
        and matcher.kind != source_trigger.matcher.kind
        and found.shortest_us < source_trigger.lead_us["p50"]
    ]
    best = min(likely, key=lambda item: item[1].longest_us - item[1].shortest_us, default=None)
    return trigger(*best) if best else None


def _may_queue(matcher: Matcher, found: Evaluation) -> bool:
    enough = found.announced >= MINIMUM and found.recall >= _SOURCE_RECALL and not _is_false(matcher, found)
    return enough and found.longest_us <= 2 * found.shortest_us


def _is_usable(matcher: Matcher, found: Evaluation, costs: Costs) -> bool:
    """Whether there is no objection but that the lead may be too short."""
    enough = found.announced >= _minimum(matcher) and found.waste_share <= costs.waste_budget
    return enough and not _is_false(matcher, found)


def objection(matcher: Matcher, found: Evaluation, costs: Costs) -> str | None:
    """Say why a candidate cannot be used on its own; None when it can."""
    if found.announced < _minimum(matcher):
        return f"too few: announced {found.announced} bursts of the {_minimum(matcher)} that it takes to be believed"
    if _is_false(matcher, found):
        return f"{found.false} of {found.samples} occurrences were followed by no burst in {found.limit_us:.0f} µs"
    if found.waste_share > costs.waste_budget:
        return f"leads too spread: would idle {found.waste_share:.1%} of the GPU, budget {costs.waste_budget:.1%}"
    if found.hidden_us <= 0.0:
        need_us = costs.of(matcher.kind).need_us
        return f"lead too short: the mechanism needs {need_us:.0f} µs, so that nothing is gained"
    return None


def trigger(matcher: Matcher, found: Evaluation) -> Trigger:
    """Turn a chosen candidate into what the actuator needs."""
    return Trigger(
        matcher=matcher,
        offset_us=round(found.offset_us, 1),
        limit_us=round(found.limit_us, 1),
        margin_us=round(found.margin_us, 1),
        precision=found.precision,
        recall=found.recall,
        lead_us=found.leads_us,
        young_us=round(_YOUNG * found.shortest_us, 1),
    )


def provisional(source_trigger: Trigger) -> Trigger:
    """Return how to reserve for requests that wait at a burst's end until enough such bursts were seen: at once.

    Its waste is bounded by the few occurrences that it takes to know better.
    """
    return Trigger(
        matcher=Matcher(WakeKind.BURST_END),
        offset_us=0.0,
        limit_us=source_trigger.limit_us,
        margin_us=0.0,
        precision=0.0,
        recall=0.0,
        lead_us={},
    )


def explain(matcher: Matcher, found: Evaluation, costs: Costs) -> str:
    """Say in words what a chosen trigger does."""
    low, high = found.leads_us["p1"], found.leads_us["p99"]
    return (
        f"{matcher} announces {found.recall:.1%} of bursts {low:.0f}-{high:.0f} µs before the first launch, "
        f"{found.false} of {found.samples} false; reserving {found.offset_us:.0f} µs after it hides "
        f"{found.hidden_us:.0f} of {costs.switch_us:.0f} µs and idles {found.waste_share:.2%} of the GPU"
    )


def explain_fallback(rated: Sequence[Rated], costs: Costs) -> str:
    """Say why no trigger is used: the objection to the candidate that announces most."""
    if not rated:
        return "too few bursts seen to tell what announces them; the GPU is taken at the first launch"
    matcher, found = max(rated, key=lambda item: (item[1].recall * item[1].precision, -item[0].conditions))
    why = objection(matcher, found, costs) or "it would gain next to nothing"
    return f"best candidate {matcher}: {why}; the GPU is taken at the first launch"


def _minimum(matcher: Matcher) -> int:
    return MINIMUM_BURST_END if matcher.kind == WakeKind.BURST_END else MINIMUM


def _is_false(matcher: Matcher, found: Evaluation) -> bool:
    share = _FALSE_SHARES.get(matcher.kind, _FALSE_SHARE)
    return found.false > max(share * found.samples, 1.0 if found.samples >= _ONE_FORGIVEN else 0.0)
