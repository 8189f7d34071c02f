"""A report of a record file: what its snapshots tell of objectives and jobs. Changes and progress are not in them."""

import itertools
import math

import msgspec

from gpsched.adaptive.model import Histogram, ProcessView, Snapshot
from gpsched.adaptive.record import Record
from gpsched.tuner import objective
from gpsched.tuner.model import BeWindow, LcWindow, Window
from gpsched.tuner.report.build import build
from gpsched.tuner.report.model import Report


_LAUNCHES = ("launch", "graph_launch")


def from_record(record: Record) -> Report:
    """Report on a record; one that was cut is said to be."""
    windows = [
        window
        for before, after in itertools.pairwise(record.snapshots)
        for window in _windows(before, after)
        if after.time_s > before.time_s
    ]
    notes = ["made of a record: the settings, what they changed and progress over solo rates are not in it"]
    if not record.complete:
        notes.append("the record was cut: its end is missing")
    return build(
        windows,
        [],
        lambda _key: [],
        source=str(record.path),
        from_s=record.snapshots[0].time_s,
        to_s=record.snapshots[-1].time_s,
        notes=notes,
    )


def _windows(before: Snapshot, after: Snapshot) -> list[Window]:
    """One for each GPU that managed processes use; a process that came in between has no window yet."""
    earlier = {view.pid: view for view in before.processes}
    known = [view for view in after.processes if view.pid in earlier]
    names = {gpu.gpu: gpu.name or "" for gpu in after.gpus}
    length_s = after.time_s - before.time_s
    found = []
    for number in sorted({gpu for view in known for gpu in view.gpus}):
        here = [view for view in known if number in view.gpus]
        lc = [_service(earlier[view.pid], view, length_s) for view in here if view.class_ == "lc"]
        be = [_job(earlier[view.pid], view, length_s) for view in here if view.class_ == "be"]
        found.append(
            Window(
                time_s=after.time_s,
                length_s=length_s,
                gpu=number,
                gpu_model=names.get(number, ""),
                key="record",
                settings={},
                lc=lc,
                be=be,
                verdict=objective.verdict(lc),
                margin=objective.margin(lc, be, {}),
            )
        )
    return found


def _service(before: ProcessView, after: ProcessView, length_s: float) -> LcWindow:
    bursts, total_us = _grown(before.latency, after.latency)
    hints, was = after.hints, before.hints
    recent = after.recent_us if bursts else {}
    window = LcWindow(
        pid=after.pid,
        name=after.name,
        program=after.name,
        tenant=after.tenant,
        objective=objective.objective(after.slo_us, None),
        bursts=bursts,
        rate_hz=bursts / length_s,
        mean_us=total_us / bursts if bursts else 0.0,
        p50_us=recent.get("p50", 0.0),
        p90_us=recent.get("p90", 0.0),
        p99_us=recent.get("p99", 0.0),
        busy_share=min(total_us / (length_s * 1e6), 1.0),
        level=after.level,
        reservations=hints.reservations - (was.reservations if was else 0) if hints else 0,
        hidden_us=max(0.0, hints.hidden_us - (was.hidden_us if was else 0.0)) if hints else 0.0,
        wasted_us=max(0.0, hints.wasted_us - (was.wasted_us if was else 0.0)) if hints else 0.0,
        trigger=hints.trigger if hints else None,
    )
    return msgspec.structs.replace(window, verdict=objective.lc_verdict(window))


def _grown(before: Histogram | None, after: Histogram | None) -> tuple[int, float]:
    """Bursts and their total time since the snapshot before; a daemon that restarted counts from zero."""
    if after is None:
        return 0, 0.0
    count, total = sum(after.counts), after.sum_us
    if before is None or sum(before.counts) > count:
        return count, total
    return count - sum(before.counts), max(0.0, math.fsum((total, -before.sum_us)))


def _job(before: ProcessView, after: ProcessView, length_s: float) -> BeWindow:
    launches, was = (sum(view.calls.get(call, 0) for call in _LAUNCHES) for view in (after, before))
    return BeWindow(
        pid=after.pid,
        name=after.name,
        program=after.name,
        tenant=after.tenant,
        rate_hz=max(0, launches - was) / length_s,
        weight=after.weight,
    )
