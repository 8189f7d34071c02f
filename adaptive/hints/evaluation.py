"""What reserving on a trigger candidate would have hidden and wasted, at the best offset and limit for its leads."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import msgspec

from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.leads import NEVER, Bursts, LeadWindow, Occurrence, quantile, quantiles


PATIENCE = 0.2
WASTE_WEIGHT = 0.1  # µs of LC latency that one µs of idle GPU is worth
_GOOD = 0.99
_HALVINGS = 5
_SLOWEST = math.log(50.0)  # 1 % is slower than this many times the mean of the slower half
_LATE = 0.6  # what it is worth to hide something when that comes too late
_EASY = 0.85  # of the budget: what is spent for the slowest 1 % of the reservations, too
_SPENT = 0.95  # of the budget, where it is what limits: rates and leads of the next bursts are not quite the same


class Evaluation(msgspec.Struct, frozen=True):
    """What reserving on a candidate would have done in its window. µs; ``hidden_us``, ``waste_us`` per burst seen.

    ``offset_us``  from the trigger to the start of the reservation
    ``limit_us``   from the trigger until it is given up when no launch came
    ``margin_us``  least time before the launch that a reservation will begin, for the leads seen (1 % apart)
    ``shortest_us`` about P1 and ``longest_us`` P95 of the leads of first occurrences; ``announced`` bursts in all
    ``served``     µs hidden of each of the last ``LeadWindow.SIZE`` bursts, worth less the likelier it is late
    ``worth_us``   the sum of what is above 0 of these: what the candidate is worth alone
    ``in_time``    share of these that were reserved ``Costs.need_us`` (or all of a shorter lead) before the launch
    ``precision``  share of the occurrences that a burst followed within the limit; ``recall`` share of bursts announced
    """

    offset_us: float
    limit_us: float
    margin_us: float
    samples: int
    false: int
    precision: float
    recall: float
    in_time: float
    hidden_us: float
    waste_us: float
    waste_share: float
    served: dict[int, float]
    worth_us: float
    leads_us: dict[str, float]
    shortest_us: float
    longest_us: float
    announced: int


def evaluate(window: LeadWindow, last: Bursts, costs: Costs, patience: float = PATIENCE) -> Evaluation | None:
    """Find the best offset and limit for the window.

    ``patience``: how much longer than the longest lead seen a burst is waited for at least, as a share of that lead.
    The offset is the one that reserves the most bursts in time within the waste budget (or wastes least, where none
    keeps it). None when no burst followed the candidate.
    """
    oldest = last.newest - len(last.gaps_us)
    occurrences = [(lead, burst) for lead, burst in window.occurrences() if burst > oldest]
    ordered = sorted(lead for lead, _ in occurrences if lead < NEVER)
    if not ordered:
        return None
    best: Evaluation | None = None
    for percent in (100.0, 98.0, 90.0):
        found = _evaluate_limit(occurrences, ordered, _limit(ordered, percent, patience), last, costs)
        if best is None or _rank(found, costs) > _rank(best, costs):
            best = found
        if best.waste_share <= costs.waste_budget and best.in_time >= _GOOD:
            break  # no shorter limit does much better
    return best


def score(evaluation: Evaluation) -> float:
    """Return the µs per burst that the evaluation gains, less what its waste and its late reservations are worth."""
    return evaluation.hidden_us * evaluation.in_time - WASTE_WEIGHT * evaluation.waste_us


def _rank(evaluation: Evaluation, costs: Costs) -> tuple[bool, float]:
    return evaluation.waste_share <= costs.waste_budget, score(evaluation)


def _limit(ordered: Sequence[float], percent: float, patience: float) -> float:
    low, high = quantile(ordered, 5), quantile(ordered, percent)
    return high + max(0.5 * (high - low), patience * high, 50.0)  # a late burst costs less than a lost reservation


def _evaluate_limit(
    occurrences: Sequence[Occurrence], ordered: list[float], limit: float, last: Bursts, costs: Costs
) -> Evaluation:
    """``ordered``: the leads of the occurrences that a burst followed."""
    seen = last.newest - occurrences[0][1] + 1
    within = ordered[: bisect_right(ordered, limit)]
    false = len(occurrences) - len(within)
    earliest = _earliest(occurrences, limit)
    firsts = sorted(earliest.values())
    # Before the end of the last burst the GPU was not idle.
    idled = [(lead, last.gap_of(burst) - costs.need_us) for burst, lead in earliest.items()]
    waits = [(lead, most) for lead, most in idled if most > 0.0]

    def share(offset: float) -> float:
        free = max(offset, costs.wake_us) + costs.need_us
        idle = _idle(waits, free)
        idle += false * (max(limit - free, 0.0) + costs.switch_us)
        return idle / (seen * last.interval_us)

    low = _low_lead(firsts)
    # What one burst may idle is the same for all, so that triggers which announce a part of them each fit together.
    offset = _offset(share, low, quantile(firsts, 50), costs, costs.waste_budget * min(len(earliest) / seen, 1.0))
    wasted = share(offset)
    begin = max(offset, costs.wake_us)
    least = (costs.need_us if offset else min(costs.need_us, max(low - begin, 1.0))) - 1.0
    hidden = {burst: costs.hidden(lead - begin) for burst, lead in earliest.items()}
    in_time = {burst: lead for burst, lead in earliest.items() if lead - begin >= least}
    slowest_us = max(max(offset, costs.wake_most_us) - begin + costs.spread_us, 1.0)
    oldest = last.newest - LeadWindow.SIZE
    served = {
        burst: us * _worth((earliest[burst] - begin - costs.need_us) / slowest_us)
        for burst, us in hidden.items()
        if burst > oldest
    }
    return Evaluation(
        offset_us=offset,
        limit_us=limit,
        margin_us=quantile(firsts, 1) - begin,
        samples=len(occurrences),
        false=false,
        precision=1.0 - false / len(occurrences),
        recall=min(len(earliest) / seen, 1.0),
        in_time=len(in_time) / len(earliest),
        hidden_us=sum(hidden.values()) / seen,
        waste_us=wasted * last.interval_us,
        waste_share=wasted,
        served=served,
        worth_us=sum(us for us in served.values() if us > 0.0),
        leads_us=quantiles(within),
        shortest_us=_shortest(firsts),
        longest_us=quantile(firsts, 95),
        announced=len(earliest),
    )


def _worth(room: float) -> float:
    """What it is worth to hide something, by the time that is left for a reservation that begins late.

    ``room`` is 0 where a usual one is just in time, which half of them are, and 1 where the slowest 1 % are, too.
    """
    beyond = 0.5 * math.exp(-_SLOWEST * abs(room))
    return 1.0 - (1.0 - _LATE) * (beyond if room >= 0.0 else 1.0 - beyond)


def _earliest(occurrences: Iterable[Occurrence], limit: float) -> dict[int, float]:
    """One lead a burst: its first occurrence is the one that reserves."""
    earliest: dict[int, float] = {}
    for lead, burst in occurrences:
        if lead <= limit and lead > earliest.get(burst, -1.0):
            earliest[burst] = lead
    return earliest


def _idle(waits: Iterable[tuple[float, float]], reserved_us: float) -> float:
    """What reservations idle in all until the launches, µs: of each, its lead and at most how long it can idle."""
    idle = 0.0
    for lead, most in waits:
        wait = lead - reserved_us
        if wait > 0.0:
            idle += wait if wait < most else most
    return idle


def _shortest(firsts: Sequence[float]) -> float:
    """P1, but for a few wakes that only seem to be first: then near P10 or P25."""
    return max(quantile(firsts, 1), 0.93 * quantile(firsts, 10), 0.9 * quantile(firsts, 25))


def _low_lead(firsts: Sequence[float]) -> float:
    """The lead to be in time for: below the least one seen, by less the more were seen."""
    low, median = firsts[0], quantile(firsts, 50)
    return max(low - (median - low) * min(10.0 / len(firsts), 1.0) - 5.0, 0.0)


def _offset(share: Callable[[float], float], low: float, median: float, costs: Costs, budget: float) -> float:
    """Return the most careful offset whose ``share`` of idle time keeps the ``budget``: the later, the less idles.

    A careful one is in time for a lead of ``low`` even when the mechanism begins late, and by more where that leaves
    some of the budget; the least careful is, for half of the bursts. That it takes a while to be awake after an event
    is no reason for a smaller one.
    """
    offset = max(low - costs.early_us, 0.0)
    late = max(median - costs.need_us, 0.0)
    if offset >= late or share(offset) <= budget:
        return next((early for early in _earlier(offset, costs) if share(early) <= _EASY * budget), offset)
    for _ in range(_HALVINGS):
        middle = (offset + late) / 2
        if share(middle) <= _SPENT * budget:
            late = middle
        else:
            offset = middle
    return late


def _earlier(offset: float, costs: Costs) -> Iterable[float]:
    """Return offsets with which some of the slowest 1 % are in time, too: the most careful first."""
    return (max(offset - part * costs.spread_us, 0.0) for part in (1.0, 0.5))
