"""What must hold and what is wanted: margins of objectives, fairness, progress of best-effort work. Pure."""

import math
from collections.abc import Mapping, Sequence

from gpsched.tuner.model import BeWindow, LcWindow, Objective, Verdict


OVER_ALONE = 1.05
LEAST_BURSTS = 20
_CLIP = (-2.0, 1.5)  # beyond these more is no different


def objective(slo_us: float | None, alone_us: float | None) -> Objective:
    """An explicit limit holds at p99; without one the mean may be 5 % over what it is without contention."""
    if slo_us is not None:
        return Objective(kind="slo", statistic="p99", limit_us=slo_us)
    return Objective(kind="alone", statistic="mean", limit_us=alone_us * OVER_ALONE if alone_us else None)


def lc_margin(lc: LcWindow) -> float | None:
    """ln(limit / value); None when there were too few bursts or there is no limit yet."""
    if lc.objective.limit_us is None or lc.bursts < LEAST_BURSTS or lc.value_us <= 0.0:
        return None
    return clipped(math.log(lc.objective.limit_us / lc.value_us))


def lc_verdict(lc: LcWindow) -> Verdict:
    """Whether the objective was kept in this window."""
    found = lc_margin(lc)
    if found is None:
        return "unknown"
    return "kept" if found >= 0.0 else "missed"


def sampling_error(lc: LcWindow, dispersion: float) -> float:
    """Standard deviation of ln of a window's p99 that so few bursts must have; 0 where nothing can be said.

    The tail is taken to fall off exponentially from p90. ``dispersion``: variance of the number of bursts over its
    mean; those that come in bunches fare alike, and count as one.
    """
    if lc.objective.statistic != "p99" or lc.bursts < LEAST_BURSTS or not 0.0 < lc.p90_us < lc.p99_us:
        return 0.0
    scale_us = (lc.p99_us - lc.p90_us) / math.log(10)
    return scale_us / lc.p99_us * math.sqrt(99.0 * max(dispersion, 1.0) / lc.bursts)


def margin(lc: Sequence[LcWindow], be: Sequence[BeWindow], floors: Mapping[str, float]) -> float | None:
    """The least margin of all objectives and floors; None when an objective with bursts could not be judged.

    A service without any bursts asks for nothing. ``floors``: see ``floor_margin``.
    """
    busy = [each for each in lc if each.bursts]
    found = [lc_margin(each) for each in busy]
    if not busy or any(each is None for each in found):
        return None
    return min([each for each in found if each is not None] + [floor_margin(be, floors)])


def crowd(lc: Sequence[LcWindow]) -> float:
    """How requests crowded of the service with the least margin; 1 where none can be told, or its mean matters."""
    known = [(found, each.crowd, each.objective.statistic) for each in lc if (found := lc_margin(each)) is not None]
    _, tightest, statistic = min(known, default=(0.0, 1.0, "mean"))
    return tightest if statistic == "p99" else 1.0


def floor_margin(be: Sequence[BeWindow], floors: Mapping[str, float]) -> float:
    """ln of progress over what each tenant's work must keep, the least of all; never a reason to do better than well.

    ``floors``: share of the GPU that each tenant's work keeps together, ``""`` for whom none is named.
    """
    margins = [_CLIP[1]]
    for each in be:
        same = sum(other.tenant == each.tenant for other in be)
        share = floors.get(each.tenant, floors.get("", 0.0)) / (same if each.tenant in floors else len(be))
        if share > 0.0 and each.progress is not None:
            margins.append(math.log(max(each.progress, 1e-3) / share))
    return clipped(min(margins))


def progress(be: Sequence[BeWindow]) -> float | None:
    """Weighted mean of what was reached of each one's own speed; None when none is known."""
    known = [each for each in be if each.progress is not None]
    weight = sum(each.weight for each in known)
    if not known or weight <= 0.0:
        return None
    return sum(each.weight * (each.progress or 0.0) for each in known) / weight


def verdict(lc: Sequence[LcWindow]) -> Verdict:
    """``missed`` when one was, ``kept`` when all that were busy were."""
    found = [each.verdict for each in lc if each.bursts]
    if "missed" in found:
        return "missed"
    return "kept" if found and all(each == "kept" for each in found) else "unknown"


def clipped(value: float) -> float:
    """Keep a margin within what makes a difference."""
    return min(max(value, _CLIP[0]), _CLIP[1])
