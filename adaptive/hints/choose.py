"""Chooses the triggers that hide the most switch time for the least waste, and says why in words.

A candidate must announce reliably (hardly any false occurrence), often enough to tell, and within the waste budget.
Among those, triggers are added as long as they announce bursts that the ones before did not: one endpoint may be told
by its payload's size, another by its connection.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.leads import Bursts, Evaluation, LeadWindow, evaluate, score
from gpsched.adaptive.hints.model import Trigger
from gpsched.adaptive.hints.observations import Matcher, WakeKind


MINIMUM = 16  # bursts that a candidate must have announced to be believed
_MINIMUM_BURST_END = 6  # requests that wait at a burst's end are a rare but clear sign
MOST = 8  # triggers at once
_FALSE_SHARE = 0.01
# A skipped period costs its bounded waste, which the budget limits; waiting requests are but a part of all.
_FALSE_SHARES = {WakeKind.CLOCK: 0.1, WakeKind.BURST_END: 0.02}
_ONE_FORGIVEN = 24  # occurrences that excuse one false one
_LEAST_GAIN = 0.02  # of the switch time, averaged over all bursts
_STARTS = 6
_NO_SOURCE = {WakeKind.CLOCK, WakeKind.BURST_END, WakeKind.COPY_H2D}
_SOURCE_RECALL = 0.2
_YOUNG = 0.97  # of the shortest usual lead
_GENERAL_BONUS = 0.01  # per condition spared: a general matcher survives more changes of the program

Rated = tuple[Matcher, Evaluation]


def rate(windows: Iterable[tuple[Matcher, LeadWindow]], last: Bursts, costs: Costs) -> list[Rated]:
    """Evaluate the windows that hold enough occurrences."""
    rated: list[Rated] = []
    for matcher, window in windows:
        if len(window) >= _minimum(matcher) and window.last_burst > last.newest - len(last.gaps_us):
            found = evaluate(window, last, costs)
            if found:
                rated.append((matcher, found))
    return rated


def select(rated: Sequence[Rated], costs: Costs) -> list[Rated]:
    """Return the best set of triggers, best first; empty when the first launch is best."""
    usable = [item for item in rated if objection(*item, costs) is None]
    usable.sort(key=lambda item: _gain(item, set(), costs), reverse=True)
    # Greedy sets from several starts: the best single trigger may leave gaps that none fills.
    sets = [_extend([start], usable, costs) for start in usable[:_STARTS] if _worth(start, set(), costs)]
    return max(sets, key=lambda chosen: total_gain(chosen, costs), default=[])


def _extend(chosen: list[Rated], usable: list[Rated], costs: Costs) -> list[Rated]:
    covered = set(chosen[0][1].covered)
    budget = costs.waste_budget - chosen[0][1].waste_share
    left = [item for item in usable if item is not chosen[0]]
    while left and len(chosen) < MOST:
        best = max(left, key=lambda item: _gain(item, covered, costs))
        if not _worth(best, covered, costs):
            break
        left.remove(best)
        if best[1].waste_share <= budget:
            chosen.append(best)
            covered |= best[1].covered
            budget -= best[1].waste_share
    return chosen


def source(rated: Sequence[Rated]) -> Trigger | None:
    """Return the wakes that queue requests: of those that announce an idle process's bursts, the most frequent."""
    rates = {matcher: found.samples * found.recall / found.announced for matcher, found in rated if found.announced}
    found = [
        (matcher, evaluation)
        for matcher, evaluation in rated
        if matcher.kind not in _NO_SOURCE
        and not _is_false(matcher, evaluation)
        and evaluation.announced >= MINIMUM
        and evaluation.recall >= _SOURCE_RECALL
        and evaluation.longest_us <= 2 * evaluation.shortest_us
    ]

    def rank(item: Rated) -> tuple[float, float]:
        matcher, evaluation = item
        return round(rates.get(replace(matcher, idle=False), rates[matcher]), 1), evaluation.shortest_us

    best = max(found, key=rank, default=None)
    return trigger(*best) if best else None


def total_gain(chosen: Sequence[Rated], costs: Costs) -> float:
    """Return the µs per burst that a set gains, each burst counted once."""
    covered: set[int] = set()
    total = 0.0
    for item in chosen:
        total += _gain(item, covered, costs)
        covered |= item[1].covered
    return total


def expected(chosen: Sequence[Rated]) -> tuple[float, float]:
    """Return what a set hides per burst (µs) and wastes (share of GPU time), each burst counted once."""
    covered: set[int] = set()
    hidden = waste = 0.0
    for _, found in chosen:
        hidden += found.hidden_us * _new_share(found, covered)
        waste += found.waste_share
        covered |= found.covered
    return hidden, waste


def objection(matcher: Matcher, found: Evaluation, costs: Costs) -> str | None:
    """Say why a candidate cannot be used on its own; None when it can."""
    if found.announced < _minimum(matcher):
        return f"too few: announced {found.announced} bursts of the {_minimum(matcher)} that it takes to be believed"
    if _is_false(matcher, found):
        return f"{found.false} of {found.samples} occurrences were followed by no burst in {found.limit_us:.0f} µs"
    if found.waste_share > costs.waste_budget:
        return f"leads too spread: would idle {found.waste_share:.1%} of the GPU, budget {costs.waste_budget:.1%}"
    if found.hidden_us <= 0.0:
        return f"lead too short: the mechanism needs {costs.need_us:.0f} µs, so that nothing is gained"
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
    return _MINIMUM_BURST_END if matcher.kind == WakeKind.BURST_END else MINIMUM


def _is_false(matcher: Matcher, found: Evaluation) -> bool:
    share = _FALSE_SHARES.get(matcher.kind, _FALSE_SHARE)
    return found.false > max(share * found.samples, 1.0 if found.samples >= _ONE_FORGIVEN else 0.0)


def _new_share(found: Evaluation, covered: set[int]) -> float:
    return len(found.covered - covered) / max(len(found.covered), 1)


def _worth(item: Rated, covered: set[int], costs: Costs) -> bool:
    return _gain(item, covered, costs) >= _LEAST_GAIN * costs.switch_us


def _gain(item: Rated, covered: set[int], costs: Costs) -> float:
    """µs per burst that a trigger adds to those chosen before."""
    matcher, found = item
    new = _new_share(found, covered)
    return score(found) * new - _GENERAL_BONUS * costs.switch_us * matcher.conditions * new
