"""How many GPUs of a model spot jobs may hold: pure functions, no clock and no state of their own.

Q(h) is what spot may hold with a guarantee of h hours: capacity less the upper quantile of HP demand over the next h
hours, times a feedback factor ``eta``. It counts the spot GPUs already running, so lowering it stops admissions and
evicts nobody.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from gpsched.tuner.cluster.model import HOUR_S


GUARANTEES_H = (1, 2, 4)
Hours = TypeVar("Hours", int, float)


@dataclass(frozen=True)
class QuotaSettings:
    """Bounds of the feedback.

    ``target`` is the accepted share of failed guarantee periods; inside ``[low, high]`` times the target eta rests.
    One step changes eta by at most ``step``; eta stays in ``[eta_min, eta_max]``. A head of queue older than
    ``patience_s`` asks for more.
    """

    target: float = 0.1
    low: float = 0.5
    high: float = 1.5
    step: float = 1.25
    eta_min: float = 0.25
    eta_max: float = 1.25
    patience_s: float = HOUR_S


def spot_quota(capacity: int, demand: Mapping[Hours, float], eta: float) -> dict[Hours, int]:
    """Q(h) in GPUs for each h of ``demand`` (h -> upper quantile of the maximum HP demand within h hours).

    Never below 0, never above the capacity, and never larger for a longer guarantee.
    """
    quota: dict[Hours, int] = {}
    ceiling = capacity
    for hours in sorted(demand):
        free = capacity - min(max(int(demand[hours]), 0), capacity)
        ceiling = min(ceiling, int(eta * free))
        quota[hours] = ceiling
    return quota


def adjust_eta(eta: float, failed: int, kept: int, oldest_wait_s: float, settings: QuotaSettings) -> float:
    """The next eta, from guarantee periods (or runs) failed and kept lately and the age of the spot queue's head.

    Too many failures lower it in proportion; few failures and an old head raise it; both by a bounded step.
    """
    rate = failed / (failed + kept) if failed + kept else 0.0
    if rate >= settings.high * settings.target:
        eta *= max(1.0 / settings.step, settings.target / rate)
    elif rate <= settings.low * settings.target and oldest_wait_s > settings.patience_s:
        eta *= min(settings.step, 1.5 - rate / settings.target)
    return min(settings.eta_max, max(settings.eta_min, eta))


def admits(quota: int, running: int, request: int) -> bool:
    """Whether spot may grow from ``running`` by ``request`` GPUs."""
    return running + request <= quota


def grant(quota: Mapping[int, int], guaranteed: int, request: int, expected_s: float) -> int:
    """The guarantee (hours) to give a job: the shortest that covers its expected run, else the longest with room; 0
    for none.

    ``guaranteed`` is GPUs of spot runs whose guarantee has not ended.
    """
    granted = 0
    for hours in sorted(quota):
        if not admits(quota[hours], guaranteed, request):
            break
        granted = hours
        if hours * HOUR_S >= expected_s:
            break
    return granted


def class_limits(
    quota: Mapping[Hours, int], held: Mapping[Hours, int], wanted: Mapping[Hours, int]
) -> dict[Hours, int]:
    """Split Q over one class of jobs per guarantee (h -> GPUs ``held`` now, GPUs ``wanted`` by waiting jobs).

    Longer guarantees are served first; what is left goes to the shortest. No limit is below what is held, and
    together the classes grow no further than each one's Q allows.
    """
    total = sum(held.get(hours, 0) for hours in quota)
    limits: dict[Hours, int] = {}
    for hours in sorted(quota, reverse=True):
        more = min(max(0, quota[hours] - total), wanted.get(hours, 0))
        limits[hours] = held.get(hours, 0) + more
        total += more
    shortest = min(quota)
    limits[shortest] += max(0, quota[shortest] - total)
    return limits
