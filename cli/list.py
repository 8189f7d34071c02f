"""``gpsched list``: the managed processes, their class, level, slices, and why."""

import argparse
import sys
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers, add_socket
from gpsched.cli.text import printable


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpsched.adaptive.model import ProcessView, Snapshot


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("list", help="show the managed processes")
    parser.add_argument("--json", action="store_true", help="print the whole snapshot as one JSON object")
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what the daemon knows."""
    import msgspec

    from gpsched.adaptive.client import Client

    with Client(args.socket) as client:
        snapshot = client.snapshot()
    if args.json:
        sys.stdout.write(msgspec.json.encode(snapshot).decode() + "\n")
    else:
        _print_table(snapshot)
    return 0


_TITLES = ("PID", "CLASS", "LEVEL", "GPU", "SLICE", "SLO", "TENANT", "LAUNCHES", "NAME")
_RIGHT = {"PID", "SLICE", "SLO", "LAUNCHES"}


def _print_table(snapshot: "Snapshot") -> None:
    """Plain text: a library for tables would take most of the command's time."""
    if snapshot.processes:
        print("\n".join(_aligned([_TITLES, *map(_row, snapshot.processes)])), end="\n\n")
        for process in snapshot.processes:  # not a column: 80 characters would cut it to ribbons
            where = f"; in {process.place}" if process.place else ""
            print(printable(f"{process.pid}: {process.reason}{where}"))
    else:
        print("no managed process; start one with: gpsched run --class lc|be -- COMMAND")
    daemon = snapshot.daemon
    if sum(process.class_ == "lc" for process in snapshot.processes) > 1:
        print(f"several latency-critical on a GPU go by {daemon.order} (gpsched policy)")
    if daemon.lost_events:
        print(f"{daemon.lost_events} events were lost: figures are incomplete")
    if daemon.failed_controls:
        print(printable(f"{daemon.failed_controls} controls failed; the last: {daemon.last_failure}"))


def _aligned(rows: "Sequence[Sequence[str]]") -> "Iterator[str]":
    """Two blanks between columns, none at the end of a line."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if title in _RIGHT else cell.ljust(width)
            for title, cell, width in zip(_TITLES, map(printable, row), widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _row(process: "ProcessView") -> list[str]:
    from gpsched.adaptive.units import format_duration

    slices = {
        format_duration(us)
        for group in process.groups
        if group.engine == "compute" and (us := group.timeslice_us) is not None
    }
    launches = process.calls.get("launch", 0) + process.calls.get("graph_launch", 0)
    return [
        str(process.pid),
        process.class_,
        process.level,
        ",".join(map(str, process.gpus)) or "-",
        ", ".join(sorted(slices)) or "-",
        format_duration(process.slo_us) if process.slo_us else "-",
        process.tenant,
        str(launches),
        process.name,
    ]
