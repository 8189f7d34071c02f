"""``gpsched verify``: whether the driver has what gpsched intended."""

import argparse
import sys

from gpsched.cli.arguments import Subparsers, add_socket


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("verify", help="compare what the driver has with what was intended")
    parser.add_argument("--json", action="store_true", help="print every setting as a JSON list")
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit with 1 when a setting differs."""
    import msgspec

    from gpsched.adaptive.client import Client
    from gpsched.adaptive.units import format_duration

    with Client(args.socket) as client:
        checks = client.verify()
    wrong = [check for check in checks if not check.ok]
    if args.json:
        sys.stdout.write(msgspec.json.encode(checks).decode() + "\n")
        return 1 if wrong else 0
    for check in wrong:
        where = f"pid {check.pid} group {check.client:#x}:{check.handle:#x}"
        if check.problem or check.live_us is None or check.intended_us is None:
            print(f"{where}: {check.problem}")
        else:
            print(f"{where}: {format_duration(check.live_us)}, intended {format_duration(check.intended_us)}")
    print(f"{len(checks) - len(wrong)} of {len(checks)} timeslices are as intended")
    return 1 if wrong else 0
