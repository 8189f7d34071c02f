"""``gpsched policy``: the settings that the daemon uses now, and changing them until its next reload."""

import argparse
from typing import Any

from gpsched.adaptive.errors import UsageError
from gpsched.cli.arguments import Subparsers, add_socket


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("policy", help="show the settings in use, or change some until the next reload")
    parser.add_argument(
        "changes",
        nargs="*",
        metavar="NAME|SECTION.KEY=VALUE",
        help="the order of several latency-critical processes on a GPU (deadline, laxity, priority, share), "
        "or any setting, like reservations.be_floor=0.2",
    )
    add_socket(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Change what is asked for, then print what counts."""
    from gpsched.adaptive.client import Client
    from gpsched.adaptive.config import ORDERS
    from gpsched.cli.config import to_toml

    changes: dict[str, dict[str, Any]] = {}
    for text in args.changes:
        section, key, value = parsed(text)
        changes.setdefault(section, {})[key] = value
    with Client(args.socket) as client:
        if changes:
            client.set(changes)
        settings = client.config()
    others = ", ".join(name for name in ORDERS if name != settings.policy.order)
    print(f"# Several latency-critical processes on a GPU: by {settings.policy.order}. Others: {others}.")
    print(to_toml(settings), end="")
    return 0


def parsed(text: str) -> tuple[str, str, Any]:
    """Section, key and value; the name of an order is short for it. Raises ``UsageError``."""
    import tomllib

    name, equals, value = text.partition("=")
    if not equals:
        return "policy", "order", _order(text)
    section, dot, key = name.strip().partition(".")
    if not (dot and section and key):
        raise UsageError(f"{text!r} is not SECTION.KEY=VALUE; see: gpsched policy")
    try:
        return section, key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:  # a string
        return section, key, value.strip()


def _order(name: str) -> str:
    from gpsched.adaptive.config import ORDERS

    if name not in ORDERS:
        raise UsageError(f"{name!r} is not SECTION.KEY=VALUE, nor one of {', '.join(ORDERS)}; see: gpsched policy")
    return name
