"""What settings should do, from what controls and switches cost on this GPU. Pure.

The search starts from this and learns only what differs from it, so that hardly any setting has to be tried that this
already rules out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.knobs import Settings
from gpsched.tuner.space import BE_SLICE, LC_SLICE, LEVEL, QUIET, SHARE, SHIFT, TURN


_TURN_COST_US = 500.0  # to disable one process' channels and enable another's
_LEAST = 0.02  # no setting leaves less: what is near nothing has no meaningful ratios
_OWN_SLICE_US = 2048.0


@dataclass(frozen=True)
class Demand:
    """What is known of the service that is hardest to serve: bursts per second, their latency and length alone, µs.

    ``bunch``: bursts that come together, on average; each pays for the time between bunches with the others.
    ``crowd``: how many bursts' time the one that the objective is about takes, with those before it.
    """

    rate_hz: float
    alone_us: float
    busy_share: float
    limit_us: float
    jobs: int
    bunch: float = 1.0
    crowd: float = 1.0


def added_us(settings: Settings, jobs: int, costs: Mapping[str, Costs] = LEVELS) -> float:
    """Return what a burst waits beyond its latency alone."""
    level = str(settings[LEVEL])
    cost = costs.get(level, costs["timeslice"])
    wait = float(settings[BE_SLICE])
    if level in ("timeslice", "auto"):
        return costs["timeslice"].switch_us + wait
    shift = max(0.0, float(settings[SHIFT]))
    late = min(shift / max(cost.need_us, 1.0), 1.0)
    # A hold kernel waits for the slice of whoever computes; a disabled process loses its own, but some bursts come
    # unannounced, and the tail is made of those.
    exposed = max(0.0, wait - cost.need_us / 2) if level == "hold" else 0.2 * wait
    return cost.residual_us + late * cost.late_us + exposed + (0.0 if jobs < 2 else 0.02 * cost.switch_us)


def margin(settings: Settings, demand: Demand, costs: Mapping[str, Costs] = LEVELS) -> float:
    """Return ln(limit / latency)."""
    added = demand.crowd * added_us(settings, demand.jobs, costs)  # who waits for others waits for what delays them
    latency = demand.alone_us + float(settings[SHARE]) * added
    return math.log(max(demand.limit_us, 1.0) / max(latency, 1.0))


def progress(settings: Settings, demand: Demand, costs: Mapping[str, Costs] = LEVELS) -> float:
    """Return the share of its own speed that best-effort work reaches."""
    lost = demand.busy_share + demand.rate_hz * _burst_cost_us(settings, demand, costs) / 1e6
    left = max(1.0 - lost, _LEAST)
    if demand.busy_share > 0.0:  # within long bursts the job gets turns when the service's slice ends
        slice_us = float(settings[LC_SLICE])
        burst_us = 1e6 * demand.busy_share / max(demand.rate_hz, 1e-3)
        if slice_us < burst_us:
            be = float(settings[BE_SLICE])
            left += demand.busy_share * be / (be + slice_us + 2 * costs["timeslice"].switch_us)
    if demand.jobs > 1:
        left *= max(1.0 - _TURN_COST_US / float(settings[TURN]), _LEAST)
    return max(left * float(settings[SHARE]), _LEAST)


def _burst_cost_us(settings: Settings, demand: Demand, costs: Mapping[str, Costs]) -> float:
    """GPU time that a burst takes from best-effort work, besides its own."""
    level = str(settings[LEVEL])
    switch = costs["timeslice"].switch_us
    if level in ("timeslice", "auto"):
        return switch
    cost = costs.get(level, costs["timeslice"])
    early = max(0.0, cost.need_us / 2 - float(settings[SHIFT]))
    quiet = float(settings[QUIET]) if level == "reserve" else 0.0  # a hold keeps nobody off once its burst is over
    gap = 1e6 / max(demand.rate_hz, 1e-3)
    kept = gap * (1.0 - math.exp(-quiet / (gap * demand.bunch)))  # the shorter of the two, where gaps are random
    saved = 2 * switch * (1.0 - math.exp(-quiet / gap))  # by a burst that follows
    return switch + min(early, cost.need_us) * 0.5 + kept - saved
