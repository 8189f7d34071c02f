"""``gpsched top``: the node on one screen, live or from a record."""

import argparse
import sys

from gpsched.cli.arguments import Subparsers, add_interval, add_socket


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("top", help="watch GPUs and processes on one screen")
    parser.add_argument("-1", "--once", action="store_true", help="print one look and end (automatic off a terminal)")
    parser.add_argument("--readonly", action="store_true", help="refuse all keys that change anything")
    parser.add_argument("--filter", metavar="TEXT", default="", help="show only what contains TEXT")
    parser.add_argument("--tree", action="store_true", help="start with the tree of GPU, tenant, process, group")
    add_interval(parser, 1e6)
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until q; with --once, or when standard output is no terminal, print one look."""
    from gpsched.cli.top.source import Live

    live = Live(args.socket)
    try:
        if args.once or not sys.stdout.isatty():
            from gpsched.cli.top.once import print_once

            print_once(live, args.filter, tree=args.tree)
            return 0
        from gpsched.cli.top.app import TopApp

        app = TopApp(live, interval_s=args.interval / 1e6, readonly=args.readonly, text=args.filter, tree=args.tree)
        app.run()
    finally:
        live.close()
    return app.return_code or 0
