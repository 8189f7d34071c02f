"""``gpsched doctor``: what this machine offers, what it lacks, and the fix for each."""

import argparse
import sys
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers, add_socket, add_state_dir


if TYPE_CHECKING:
    from gpsched.adaptive.doctor.model import Report
    from gpsched.adaptive.model import Snapshot

_STYLE = {"ok": "green", "degraded": "yellow", "missing": "red"}
_UNSUPPORTED = 77


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("doctor", help="say what this machine offers and lacks, with the fix for each")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument("--table", action="store_true", help="print docs/portability.md: all rules, whatever is here")
    add_socket(parser)
    add_state_dir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit with 77 when something is missing, 0 otherwise."""
    from pathlib import Path

    import msgspec

    from gpsched.adaptive.doctor import portability
    from gpsched.adaptive.doctor.examine import examine
    from gpsched.adaptive.doctor.host import Host

    if args.table:
        sys.stdout.write(portability.page())
        return 0
    report = examine(Host(state_dir=Path(args.state_dir)), _snapshot(args.socket))
    if args.json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        _print(report)
    return _UNSUPPORTED if report.health == "missing" else 0


def _snapshot(socket: str) -> "Snapshot | None":
    """What the daemon knows, if one answers."""
    from gpsched.adaptive.client import Client, RemoteError
    from gpsched.adaptive.errors import DaemonUnreachableError

    try:
        with Client(socket, timeout_s=5.0) as client:
            return client.snapshot()
    except (DaemonUnreachableError, RemoteError):
        return None


def _print(report: "Report") -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(soft_wrap=True, highlight=False)
    for check in report.checks:
        style = _STYLE[check.state]
        console.print(f"[{style}]{check.state:<9}[/] {check.title}: {escape(check.detail)}")
        if check.state != "ok":
            console.print(f"          {escape(check.reason)}; fix: {escape(check.fix)}", style="dim")
    console.print()
    for level in report.levels:
        why = "possible" if level.possible else f"no: {', '.join(level.blocked_by)}"
        console.print(f"level {level.level:<10} {why}", style="" if level.possible else "dim")
    for gpu in report.gpus:
        console.print(f"GPU {gpu.gpu} {gpu.name or ''}: {gpu.level} ({gpu.processes} managed processes)", markup=False)
    for process in report.processes:
        more = f"; not {process.next_level}: {process.next_lacks}" if process.next_lacks else ""
        console.print(f"{process.pid} {process.name}: {process.level}, {process.reason}{more}", markup=False)
