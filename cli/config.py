"""``gpsched config``: check the configuration, show what counts, print the defaults."""

import argparse
from typing import TYPE_CHECKING, Any

from gpsched.adaptive import paths
from gpsched.cli.arguments import Subparsers


if TYPE_CHECKING:
    from gpsched.adaptive.config import Config

_RULES = """
# Rules classify processes that open the driver; the first that matches counts. Examples:
#
# [[rule]]
# name = "triton"
# class = "lc"
# exe = "*/tritonserver"
# slo = "5ms"
#
# [[rule]]
# name = "spot"
# class = "be"
# slurm_qos = "spot"
"""


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser("config", help="check or show the configuration, or print the defaults")
    parser.add_argument("action", nargs="?", choices=("check", "show"), default="check", help="default: check")
    parser.add_argument("--default", action="store_true", help="print a configuration file with all defaults")
    parser.add_argument("--config", metavar="FILE", help=f"this file instead of {paths.CONFIG} and {paths.CONFIG_DIR}")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """A mistake is one line on standard error and exit code 2."""
    from pathlib import Path

    from gpsched.adaptive import config

    if args.default:
        print(to_toml(config.Config()) + _RULES, end="")
        return 0
    if args.config:
        settings = config.load(Path(args.config), required=True)
    else:
        settings = config.load(paths.CONFIG, paths.CONFIG_DIR)
    print(to_toml(settings) if args.action == "show" else f"right: {len(settings.rule)} rules\n", end="")
    return 0


def to_toml(settings: "Config") -> str:
    """The settings as a file that reads back as the same; what is not set is left out."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(settings)
    rules = plain.pop("rule")
    blocks = [f"[{name}]\n{_pairs(section)}" for name, section in plain.items()]
    blocks += [f"[[rule]]\n{_pairs(rule)}" for rule in rules]
    return "\n".join(blocks)


def _pairs(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in table.items() if value not in (None, {}))


def _value(value: Any) -> str:
    """JSON's strings, numbers and lists are TOML's too; true of a table only with = for :."""
    import json

    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_value(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
