"""The recent leads of one trigger candidate, and what a plan on them would have hidden and wasted."""

from collections import deque
from typing import ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from gpsched.adaptive.hints.costs import Costs, Floats


NEVER = float("inf")  # no burst followed within the horizon
PATIENCE = 0.2
PERCENTILES = (1, 5, 25, 50, 75, 95, 99)


class Evaluation(msgspec.Struct, frozen=True):
    """What reserving on a candidate would have done in its window. µs; ``hidden_us``, ``waste_us`` per burst seen.

    ``offset_us``  from the trigger to the start of the reservation
    ``limit_us``   from the trigger until it is given up when no launch came
    ``margin_us``  least time before the launch that a reservation will begin, for the leads seen (1 % apart)
    ``shortest_us`` about P1 and ``longest_us`` P95 of the leads of first occurrences; ``announced`` bursts in all
    ``served``     µs hidden of each burst among the last ``LeadWindow.SIZE``; half where it was not in time
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
    leads_us: dict[str, float]
    shortest_us: float
    longest_us: float
    announced: int


class LeadWindow:
    """The last ``SIZE`` occurrences: each with its lead in µs (NEVER: none followed) and the number of its burst."""

    SIZE = 128
    _RECENT = 12  # occurrences that must agree before older ones are forgotten

    __slots__ = ("_bursts", "_leads", "last_burst")

    def __init__(self) -> None:
        self._leads: deque[float] = deque(maxlen=self.SIZE)
        self._bursts: deque[int] = deque(maxlen=self.SIZE)
        self.last_burst = 0

    def __len__(self) -> int:
        return len(self._leads)

    def add(self, lead_us: float, burst: int) -> None:
        """Record one occurrence."""
        self._leads.append(lead_us)
        self._bursts.append(burst)
        self.last_burst = burst

    def fingerprint(self) -> int:
        """Windows with equal leads have equal fingerprints."""
        return hash(tuple(self._leads))

    def truncate(self, keep: int) -> None:
        """Forget all but the last ``keep`` occurrences."""
        while len(self._leads) > keep:
            self._leads.popleft()
            self._bursts.popleft()

    def arrays(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return leads and burst numbers, oldest first."""
        return np.fromiter(self._leads, float), np.fromiter(self._bursts, np.int64)

    def follow_drift(self) -> bool:
        """Forget older occurrences when the recent leads lie outside of all that was usual; True when it did."""
        leads, _ = self.arrays()
        if len(leads) < 4 * self._RECENT:
            return False
        recent, before = leads[-self._RECENT :], leads[: -self._RECENT]
        before = before[np.isfinite(before)]
        if len(before) < self._RECENT:
            return False
        before.sort()
        if quantile(before, 5) <= quantile(np.sort(recent), 50) <= quantile(before, 95):
            return False
        self.truncate(self._RECENT)
        return True


def quantile(ordered: Floats, percent: float) -> float:
    """Return a percentile of sorted values, linear between neighbours; twenty times faster than numpy's."""
    place = (len(ordered) - 1) * percent / 100.0
    below = int(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low if place == below or low == high else low + (high - low) * (place - below)


def quantiles(ordered: Floats) -> dict[str, float]:
    """Return P1 to P99 of sorted leads in µs; empty when there are none."""
    return {f"p{percent}": round(quantile(ordered, percent), 1) for percent in PERCENTILES} if len(ordered) else {}


class Bursts(msgspec.Struct, frozen=True):
    """What is known of the last ``Bursts.HISTORY`` bursts.

    ``newest`` is the number of the last; ``gaps_us`` the time since the end of the burst before, of each, oldest first;
    ``interval_us`` the mean time between bursts.
    """

    HISTORY: ClassVar[int] = 1024

    newest: int
    gaps_us: Floats
    interval_us: float

    def gaps_of(self, numbers: npt.NDArray[np.int64]) -> Floats:
        """Return the gaps before the bursts with these numbers."""
        return self.gaps_us[numbers - self.newest - 1]


def evaluate(window: LeadWindow, last: Bursts, costs: Costs, patience: float = PATIENCE) -> Evaluation | None:
    """Find the best offset and limit for the window.

    ``patience``: how much longer than the longest lead seen a burst is waited for at least, as a share of that lead.
    The offset is the one that reserves the most bursts in time within the waste budget (or wastes least, where none
    keeps it). None when no burst followed the candidate.
    """
    leads, bursts = window.arrays()
    recent = bursts > last.newest - len(last.gaps_us)
    leads, bursts = leads[recent], bursts[recent]
    if not np.isfinite(leads).any():
        return None
    seen = last.newest - int(bursts[0]) + 1
    ordered = np.sort(leads[np.isfinite(leads)])
    best: Evaluation | None = None
    for percent in (100.0, 98.0, 90.0):
        found = _evaluate_limit(leads, bursts, _limit(ordered, percent, patience), seen, last, costs)
        if best is None or _rank(found, costs) > _rank(best, costs):
            best = found
        if best.waste_share <= costs.waste_budget and best.in_time >= _GOOD:
            break  # no shorter limit does much better
    return best


WASTE_WEIGHT = 0.1  # µs of LC latency that one µs of idle GPU is worth
_GOOD = 0.99


def score(evaluation: Evaluation) -> float:
    """Return the µs per burst that the evaluation gains, less what its waste and its late reservations are worth."""
    return evaluation.hidden_us * evaluation.in_time - WASTE_WEIGHT * evaluation.waste_us


def _rank(evaluation: Evaluation, costs: Costs) -> tuple[bool, float]:
    return evaluation.waste_share <= costs.waste_budget, score(evaluation)


def _limit(ordered: Floats, percent: float, patience: float) -> float:
    low, high = quantile(ordered, 5), quantile(ordered, percent)
    return high + max(0.5 * (high - low), patience * high, 50.0)  # a late burst costs less than a lost reservation


def _evaluate_limit(
    leads: Floats, bursts: npt.NDArray[np.int64], limit: float, seen: int, last: Bursts, costs: Costs
) -> Evaluation:
    within = leads <= limit
    numbers, effective = _earliest(leads[within], bursts[within])
    false = int(len(leads) - within.sum())
    gaps = last.gaps_of(numbers)
    firsts = np.sort(effective)
    for low in _low_leads(firsts):
        offset = max(0.0, low - costs.need_us)
        margin = effective - offset
        # Before the end of the last burst the GPU was not idle.
        idle = np.maximum(np.minimum(margin, gaps) - costs.need_us, 0.0).sum()
        idle += false * (max(limit - offset - costs.need_us, 0.0) + costs.switch_us)
        share = float(idle) / (seen * last.interval_us)
        if share <= costs.waste_budget:
            break
    in_time = margin >= min(costs.need_us, max(low, 1.0)) - 1.0
    hidden = costs.hidden(margin)
    worth = hidden * np.where(in_time, 1.0, 0.5)
    recent = numbers > last.newest - LeadWindow.SIZE
    return Evaluation(
        offset_us=offset,
        limit_us=limit,
        margin_us=quantile(firsts, 1) - offset,
        samples=len(leads),
        false=false,
        precision=1.0 - false / len(leads),
        recall=min(len(numbers) / seen, 1.0),
        in_time=float(in_time.mean()),
        hidden_us=float(hidden.sum()) / seen,
        waste_us=float(idle) / seen,
        waste_share=share,
        served=dict(zip(numbers[recent].tolist(), worth[recent].tolist(), strict=True)),
        leads_us=quantiles(np.sort(leads[within])),
        shortest_us=_shortest(firsts),
        longest_us=quantile(firsts, 95),
        announced=len(numbers),
    )


def _earliest(leads: Floats, bursts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Floats]:
    """One lead a burst: its first occurrence is the one that reserves."""
    starts = np.flatnonzero(np.diff(bursts, prepend=bursts[0] - 1))
    return bursts[starts], np.maximum.reduceat(leads, starts)


def _shortest(firsts: Floats) -> float:
    """P1, but for a few wakes that only seem to be first: then near P10 or P25."""
    return max(quantile(firsts, 1), 0.93 * quantile(firsts, 10), 0.9 * quantile(firsts, 25))


def _low_leads(firsts: Floats) -> list[float]:
    """Leads to be in time for, the most careful first: below the least one seen, by less the more were seen."""
    low, median = float(firsts[0]), quantile(firsts, 50)
    careful = low - (median - low) * min(10.0 / len(firsts), 1.0) - 5.0
    return [max(careful, 0.0), low, *(quantile(firsts, percent) for percent in (1, 2, 5, 10, 25, 50))]
