"""``gpsched record``: keep what the daemon knows in a file, for replay and dump."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers, add_interval, add_socket, duration


if TYPE_CHECKING:
    from gpsched.adaptive.client import Client
    from gpsched.adaptive.model import Snapshot


_LONG_S = 86_400.0


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("record", help="write what happens into a file, for replay and dump")
    parser.add_argument("file", metavar="FILE", help="a new file; compressed when its name ends with .gz")
    add_interval(parser, 0.5e6)
    parser.add_argument("-d", "--duration", metavar="TIME", type=duration, help="stop after this time, like 30s")
    parser.add_argument("--count", metavar="N", type=int, help="stop after N snapshots")
    parser.add_argument(
        "--events",
        action="store_true",
        help="write the kernel's events instead, at most 10,000: replay repeats what is learned from them",
    )
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Record until Ctrl-C, until the time or the count is up, or until the daemon ends."""
    if args.events:
        return _record_events(args)
    import sys
    from pathlib import Path

    from gpsched.adaptive.client import Client
    from gpsched.adaptive.errors import DaemonUnreachableError
    from gpsched.adaptive.record import Writer

    with Client(args.socket) as client:
        writer = Writer(Path(args.file))  # after connecting: without a daemon no file is left behind
        count = 0
        try:
            for snapshot in _snapshots(client, args):
                writer.put(snapshot)
                count += 1
        except KeyboardInterrupt:
            pass
        except DaemonUnreachableError as error:
            print(f"gpsched: the record ends here: {error}", file=sys.stderr)
        finally:
            writer.close()
    print(f"{count} snapshots in {args.file}")
    return 0


def _record_events(args: argparse.Namespace) -> int:
    """The daemon writes them itself, since it needs root to see them."""
    import time
    from pathlib import Path

    from gpsched.adaptive.client import Client
    from gpsched.adaptive.trace import TraceWriteError, read

    path = Path(args.file)
    if path.exists():
        raise TraceWriteError(args.file, "it exists")
    with Client(args.socket) as client:
        client.trace(path)
        try:
            time.sleep(args.duration / 1e6 if args.duration is not None else _LONG_S)
        except KeyboardInterrupt:
            pass
        finally:
            client.trace(None)
    print(f"{sum(len(part.events) for part in read(path))} events in {args.file}")
    return 0


def _snapshots(client: "Client", args: argparse.Namespace) -> "Iterator[Snapshot]":
    """One at each interval, by the clock: a slow answer delays none of the later ones."""
    import time

    begin, taken = time.monotonic(), 0
    while args.count is None or taken < args.count:
        yield client.snapshot()
        taken += 1
        due = taken * args.interval / 1e6
        if args.duration is not None and due > args.duration / 1e6:
            return
        time.sleep(max(0.0, begin + due - time.monotonic()))
