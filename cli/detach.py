"""``gpsched detach``: leave a process alone again."""

import argparse

from gpsched.cli.arguments import Subparsers, add_socket, positive_pid


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("detach", help="leave a process alone and give it its own settings back")
    parser.add_argument("pid", type=positive_pid, metavar="PID")
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask the daemon."""
    from gpsched.adaptive.client import Client

    with Client(args.socket) as client:
        client.detach(args.pid)
    return 0
