"""What an administrator could do, each with the figure that it follows from. Only what the windows show is said."""

import math
import statistics
from collections.abc import Iterator, Sequence

from gpsched.adaptive.units import format_duration
from gpsched.tuner.model import Point, Suggestion, Window
from gpsched.tuner.report.model import ServiceReport, TradeOff


_FLOORS = (0.1, 0.2, 0.3, 0.5)
_WORTH = 0.02  # of progress: less is not worth a word
_SLACK = math.log(1.5)  # latency this far under its limit is slack
_RELAX_MOST = math.log(2.0)  # an objective is not suggested to be relaxed beyond twice
_OFTEN = 0.05  # share of windows missed that asks for something else than tuning
_RECENT = 200  # windows that describe the present
_LEAST = 5  # windows before anything is said


def suggestions(
    gpu: int, windows: Sequence[Window], services: Sequence[ServiceReport], trade_off: TradeOff | None
) -> list[Suggestion]:
    """Return them, most useful first."""
    recent = list(windows)[-_RECENT:]
    if len(recent) < _LEAST:
        return []
    present = [service for service in services if any(service.name == lc.name for lc in recent[-1].lc)]
    return [
        *_out_of_reach(gpu, present),
        *_relax(gpu, present, trade_off),
        *_tighten(gpu, present, recent),
        *_floors(gpu, present, recent),
        *_untriggered(gpu, present),
    ]


def _out_of_reach(gpu: int, services: Sequence[ServiceReport]) -> Iterator[Suggestion]:
    for service in services:
        judged, limit = service.kept + service.missed, service.objective.limit_us
        if judged >= _LEAST and limit and service.missed > _OFTEN * judged:
            alone = service.alone_us is not None and service.alone_us > limit
            why = (
                f"alone it takes {format_duration(service.alone_us or 0.0)} already"
                if alone
                else f"its {service.objective.statistic} was {format_duration(service.value_us)} in the median window"
            )
            yield Suggestion(
                gpu=gpu,
                text=f"{service.name} missed its objective of {format_duration(limit)} in "
                f"{service.missed / judged:.0%} of the windows; {why}: relax it, or send it fewer requests",
                latency_us=service.value_us - limit,
            )


def _relax(gpu: int, services: Sequence[ServiceReport], trade_off: TradeOff | None) -> Iterator[Suggestion]:
    """What the objectives cost best-effort work, by the settings that were tried."""
    if trade_off is None:
        return
    best = _best(trade_off.points, 0.0)
    wider = _best(trade_off.points, -_RELAX_MOST)
    if best is None or wider is None or wider.progress - best.progress < _WORTH:
        return
    factor, gained = math.exp(-wider.margin), wider.progress - best.progress
    limited = [service for service in services if service.objective.limit_us]
    if len(limited) == 1:
        limit = limited[0].objective.limit_us or 0.0
        text = (
            f"an objective of {format_duration(limit * factor)} in place of {format_duration(limit)} for "
            f"{limited[0].name} would give best-effort work {gained * 100:.0f} points more progress"
        )
        yield Suggestion(gpu=gpu, text=text, progress=gained, latency_us=limit * (factor - 1))
    elif limited:
        text = f"objectives {factor - 1:.0%} wider would give best-effort work {gained * 100:.0f} points more progress"
        yield Suggestion(gpu=gpu, text=text, progress=gained)


def _best(points: Sequence[Point], margin: float) -> Point | None:
    return max((p for p in points if p.margin >= margin), key=lambda point: point.progress, default=None)


def _tighten(gpu: int, services: Sequence[ServiceReport], recent: Sequence[Window]) -> Iterator[Suggestion]:
    for service in services:
        own = [lc.value_us for window in recent for lc in window.lc if lc.name == service.name and lc.bursts]
        limit = service.objective.limit_us
        if service.objective.kind != "slo" or not limit or len(own) < _LEAST or service.missed:
            continue
        if math.log(limit / max(max(own), 1e-9)) > _SLACK:
            text = (
                f"{service.name} stayed under {format_duration(max(own))} in the last {len(own)} windows: its "
                f"objective of {format_duration(limit)} could be as narrow as that, at no cost"
            )
            yield Suggestion(gpu=gpu, text=text, progress=0.0, latency_us=max(own) - limit)


def _floors(gpu: int, services: Sequence[ServiceReport], recent: Sequence[Window]) -> Iterator[Suggestion]:
    """A floor costs latency once reservations would need more than what it leaves them.

    Bursts without a reservation then wait as long as a reservation hides: that share of them times what is hidden.
    """
    reserved = statistics.fmean(
        sum(lc.busy_share + lc.wasted_us / (window.length_s * 1e6) for lc in window.lc) for window in recent
    )
    hiding = [service for service in services if service.reservations and service.hidden_us > 0]
    if not hiding:
        return
    costly = [floor for floor in _FLOORS if reserved > 1.0 - floor]
    if not costly:
        text = (
            f"a floor (reservations.be_floor) of up to {_FLOORS[-1]:.0%} would cost nobody anything: services and "
            f"their reservations take {reserved:.0%} of the GPU"
        )
        yield Suggestion(gpu=gpu, text=text, latency_us=0.0)
        return
    floor = costly[0]
    uncovered = 1.0 - (1.0 - floor) / reserved
    for service in hiding:
        cost = uncovered * service.hidden_us / service.reservations
        text = (
            f"a floor (reservations.be_floor) of {floor:.0%} would cost {service.name} {format_duration(cost)} on "
            f"average: services and their reservations ask for {reserved:.0%} of the GPU"
        )
        yield Suggestion(gpu=gpu, text=text, progress=floor, latency_us=cost)


def _untriggered(gpu: int, services: Sequence[ServiceReport]) -> Iterator[Suggestion]:
    for service in services:
        if service.windows >= _LEAST and not service.triggers and not service.reservations:
            text = (
                f"nothing announces the bursts of {service.name} early enough: see gpsched explain, or announce them "
                "with gpsched_hint.h"
            )
            yield Suggestion(gpu=gpu, text=text)
