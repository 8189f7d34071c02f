"""``gpsched explain``: what is done for one process, what came of it lately, and what it cost."""

import argparse
import sys
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers, add_socket, positive_pid
from gpsched.cli.hints import RESTING


if TYPE_CHECKING:
    from gpsched.adaptive.hints.model import HintsReport, Past, Trigger
    from gpsched.adaptive.model import ProcessView


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("explain", help="show why a process is treated as it is, and what came of it")
    parser.add_argument("pid", type=positive_pid, metavar="PID", help="a managed process")
    parser.add_argument("--json", action="store_true", help="print process and hints as one JSON object")
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print level, plan, last reservations and their sums."""
    import msgspec

    from gpsched.adaptive.client import Client
    from gpsched.adaptive.errors import ProcessGoneError

    with Client(args.socket) as client:
        process = next((p for p in client.snapshot().processes if p.pid == args.pid), None)
        if process is None:
            raise ProcessGoneError(args.pid)
        report = client.hints(args.pid) if process.class_ == "lc" else None
    if args.json:
        sys.stdout.write(msgspec.json.encode({"process": process, "hints": report}).decode() + "\n")
        return 0
    print_process(process)
    if report is not None:
        print_plan(report)
        print_past(report, process.hints.bursts if process.hints else report.outcome.bursts)
    return 0


def print_process(process: "ProcessView") -> None:
    """Print class and level with their reasons."""
    print(f"{process.pid} {process.name}: {process.class_} by {process.source}")
    print(f"level     {process.level}: {process.reason}")
    if process.priority or process.weight != 1.0:
        print(f"place     priority {process.priority}, weight {process.weight:g}")


def print_plan(report: "HintsReport") -> None:
    """Print how the next burst will be reserved."""
    from gpsched.adaptive.units import format_duration

    choice = report.choice
    print(f"plan      {report.state}: {report.why}")
    if report.resting:
        print(f"          {RESTING}")
    for trigger in choice.triggers:
        print(f"          {_trigger(trigger)}")
    if report.beside:
        print(f"          events are awaited where a thread of {report.beside} keeps a CPU awake")
    print(
        f"          given back {format_duration(choice.quiet_us)} after the last synchronisation, "
        f"at the latest {format_duration(choice.burst_limit_us)} after the first launch"
    )


def print_past(report: "HintsReport", bursts: int) -> None:
    """Print the last reservations that were looked at and the sums since the start; ``bursts``: of how many."""
    from gpsched.adaptive.units import format_duration

    for past in report.recent[-10:]:
        print(f"          {_past(past, report.recent[-1].time_us)}")
    outcome = report.outcome
    print(
        f"so far    {max(bursts, outcome.bursts)} bursts; of {outcome.bursts} that were looked at {outcome.in_time} "
        f"reserved in time, {outcome.false} reservations of {outcome.reservations} in vain; "
        f"{report.drifts} times learned anew"
    )
    print(
        f"          {format_duration(outcome.hidden_us)} of switch time hidden, "
        f"{format_duration(outcome.unhidden_us)} not; {outcome.waste_share:.2%} of the GPU reserved and idle"
    )


def _trigger(trigger: "Trigger") -> str:
    from gpsched.adaptive.units import format_duration

    start = f"{format_duration(abs(trigger.offset_us))} {'before' if trigger.offset_us < 0 else 'after'}"
    return f"reserve {start} {trigger.matcher}, given up after {format_duration(trigger.limit_us)}"


def _past(past: "Past", now_us: float) -> str:
    from gpsched.adaptive.units import format_duration

    reserved = f", reserved {format_duration(past.reserved_us)} before" if past.reserved_us is not None else ""
    waste = f", idle {format_duration(past.waste_us)}" if past.waste_us else ""
    when = format_duration(now_us - past.time_us)
    return f"{when:>8} before: {past.trigger or 'no trigger'}: {past.result}{reserved}{waste}"
