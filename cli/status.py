"""``gpsched status``: how the daemon itself is."""

import argparse
import sys
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers, add_socket


if TYPE_CHECKING:
    from gpsched.adaptive.model import Snapshot


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("status", help="say how the daemon is: health, libraries, what it lost")
    parser.add_argument("--json", action="store_true", help="print it as one JSON object")
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit with 1 when something is wrong that was right before, 4 without a daemon."""
    import msgspec

    from gpsched.adaptive.client import Client
    from gpsched.adaptive.version import own_version

    with Client(args.socket) as client:
        snapshot = client.snapshot()
    if args.json:
        sys.stdout.write(msgspec.json.encode(snapshot.daemon).decode() + "\n")
    else:
        print("\n".join(lines(snapshot, own_version())))
    return 1 if snapshot.daemon.config_error or snapshot.daemon.failed_controls else 0


def lines(snapshot: "Snapshot", own_version: str) -> list[str]:
    """The report, a line each; ``own_version`` is the command's, which may be newer than a daemon that runs."""
    daemon = snapshot.daemon
    counts = {name: sum(view.class_ == name for view in snapshot.processes) for name in ("lc", "be")}
    report = [
        f"gpsched {daemon.version}, pid {daemon.pid}, up {uptime(daemon.uptime_s)}",
        f"processes: {counts['lc']} latency-critical, {counts['be']} best-effort",
        f"libraries: {', '.join(daemon.libraries) or 'none met yet'}",
        f"lost events: {daemon.lost_events}; failed controls: {daemon.failed_controls}",
    ]
    if daemon.version != own_version:
        report.append(f"this command is gpsched {own_version}: restart the daemon to have it too")
    report += [f"last failure: {daemon.last_failure}"] if daemon.last_failure else []
    report += [f"configuration is wrong, the earlier one stays: {daemon.config_error}"] if daemon.config_error else []
    report += [f"checks: {daemon.health} (details and fixes: gpsched doctor)"]
    return report + [f"  {finding}" for finding in daemon.findings]


def uptime(seconds: float) -> str:
    """Write a time span as 3d 4h, 4h 5m, 5m 6s or 6s: its two largest units."""
    rest = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
