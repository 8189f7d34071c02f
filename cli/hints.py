"""``gpsched hints``: what announces a process's bursts, how well, which of it is used and why."""

import argparse
import sys
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers, add_socket, positive_pid


if TYPE_CHECKING:
    from gpsched.adaptive.hints.model import CandidateReport, HintsReport


RESTING = "known well: left to the actuator, and looked at again within seconds"


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("hints", help="show what announces a process's use of the GPU")
    parser.add_argument("pid", type=positive_pid, metavar="PID", help="a latency-critical process")
    parser.add_argument("--json", action="store_true", help="print the whole report as one JSON object")
    parser.add_argument("--all", action="store_true", help="show all candidates, not only the ten best")
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what the daemon learned."""
    import msgspec

    from gpsched.adaptive.client import Client

    with Client(args.socket) as client:
        report = client.hints(args.pid)
    if args.json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        print_report(report, len(report.candidates) if args.all else 10)
    return 0


def print_report(report: "HintsReport", most: int) -> None:
    """Print the report as a table of candidates and the reason for the choice."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    numbers = ("SEEN", "PRECISION", "RECALL", "P1", "P50", "P99", "OFFSET")
    for title in ("", "TRIGGER", *numbers):
        table.add_column(title, justify="right" if title in numbers else "left", overflow="fold")
    shown = report.candidates[:most]
    for number, candidate in enumerate(shown, 1):
        table.add_row(*_row(number, candidate))
    if shown:
        console.print(table)
        for number, candidate in enumerate(shown, 1):  # not a column: 80 characters would cut it to ribbons
            why = "chosen" if candidate.chosen else candidate.verdict
            console.print(f"{number:>2}: {why}", style="dim", markup=False, highlight=False)
    console.print(f"{report.state}: {report.why}", markup=False, highlight=False)
    if report.resting:
        console.print(RESTING, style="dim")
    if report.lost_events:
        console.print(f"{report.lost_events} events were lost: learning is slower", style="yellow")


def _row(number: int, candidate: "CandidateReport") -> list[str]:
    from gpsched.adaptive.units import format_duration

    leads = [format_duration(candidate.lead_us[name]) for name in ("p1", "p50", "p99")]
    return [
        f"{number}{'*' if candidate.chosen else ' '}",
        candidate.trigger,
        str(candidate.occurrences),
        f"{candidate.precision:.1%}",
        f"{candidate.recall:.1%}",
        *leads,
        format_duration(candidate.offset_us),
    ]
