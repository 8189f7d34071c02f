"""``gpsched tune``: what the tuner does and did, and what an administrator says to it."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from gpsched.adaptive.errors import UsageError
from gpsched.cli.arguments import Subparsers, add_socket, add_state_dir


if TYPE_CHECKING:
    from gpsched.adaptive.client import Client
    from gpsched.adaptive.knobs import SettingsView, Value
    from gpsched.tuner.model import Change, Window

_EPILOG = """actions:
  status         settings of each GPU, whose they are, and how the objectives do (default)
  history        every change: what, why, what was expected and what was seen
  pin KNOB=V     fix a knob on all GPUs, across restarts; KNOB alone of status will do (turn_us=80000)
  unpin KNOB     leave the knob to the tuner again, also one that `gpsched policy` has set
  reset          back to the configuration's values; forget what was learned of the present work
  on, off        start or end the tuner until the configuration is read again (there: [tuner] enabled)
"""


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "tune",
        help="see what the tuner does, pin settings, switch it on or off",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = ("status", "history", "pin", "unpin", "reset", "on", "off")
    said = "; ".join(actions)
    parser.add_argument(
        "action", nargs="?", choices=actions, default="status", metavar="ACTION", help=f"{said} (default: status)"
    )
    parser.add_argument("knob", nargs="?", metavar="KNOB[=V]", help="for pin and unpin")
    parser.add_argument("-n", "--count", type=int, default=20, help="changes that history shows (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_socket(parser)
    add_state_dir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit with 0 when it is done, 2 for a knob or value that does not exist, 4 without a daemon."""
    wanted = {"pin": "KNOB=V", "unpin": "KNOB"}.get(args.action)
    if (args.knob is None) == (wanted is not None):
        raise UsageError(f"tune {args.action} takes {wanted or 'no knob'}; see: gpsched tune --help")
    if args.action == "history":
        return _history(args)
    from gpsched.adaptive.client import Client

    with Client(args.socket) as client:
        if args.action == "status":
            return _status(args, client)
        done = _change(args, client)
    _say(args, {"action": args.action, "done": done}, done)
    return 0


def parsed(text: str) -> tuple[str, "Value"]:
    """Knob and value of KNOB=VALUE; raise ``UsageError``."""
    name, equals, value = text.partition("=")
    if not equals or not value.strip():
        raise UsageError(f"{text!r} is not KNOB=VALUE; see: gpsched tune status")
    for kind in (int, float):
        try:
            return name.strip(), kind(value)
        except ValueError:
            continue
    return name.strip(), value.strip()


def _change(args: argparse.Namespace, client: "Client") -> str:
    if args.action == "pin":
        name, value = parsed(args.knob)
        client.pin(name, value)
        return f"{name} is {value} from now on; undo with: gpsched tune unpin {name}"
    if args.action == "unpin":
        return f"{args.knob} {'is open to the tuner again' if client.unpin(args.knob) else 'was open already'}"
    if args.action == "reset":
        client.reset()
        return "the configuration's values are in force; what was learned of the present work is forgotten"
    client.set({"tuner": {"enabled": args.action == "on"}})
    lasting = f"set [tuner] enabled = {'true' if args.action == 'on' else 'false'} in the configuration to keep it so"
    return f"the tuner is {args.action}; {lasting}"


def _status(args: argparse.Namespace, client: "Client") -> int:
    import msgspec

    view, windows = client.settings(), _last_windows(args)
    if args.json:
        shown = {"settings": view, "windows": windows}
        sys.stdout.write(msgspec.json.encode(shown).decode() + "\n")
        return 0
    print("\n".join(status_lines(view, windows)))
    return 0


def _last_windows(args: argparse.Namespace) -> "list[Window]":
    """The last window of each GPU; none for who may not read the history."""
    from pathlib import Path

    from gpsched.tuner.errors import HistoryUnreadableError
    from gpsched.tuner.history_file import path_in
    from gpsched.tuner.history_reader import HistoryReader

    try:
        with HistoryReader(path_in(Path(args.state_dir))) as reader:
            return reader.last_windows()
    except HistoryUnreadableError:
        return []


def status_lines(view: "SettingsView", windows: "list[Window]") -> list[str]:
    """The report, a line each, below 80 columns where names allow it."""
    if view.tuner_pid is None:
        state = "is starting" if view.enabled else "is off; start it with: gpsched tune on"
        lines = [f"the tuner {state}"]
    else:
        lines = [f"tuner: pid {view.tuner_pid}, {view.phase}"]
    last = {window.gpu: window for window in windows}
    for gpu in view.gpus:
        lines.append(f"GPU {gpu.gpu}:" + (f" {gpu.note}" if gpu.note else ""))
        for knob in gpu.knobs:
            origin = "" if knob.owner == "default" else f"{knob.owner}, else {_text(knob.default)}"
            lines.append(f"  {knob.name:<30} {_text(knob.value):>9}  {origin}".rstrip())
        if window := last.get(gpu.gpu):
            lines += [f"  {line}" for line in _window_lines(window)]
    return lines if view.gpus else [*lines, "no managed process uses a GPU"]


def _window_lines(window: "Window") -> list[str]:
    from gpsched.adaptive.units import format_duration

    lines = []
    for lc in window.lc:
        limit = lc.objective.limit_us
        goal = f"of {format_duration(limit)}" if limit else "(what it is alone is not known yet)"
        value = f"{lc.objective.statistic} {format_duration(lc.value_us)} {goal}" if lc.bursts else "idle"
        lines.append(f"{lc.name} ({lc.pid}): {value}: {lc.verdict}")
    for be in window.be:
        reached = "idle" if be.progress is None else f"{be.progress:.1%} of its best speed known at the start"
        lines.append(f"{be.name} ({be.pid}): {reached}")
    return lines


def _history(args: argparse.Namespace) -> int:
    from pathlib import Path

    import msgspec

    from gpsched.tuner.history_file import path_in
    from gpsched.tuner.history_reader import HistoryReader

    with HistoryReader(path_in(Path(args.state_dir))) as reader:
        changes = reader.changes()[-args.count :]
    if args.json:
        sys.stdout.write(msgspec.json.encode({"changes": changes}).decode() + "\n")
        return 0
    for change in changes:
        print("\n".join(change_lines(change)))
    if not changes:
        print("the tuner has changed nothing yet")
    return 0


def change_lines(change: "Change") -> list[str]:
    """What, why, expected and seen."""
    import time

    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.time_s))
    lines = [f"{at} GPU {change.gpu} {change.kind}: {change.words}", f"    why: {change.why}"]
    expected = _expectation(change.expected.progress, change.expected.margin)
    seen = _expectation(change.seen.progress, change.seen.margin) if change.seen else "not yet"
    return [*lines, f"    expected: {expected}; seen: {seen}"]


def _expectation(progress: float | None, margin: float | None) -> str:
    import math

    parts = [] if progress is None else [f"progress {progress:.1%}"]
    parts += [] if margin is None else [f"{math.expm1(margin):+.0%} to the tightest limit"]
    return ", ".join(parts) or "unknown"


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _say(args: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    import json

    print(json.dumps(data) if args.json else text)
