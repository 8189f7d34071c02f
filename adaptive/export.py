"""Snapshots in other tools' formats: JSON lines, CSV, OpenMetrics text, Chrome trace (for Perfetto)."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from gpsched.adaptive.histogram import latency_quantile
from gpsched.adaptive.model import ProcessView, Snapshot


_TRACKS = {"reservation": 1, "burst": 2, "turn": 3}  # stretches of one track have to nest, these overlap
Exporter = Callable[[Iterable[Snapshot]], Iterator[str]]

# Columns of the CSV: one row for each process in each snapshot. Empty where the model knows nothing.
COLUMNS: dict[str, Callable[[Snapshot, ProcessView], Any]] = {
    "time_s": lambda snapshot, _: snapshot.time_s,
    "pid": lambda _, view: view.pid,
    "name": lambda _, view: view.name,
    "class": lambda _, view: view.class_,
    "tenant": lambda _, view: view.tenant,
    "level": lambda _, view: view.level,
    "gpus": lambda _, view: " ".join(map(str, view.gpus)),
    "slo_us": lambda _, view: view.slo_us,
    "timeslice_us": lambda _, view: " ".join(str(group.timeslice_us) for group in view.groups if group.timeslice_us),
    "launches": lambda _, view: view.calls.get("launch", 0) + view.calls.get("graph_launch", 0),
    "p50_us": lambda _, view: latency_quantile(view, 50),
    "p99_us": lambda _, view: latency_quantile(view, 99),
    "gpu_share": lambda _, view: view.gpu_share,
    "reservations": lambda _, view: view.hints.reservations if view.hints else None,
    "hidden_us": lambda _, view: view.hints.hidden_us if view.hints else None,
    "wasted_us": lambda _, view: view.hints.wasted_us if view.hints else None,
    "reason": lambda _, view: view.reason,
}


def json_lines(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """One snapshot a line."""
    for snapshot in snapshots:
        yield msgspec.json.encode(snapshot).decode() + "\n"


def csv_rows(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """A heading, then a row for each process at each moment."""
    yield _row(list(COLUMNS))
    for snapshot in snapshots:
        for view in snapshot.processes:
            yield _row(column(snapshot, view) for column in COLUMNS.values())


def _row(cells: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow("" if cell is None else cell for cell in cells)
    return text.getvalue()


def openmetrics(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """The last snapshot: the format allows one value for each metric at a time."""
    from prometheus_client.openmetrics.exposition import generate_latest

    from gpsched.adaptive.metrics import SnapshotCollector

    last = None
    for last in snapshots:  # noqa: B007 - the last one is meant
        pass
    text: bytes = generate_latest(SnapshotCollector(last))  # type: ignore[no-untyped-call]
    yield text.decode()


def chrome_trace(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """Trace events (JSON array format): tracks of each process with its spans; counters of launches, slices, power."""
    separator = "[\n"
    told: dict[tuple[int, str], float] = {}
    for snapshot in snapshots:
        for event in _trace_events(snapshot, told):
            yield separator + msgspec.json.encode(event).decode()
            separator = ",\n"
    yield "\n]\n" if separator == ",\n" else "[]\n"


def _trace_events(snapshot: Snapshot, told: dict[tuple[int, str], float]) -> Iterator[dict[str, Any]]:
    now_us = snapshot.time_s * 1e6
    for view in snapshot.processes:
        if (view.pid, "name") not in told:
            told[view.pid, "name"] = now_us
            label = f"{view.name} ({view.class_})"
            yield {"ph": "M", "name": "process_name", "pid": view.pid, "args": {"name": label}}
            for kind, track in _TRACKS.items():
                yield {"ph": "M", "name": "thread_name", "pid": view.pid, "tid": track, "args": {"name": kind}}
        launches = view.calls.get("launch", 0) + view.calls.get("graph_launch", 0)
        yield {"ph": "C", "name": "launches", "pid": view.pid, "ts": now_us, "args": {"count": launches}}
        yield from _span_events(view, told)
        for group in view.groups:
            if group.engine == "compute" and group.timeslice_us is not None:
                args = {"us": group.timeslice_us}
                yield {"ph": "C", "name": "timeslice", "pid": view.pid, "ts": now_us, "args": args}
    for gpu in snapshot.gpus:
        if gpu.power_w is not None:
            yield {"ph": "C", "name": f"GPU {gpu.gpu} power", "pid": 0, "ts": now_us, "args": {"W": gpu.power_w}}


def _span_events(view: ProcessView, told: dict[tuple[int, str], float]) -> Iterator[dict[str, Any]]:
    """Snapshots overlap, and the last span of one may be longer in the next: only what is new is told."""
    for span in view.spans:
        begin = max(span.start_s, told.get((view.pid, span.kind), span.start_s))
        if span.end_s > begin:
            told[view.pid, span.kind] = span.end_s
            length_us = (span.end_s - begin) * 1e6
            track = {"pid": view.pid, "tid": _TRACKS[span.kind]}
            yield {"ph": "X", "name": span.kind, **track, "ts": begin * 1e6, "dur": length_us}


EXPORTERS: dict[str, Exporter] = {
    "json": json_lines,
    "csv": csv_rows,
    "openmetrics": openmetrics,
    "chrome": chrome_trace,
}
