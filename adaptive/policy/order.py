"""Several latency-critical processes on one GPU: who goes before whom, and by which means.

Two means, both of the stock driver. *Slices*: whoever is first keeps the GPU to the end of its burst, and takes it from
the others within their slice. *Reservations*: one of a burst that goes first also keeps those off that come after it,
where their bursts are longer than the control takes; so the order of deadlines is that of the arrivals, which no
slice can express. With ``share`` nobody goes first, and the slices are in proportion to the weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpsched.adaptive.config import Order, Policy


_NEVER_US = float("inf")
_MIN_SLICE_US = 200  # a change of context costs about as much
_OWN_US = 2_000  # the driver's slice, about
_LEAST_EQUAL_US, _MOST_EQUAL_US = 10_000, 50_000  # slices of equals: what one that never rests takes from the others


@dataclass(frozen=True, slots=True)
class Contender:
    """A latency-critical process: objective, how long its bursts are (0: not known), priority (higher is first)."""

    pid: int
    slo_us: float | None = None
    burst_us: float = 0.0
    priority: int = 0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What its place in the order means for one process.

    ``slice_us``: None for its own. ``rank``, ``due_us`` and ``keeps_off`` are for its reservations: of two bursts the
    higher rank goes first, then the one whose trigger plus ``due_us`` (0: never due) is earlier.
    """

    slice_us: int | None
    reason: str
    rank: int = 0
    due_us: int = 0
    keeps_off: bool = False


@dataclass(frozen=True, slots=True)
class Means:
    """The slice of who is first; the slice that gives way at once; how long keeping somebody off takes, µs."""

    first_us: int
    gives_way_us: int
    control_us: float


def standings(
    contenders: Sequence[Contender], settings: Policy, means: Means, *, best_effort: bool
) -> Mapping[int, Standing]:
    """Return the standing of each of at least two processes on a GPU; ``best_effort``: whether such work is there."""
    if settings.order == "share":
        return _shares(contenders, settings.period_us)
    key = _KEYS[settings.order]
    first = min(map(key, contenders))
    leaders = [each for each in contenders if key(each) == first]
    if len(leaders) == len(contenders):
        return _equals(contenders, settings.order, best_effort=best_effort)
    # Two at the shortest slices would starve each other; one of them alone loses nothing by it.
    alone_behind = len(contenders) == 2 and not best_effort
    behind_us = means.gives_way_us if alone_behind else settings.behind_us
    first_us = means.first_us if len(leaders) == 1 else _equal_slice(leaders) if best_effort else None
    slices = {each.pid: first_us if each in leaders else behind_us for each in contenders}
    # Who gives way at once, and whose bursts are shorter than a control takes, need not be kept off.
    in_the_way = [
        each for each in contenders if slices[each.pid] != means.gives_way_us and each.burst_us > means.control_us
    ]
    ranks = _ranks(contenders, settings.order)
    return {
        each.pid: Standing(
            slices[each.pid],
            _reason(each, contenders, settings.order),
            ranks[each.pid],
            _due(each, settings.order),
            _may_precede(each, in_the_way, settings.order),
        )
        for each in contenders
    }


def _by_deadline(contender: Contender) -> float:
    return _NEVER_US if contender.slo_us is None else contender.slo_us


def _by_laxity(contender: Contender) -> float:
    return _by_deadline(contender) - contender.burst_us


def _by_priority(contender: Contender) -> float:
    return -contender.priority


_KEYS: dict[Order, Callable[[Contender], float]] = {
    "deadline": _by_deadline,
    "laxity": _by_laxity,
    "priority": _by_priority,
}
_NAMES: dict[Order, str] = {"deadline": "objective", "laxity": "laxity", "priority": "priority"}


def _equals(contenders: Sequence[Contender], order: Order, *, best_effort: bool) -> Mapping[int, Standing]:
    """Who has the GPU keeps it to the end of its burst: of equal deadlines the earlier arrival goes first."""
    who = f"{len(contenders)} latency-critical processes, none before another ({order})"
    in_order = order != "priority" and contenders[0].slo_us is not None and _longest_us(contenders) > _OWN_US
    if not best_effort and not in_order:
        return {each.pid: Standing(None, f"{who}: own slice") for each in contenders}
    slice_us = _equal_slice(contenders)
    between = "no best-effort work comes between" if best_effort else "who came first ends first"
    reason = f"{who}: {slice_us // 1000} ms each, so that {between}"
    return {each.pid: Standing(slice_us, reason) for each in contenders}


def _equal_slice(equals: Sequence[Contender]) -> int:
    """Long enough for their bursts, since best-effort work has its turn after each slice; not for ever.

    One that never rests would keep the others waiting.
    """
    slice_us = _LEAST_EQUAL_US
    while slice_us < min(1.5 * _longest_us(equals), _MOST_EQUAL_US):
        slice_us *= 2
    return min(slice_us, _MOST_EQUAL_US)


def _longest_us(contenders: Sequence[Contender]) -> float:
    return max(each.burst_us for each in contenders)


def _ranks(contenders: Sequence[Contender], order: Order) -> dict[int, int]:
    """Priorities are compared as they are; deadlines by their times, and whoever has none comes last."""
    if order != "priority":
        return {each.pid: int(each.slo_us is not None) for each in contenders}
    levels = sorted({each.priority for each in contenders})
    return {each.pid: levels.index(each.priority) for each in contenders}


def _due(contender: Contender, order: Order) -> int:
    if order == "priority" or contender.slo_us is None:
        return 0
    return max(1, round(_KEYS[order](contender)))


def _may_precede(contender: Contender, others: Sequence[Contender], order: Order) -> bool:
    """Whether one of the others may come after it: with deadlines the arrivals decide, whatever the objectives."""
    key = _KEYS[order]
    if order == "priority":
        return any(key(other) > key(contender) for other in others)
    return contender.slo_us is not None and any(key(other) != key(contender) for other in others)


def _reason(contender: Contender, all_of_them: Sequence[Contender], order: Order) -> str:
    key = _KEYS[order]
    before = sum(key(each) < key(contender) for each in all_of_them)
    after = sum(key(each) > key(contender) for each in all_of_them)
    places = [f"{count} {where} it" for count, where in ((before, "before"), (after, "after")) if count]
    return f"{len(all_of_them)} latency-critical by {_NAMES[order]}: {', '.join(places)}"


def _shares(contenders: Sequence[Contender], period_us: int) -> Mapping[int, Standing]:
    total = sum(each.weight for each in contenders)
    return {
        each.pid: Standing(
            max(_MIN_SLICE_US, round(period_us * each.weight / total)),
            f"{len(contenders)} latency-critical by weight: {each.weight / total:.0%} of what they use",
        )
        for each in contenders
    }
