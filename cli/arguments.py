"""Arguments that several subcommands share."""

import argparse
from typing import Any

from gpsched.adaptive import paths


Subparsers = Any  # argparse's own type is private
_MIN_INTERVAL_US = 250_000.0


def add_socket(parser: argparse.ArgumentParser) -> None:
    """``--socket``: which daemon."""
    parser.add_argument(
        "--socket", metavar="PATH", default=str(paths.socket()), help="the daemon's control socket (%(default)s)"
    )


def add_state_dir(parser: argparse.ArgumentParser) -> None:
    """``--state-dir``: where original values are kept."""
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        default=str(paths.state_dir()),
        help="where original values are kept (%(default)s)",
    )


def add_class(parser: argparse.ArgumentParser) -> None:
    """``--class``, ``--slo``, ``--tenant``, ``--priority`` and ``--weight``: how a process is to be treated."""
    parser.add_argument(
        "--class", dest="class_", choices=("lc", "be"), required=True, help="latency-critical or best-effort"
    )
    parser.add_argument(
        "--slo", metavar="DURATION", type=duration, help="latency objective of a latency-critical process, like 5ms"
    )
    parser.add_argument("--tenant", help="whom the process belongs to (default: its user)")
    parser.add_argument(
        "--priority", metavar="N", type=int, default=0, help="of several, the higher goes first, if so ordered (0)"
    )
    parser.add_argument("--weight", metavar="W", type=float, default=1.0, help="of several, GPU time in proportion (1)")


def terms(args: argparse.Namespace) -> dict[str, Any]:
    """What ``add_class`` parsed, as arguments of ``Client.attach``."""
    return {"slo_us": args.slo, "tenant": args.tenant, "priority": args.priority, "weight": args.weight}


def add_interval(parser: argparse.ArgumentParser, default_us: float) -> None:
    """``--interval``: time between two looks, in µs once parsed."""
    parser.add_argument(
        "-i",
        "--interval",
        metavar="TIME",
        type=interval,
        default=default_us,
        help=f"time between two looks, at least 250ms ({default_us / 1e6:g}s)",
    )


def interval(text: str) -> float:
    """A duration in µs that is no burden for the daemon, for argparse."""
    us = duration(text)
    if us < _MIN_INTERVAL_US:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 250ms")
    return us


def duration(text: str) -> float:
    """A duration in µs, for argparse."""
    from gpsched.adaptive.units import DurationError, parse_duration

    try:
        return parse_duration(text)
    except DurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def positive_pid(text: str) -> int:
    """A process id, for argparse."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a process id")
    return int(text)
