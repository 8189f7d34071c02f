"""``gpsched replay``: look at a record with ``top``, as a report, or as a summary where there is no terminal."""

import argparse
import sys
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers


if TYPE_CHECKING:
    from pathlib import Path

    from gpsched.adaptive.record import Record


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("replay", help="look at a record with top, or print its summary")
    parser.add_argument("file", metavar="FILE", help="made by: gpsched record FILE")
    parser.add_argument("--summary", action="store_true", help="print a summary (automatic without a terminal)")
    parser.add_argument(
        "--report", action="store_true", help="print a report, as gpsched report does of the tuner's history"
    )
    parser.add_argument("--html", metavar="FILE", help="write that report as a page")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay; a record that was cut is shown as far as it goes."""
    from pathlib import Path

    from gpsched.adaptive import trace
    from gpsched.adaptive.record import Record

    if trace.is_trace(Path(args.file)):
        print("\n".join(learned(Path(args.file))))
        return 0
    record = Record(Path(args.file))
    if args.report or args.html:
        from gpsched.cli.report import show
        from gpsched.tuner.report.record import from_record

        show(from_record(record), html=Path(args.html) if args.html else None)
        return 0
    if args.summary or not sys.stdout.isatty():
        print("\n".join(summary(record)))
        return 0
    from gpsched.cli.top.app import TopApp
    from gpsched.cli.top.source import Replay

    TopApp(Replay(record), readonly=True).run()
    return 0


def learned(path: "Path") -> list[str]:
    """What the learners make of a trace's events, a line for each latency-critical process of each part."""
    from gpsched.adaptive import trace
    from gpsched.adaptive.hints.replay import replay

    lines = []
    for part in trace.read(path):
        seconds = (part.events[-1].time_ns - part.events[0].time_ns) / 1e9 if part.events else 0.0
        about = f" ({part.header.about})" if part.header.about else ""
        lines.append(f"{part.header.host}{about}: {len(part.events)} events over {seconds:.1f} s")
        for pid, learner in replay(part).items():
            report = learner.report()
            lines.append(f"  {pid}: {report.outcome.bursts} bursts, {report.state}: {report.why}")
    return lines


def summary(record: "Record") -> list[str]:
    """The span, and each process from its first to its last snapshot."""
    from gpsched.adaptive.histogram import latency_quantile
    from gpsched.adaptive.units import format_duration

    first, last = record.snapshots[0], record.snapshots[-1]
    cut = "" if record.complete else ", cut: the end is missing"
    seconds = last.time_s - first.time_s
    lines = [f"{record.header.host}: {len(record.snapshots)} snapshots over {seconds:.1f} s{cut}"]
    latest = {view.pid: view for snapshot in record.snapshots for view in snapshot.processes}
    before: dict[int, int] = {}
    for snapshot in record.snapshots:
        for view in snapshot.processes:
            before.setdefault(view.pid, sum(view.calls.values()))
    for view in latest.values():
        calls = sum(view.calls.values()) - before[view.pid]
        line = f"{view.pid} {view.name} ({view.class_}): level {view.level}, {calls} CUDA calls"
        if (p99 := latency_quantile(view, 99)) is not None:
            line += f", p99 {format_duration(p99)}"
        lines.append(line)
    return lines
