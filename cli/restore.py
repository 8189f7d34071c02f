"""``gpsched restore``: give every process its own settings back, with or without a daemon."""

import argparse

from gpsched.cli.arguments import Subparsers, add_socket, add_state_dir


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("restore", help="give every process its own settings back (also after a crash)")
    add_socket(parser)
    add_state_dir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """A daemon that answers restores and detaches; without one the settings are read from disk."""
    from gpsched.adaptive.client import Client
    from gpsched.adaptive.errors import DaemonUnreachableError

    try:
        with Client(args.socket) as client:
            count, left = client.restore(), 0
    except DaemonUnreachableError:
        count, left = _restore_from_disk(args.state_dir)
    print(f"{count} settings restored" + (f", {left} could not be: see the messages above" if left else ""))
    return 1 if left else 0


def _restore_from_disk(state_dir: str) -> tuple[int, int]:
    import logging
    from pathlib import Path

    from gpsched.adaptive.slices import restore_pending
    from gpsched.adaptive.undo import ENDING_S, UndoLog

    logging.basicConfig(level="WARNING", format="gpsched: %(message)s")
    if not Path(state_dir).is_dir():
        return 0, 0
    undo = UndoLog(Path(state_dir), wait_s=ENDING_S)
    try:
        return restore_pending(undo), len(undo.pending()) + len(undo.frozen())
    finally:
        undo.close()
