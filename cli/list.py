"""``gpsched list``: the managed processes, their class, level, slices, and why."""

import argparse
import sys
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers, add_socket


if TYPE_CHECKING:
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


def _print_table(snapshot: "Snapshot") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("PID", "CLASS", "LEVEL", "GPU", "SLICE", "SLO", "TENANT", "LAUNCHES", "NAME"):
        table.add_column(title, justify="right" if title in ("PID", "SLICE", "SLO", "LAUNCHES") else "left")
    for process in snapshot.processes:
        table.add_row(*_row(process))
    if snapshot.processes:
        console.print(table)
        for process in snapshot.processes:  # not a column: 80 characters would cut it to ribbons
            where = f"; in {process.place}" if process.place else ""
            console.print(f"{process.pid}: {process.reason}{where}", style="dim", markup=False, highlight=False)
    else:
        console.print("no managed process; start one with: gpsched run --class lc|be -- COMMAND")
    daemon = snapshot.daemon
    if sum(process.class_ == "lc" for process in snapshot.processes) > 1:
        console.print(f"several latency-critical on a GPU go by {daemon.order} (gpsched policy)", style="dim")
    if daemon.lost_events:
        console.print(f"{daemon.lost_events} events were lost: figures are incomplete", style="yellow")
    if daemon.failed_controls:
        console.print(
            f"{daemon.failed_controls} controls failed; the last: {daemon.last_failure}", style="yellow", markup=False
        )


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
