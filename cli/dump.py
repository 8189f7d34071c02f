"""``gpsched dump``: a record, or the present, in another tool's format."""

import argparse
import sys
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers, add_socket


if TYPE_CHECKING:
    from gpsched.adaptive.model import Snapshot


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("dump", help="print a record, or the present, as JSON lines, CSV or a trace")
    parser.add_argument("file", metavar="FILE", nargs="?", help="a record (default: ask the daemon once)")
    formats = ("json", "csv", "openmetrics", "chrome")
    parser.add_argument("-O", "--format", choices=formats, default="json", help="chrome: for ui.perfetto.dev (json)")
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write to standard output."""
    from gpsched.adaptive.export import EXPORTERS

    for piece in EXPORTERS[args.format](_snapshots(args)):
        sys.stdout.write(piece)
    return 0


def _snapshots(args: argparse.Namespace) -> "list[Snapshot]":
    from pathlib import Path

    from gpsched.adaptive.client import Client
    from gpsched.adaptive.record import Record

    if args.file is None:
        with Client(args.socket) as client:
            return [client.snapshot()]
    record = Record(Path(args.file))
    if not record.complete:
        print(f"gpsched: {args.file} was cut; {len(record.snapshots)} snapshots are whole", file=sys.stderr)
    return record.snapshots
