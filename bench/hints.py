"""How well a daemon foresaw the bursts of the services during an arm, from what it counts itself."""

from collections.abc import Sequence

from gpsched.adaptive.hints.model import HintsReport
from gpsched.adaptive.histogram import above
from gpsched.adaptive.model import HintsView, Histogram
from gpsched.bench.arms import Stage
from gpsched.bench.outcome import Block, Hints, Reserved


#: A reservation that begins so long before the first launch is early enough (GPU time): a switch takes 190 µs.
EARLY_US = 200.0


def counted(stage: Stage) -> dict[int, HintsView]:
    """What the daemon counted for each service, by the service's index."""
    if stage.client is None:
        return {}
    index = {service.pid: place for place, service in enumerate(stage.fleet.services)}
    views = stage.client.snapshot().processes
    return {index[view.pid]: view.hints for view in views if view.pid in index and view.hints is not None}


def added(known: Reserved | None, before: HintsView | None, now: HintsView, scale: float) -> Reserved:
    """Add what the daemon counted, by the real clock, since ``before``."""
    known = known or Reserved(reservations=0, hidden_us=0.0, wasted_us=0.0)
    before = before or HintsView(state="")
    return Reserved(
        reservations=known.reservations + now.reservations - before.reservations,
        hidden_us=known.hidden_us + (now.hidden_us - before.hidden_us) / scale,
        wasted_us=known.wasted_us + (now.wasted_us - before.wasted_us) / scale,
        bursts=known.bursts + _judged(now.margin, now.unreserved) - _judged(before.margin, before.unreserved),
        early=known.early + _early(now.margin, scale) - _early(before.margin, scale),
        allowed=known.allowed
        + _judged(now.allowed, now.allowed_unreserved)
        - _judged(before.allowed, before.allowed_unreserved),
        allowed_early=known.allowed_early + _early(now.allowed, scale) - _early(before.allowed, scale),
        in_vain=known.in_vain + now.in_vain - before.in_vain,
    )


def _judged(margin: Histogram | None, unreserved: int) -> int:
    return unreserved + (sum(margin.counts) if margin else 0)


def _early(margin: Histogram | None, scale: float) -> float:
    return above(margin, EARLY_US * scale) if margin else 0.0


def quality(report: HintsReport, last: HintsView, reserved: Reserved, blocks: Sequence[Block], scale: float) -> Hints:
    """Summarise what was learned in the end (``report``, ``last``), and what the reservations did in all blocks."""
    first = report.choice.triggers[0] if report.choice.triggers else None
    leads = first.lead_us if first else {}
    block_us = sum(block.real_s for block in blocks) / scale * 1e6
    tried = reserved.reservations > 0  # else nobody tried, and the shares would be 0 of all
    return Hints(
        trigger=str(first.matcher) if first else None,
        lead_us={name: leads[name] / scale for name in ("p1", "p50", "p99") if name in leads},
        learned_after=report.learned_after,
        early_share=reserved.early / reserved.bursts if tried and reserved.bursts else None,
        in_vain_share=reserved.in_vain / reserved.reservations if tried else None,
        wasted_share=reserved.wasted_us / block_us if tried and block_us else None,
        allowed_share=reserved.allowed / reserved.bursts if tried and reserved.bursts else None,
        allowed_early_share=reserved.allowed_early / reserved.allowed if tried and reserved.allowed else None,
        reacted_us=last.reacted_us,
    )
