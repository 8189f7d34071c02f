"""``gpsched report``: what ran, which objectives were kept, what the tuner changed and why, and what it is worth."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers, add_state_dir


if TYPE_CHECKING:
    from gpsched.tuner.report.model import Report


_EPILOG = """examples:
  gpsched report                                          the last hour
  gpsched report --since 1d --html report.html            a day, as a page with plots
  gpsched report --from 09:00 --to 10:30                  this morning
  gpsched report --from 2026-11-29T22:00 --json           since then, for programs
"""


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "report",
        help="what the tuner saw, changed and gained",
        description="Reports from the tuner's history: objectives kept or missed, best-effort work gained, every "
        "change with what, why, expected and seen, where the GPU's time went, and suggestions.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--since", metavar="TIME", type=_span, help="how far back, like 15m, 1h or 2d (1h)")
    start.add_argument(
        "--from", dest="from_s", metavar="WHEN", type=_moment, help="a time of today, like 09:30, or a date and time"
    )
    parser.add_argument("--to", dest="to_s", metavar="WHEN", type=_moment, help="the end (now)")
    parser.add_argument("-g", "--gpu", type=int, metavar="N", help="one GPU only")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", metavar="FILE", type=Path, help="write a page with plots that needs nothing else")
    form.add_argument("--json", action="store_true", help="print JSON (schema gpsched.report/1)")
    add_state_dir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read the history, and show it; an empty one is no error."""
    from gpsched.adaptive.errors import UsageError
    from gpsched.tuner.report.source import from_history

    to_s = args.to_s if args.to_s is not None else time.time()
    from_s = args.from_s if args.from_s is not None else to_s - (args.since or 3600.0)
    if from_s >= to_s:
        raise UsageError("the time ends before it begins; see: gpsched report --help")
    show(from_history(Path(args.state_dir), from_s, to_s, args.gpu), html=args.html, json=args.json)
    return 0


def show(report: "Report", *, html: Path | None = None, json: bool = False) -> None:
    """Print a report, or write it as a page; raises ``UsageError`` when it cannot be written."""
    from gpsched.cli.progress import check_writable

    check_writable(html)
    if json:
        import msgspec

        print(msgspec.json.encode(report).decode())
    elif html:
        from gpsched.tuner.report.page import render

        html.write_text(render(report), encoding="utf-8")
    else:
        from rich.console import Console

        from gpsched.tuner.report.table import print_report

        print_report(report, Console())


def _span(text: str) -> float:
    from gpsched.adaptive.units import SpanError, parse_span

    try:
        return parse_span(text)
    except SpanError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _moment(text: str) -> float:
    """Seconds since the epoch of a local time: HH:MM of today, or what ISO 8601 allows."""
    import datetime

    try:
        clock = datetime.time.fromisoformat(text)
    except ValueError:
        try:
            return datetime.datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError) as error:
            raise argparse.ArgumentTypeError(f"{text!r} is no time; write 09:30 or 2026-11-29T22:00") from error
    return datetime.datetime.combine(datetime.date.today(), clock).timestamp()
