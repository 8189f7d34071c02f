"""What the snapshot shows of bursts and reservations: histograms, sums, and a timeline of the last seconds."""

import math
import time
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

from gpsched.adaptive.actuator.records import Record
from gpsched.adaptive.foresight import Foresight
from gpsched.adaptive.hints.bursts import Burst
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.histogram import DurationHistogram
from gpsched.adaptive.model import HintsView, Span
from gpsched.adaptive.occupancy import KEPT_US, Occupancy


_MERGED_US = 30_000.0  # less than a character of a timeline of 10 s: spans that are nearer are shown as one
_MAX_SPANS = 200
_RECENT = 1000


class Telemetry:
    """Fed by the daemon's loop with what learners and actuator report. Times are µs of CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._processes: dict[int, _Figures] = defaultdict(_Figures)
        self._active: set[int] = set()
        self.occupancy = Occupancy()

    def began(self, pid: int, launch_us: float, allowed: bool = False) -> None:
        """The first launch of a burst; ``allowed``: whether its lead was long enough to reserve in time."""
        self._active.add(pid)
        self._processes[pid].foresight.began(launch_us, allowed)

    def active(self) -> frozenset[int]:
        """Return the processes in a burst now."""
        return frozenset(self._active)

    def burst(self, pid: int, burst: Burst) -> None:
        """A burst ended. One that was cut short by lost events has no duration."""
        self._active.discard(pid)
        if burst.closed_by != "reset":
            figures = self._processes[pid]
            figures.bursts += 1
            figures.latency.observe(burst.end_us - burst.start_us)
            figures.recent.append(burst.end_us - burst.start_us)
            figures.put("burst", burst.start_us, burst.end_us)
            self.occupancy.burst(pid, burst.start_us, burst.end_us)

    def reservation(self, record: Record, reacted_us: float | None = None) -> None:
        """A reservation ended. ``reacted_us``: from when it was due to its first control; None where nobody knows."""
        figures = self._processes[record.pid]
        figures.reservations += 1
        figures.foresight.reservation(record, reacted_us)
        figures.wasted_us += record.waste_us
        if record.hidden_us is not None:
            figures.hidden_us += record.hidden_us
            figures.hidden.observe(record.hidden_us)
        if record.begin_ns and record.end_ns:
            figures.put("reservation", record.begin_ns / 1000, record.end_ns / 1000)
            self.occupancy.reserved(record.pid, record.begin_ns / 1000, record.end_ns / 1000)

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._processes.pop(pid, None)
        self.occupancy.forget(pid)
        self._active.discard(pid)

    def fields(self, pid: int, choice: Choice | None) -> dict[str, Any]:
        """The optional fields of the process' view; empty while nothing is known."""
        figures = self._processes.get(pid)
        fields: dict[str, Any] = {}
        if figures is not None:
            fields["spans"] = figures.spans(time.monotonic() * 1e6, time.time() - time.monotonic())
            if figures.bursts:
                fields |= {"latency": figures.latency.view(), "recent_us": _percentiles(figures.recent)}
            fields |= {"hidden": figures.hidden.view()} if figures.reservations else {}
        if choice is not None:
            fields["hints"] = _hints(choice, figures or _Figures())
        return fields


class _Figures:
    def __init__(self) -> None:
        self.latency, self.hidden = DurationHistogram(), DurationHistogram()
        self.foresight = Foresight()
        self.recent: deque[float] = deque(maxlen=_RECENT)
        self.bursts = self.reservations = 0
        self.hidden_us = self.wasted_us = 0.0
        self._spans: dict[str, list[tuple[float, float]]] = {"burst": [], "reservation": []}

    def put(self, kind: str, start_us: float, end_us: float) -> None:
        """Remember a stretch, as part of the one before when that is near."""
        spans = self._spans[kind]
        if spans and start_us - spans[-1][1] < _MERGED_US:
            spans[-1] = (spans[-1][0], max(end_us, spans[-1][1]))
        else:
            spans.append((start_us, end_us))
            del spans[:-_MAX_SPANS]

    def spans(self, now_us: float, epoch_s: float) -> list[Span]:
        """The last seconds, in wall-clock time."""
        since = now_us - KEPT_US
        return [
            Span(kind=kind, start_s=epoch_s + max(start, since) / 1e6, end_s=epoch_s + end / 1e6)  # type: ignore[arg-type]
            for kind, spans in self._spans.items()
            for start, end in spans
            if end > since
        ]


def _percentiles(durations: Iterable[float], percents: tuple[int, ...] = (50, 90, 99)) -> dict[str, float]:
    """The nearest-rank percentiles of at least one duration."""
    ordered = sorted(durations)
    return {f"p{each}": round(ordered[math.ceil(each / 100 * len(ordered)) - 1], 1) for each in percents}


def _hints(choice: Choice, figures: _Figures) -> HintsView:
    first = choice.triggers[0] if choice.triggers else None
    return HintsView(
        state=choice.state,
        trigger=str(first.matcher) if first else None,
        lead_us=first.lead_us.get("p50") if first else None,
        bursts=figures.bursts,
        reservations=figures.reservations,
        hidden_us=figures.hidden_us,
        wasted_us=figures.wasted_us,
        margin=figures.foresight.margin.view() if figures.reservations else None,
        unreserved=figures.foresight.unreserved,
        allowed=figures.foresight.allowed.view() if figures.reservations else None,
        allowed_unreserved=figures.foresight.allowed_unreserved,
        in_vain=figures.foresight.in_vain,
        reacted_us=_percentiles(reacted, (50, 99)) if (reacted := figures.foresight.reacted_us) else {},
    )
