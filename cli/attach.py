"""``gpsched attach``: manage a process that already runs."""

import argparse

from gpsched.cli.arguments import Subparsers, add_class, add_socket, positive_pid, terms


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("attach", help="manage a process that already runs, and its children")
    parser.add_argument("pid", type=positive_pid, metavar="PID")
    add_class(parser)
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask the daemon."""
    from gpsched.adaptive.client import Client

    with Client(args.socket) as client:
        client.attach(args.pid, args.class_, **terms(args))
    return 0
