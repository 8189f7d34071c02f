"""``gpsched bench``: measure services and jobs under gpsched, the driver's default and other systems, side by side."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpsched.cli import bench_tuner
from gpsched.cli.arguments import Subparsers


if TYPE_CHECKING:
    from rich.console import Console

    from gpsched.bench.compare import Comparison
    from gpsched.bench.outcome import BenchResult
    from gpsched.bench.runner import Options

_DESCRIPTION = """Measures latency-critical services and best-effort jobs that share a GPU: alone, under the driver's
default, one after the other, and under gpsched, on the same programs and in turn. Without a GPU it uses the embedded
one. docs/bench.md tells how to write a scenario."""


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand and its own."""
    parser = subparsers.add_parser(
        "bench", help="measure scenarios under gpsched, the default and others", description=_DESCRIPTION
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="show the scenarios, arms and models").set_defaults(run=_list)
    show = actions.add_parser("show", help="print a scenario, to be changed and run as a file of one's own")
    show.add_argument("scenario")
    show.set_defaults(run=_show)
    _add_run(actions)
    _add_compare(actions)
    bench_tuner.add_parser(actions)
    page = actions.add_parser("report", help="write the HTML page of a result")
    page.add_argument("result", type=Path, metavar="RESULT.json")
    page.add_argument("page", type=Path, metavar="PAGE.html")
    page.set_defaults(run=_report)


def _add_run(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "run",
        help="run scenarios",
        description="Exit code 1: a scenario failed, or the state of a program on the GPU was corrupted.",
    )
    parser.add_argument("scenario", nargs="+", metavar="SCENARIO", help="a name (gpsched bench list) or a TOML file")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result, with every latency, to FILE")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write the report to FILE")
    parser.add_argument(
        "--device", choices=("simulated", "real", "auto"), default="auto", help="which GPU (%(default)s)"
    )
    parser.add_argument(
        "--seconds", type=_positive, metavar="N", help="of GPU time an arm (the scenario's; embedded GPU: at most 6)"
    )
    parser.add_argument("--rounds", type=int, choices=range(1, 101), default=3, metavar="N", help="blocks an arm (3)")
    parser.add_argument(
        "--warm-up",
        type=_positive,
        default=3.0,
        metavar="N",
        help="seconds of load before managed blocks (%(default)s)",
    )
    parser.add_argument("--arms", metavar="A,B", help="only these, of: see gpsched bench list")
    parser.add_argument(
        "--peer", action="append", default=[], type=Path, metavar="FILE", help="another system, as TOML"
    )
    parser.add_argument("--models", type=Path, metavar="FILE", help="kernel durations of models, as TOML")
    parser.add_argument("--python", metavar="PATH", help="an interpreter with PyTorch, for a real GPU")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="append the events of each scenario's first block of the arm gpsched"
    )
    parser.add_argument("--scale", type=_positive, metavar="X", help="real time a µs of the embedded GPU takes")
    parser.set_defaults(run=_run)


def _add_compare(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "compare",
        help="say what changed between two results beyond noise",
        description="Exit code 1: something became worse in an arm that is judged.",
    )
    parser.add_argument("before", type=Path, metavar="A.json")
    parser.add_argument("after", type=Path, metavar="B.json")
    parser.add_argument("--judge", default="gpsched", metavar="A,B", help="arms whose regression counts (%(default)s)")
    parser.add_argument(
        "--tolerance", type=_percentage, default=0.02, metavar="PERCENT", help="change that never counts (2)"
    )
    parser.add_argument("--all", action="store_true", help="also show what stayed the same")
    parser.set_defaults(run=_compare)


def _list(_args: argparse.Namespace) -> int:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from gpsched.bench import scenario
    from gpsched.bench.arms import ARMS
    from gpsched.bench.models import Models

    console = Console()
    models = Models()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("SCENARIO", "LC", "BE", "POINTS", "WHAT"):
        table.add_column(title)
    for name in scenario.names():
        one = scenario.load(name)
        lc, be = (str(sum(entry.count for entry in side)) for side in (one.lc, one.be))
        table.add_row(name, lc, be, str(len(list(one.points()))), one.title)
    console.print(table)
    arms = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("ARM", "WHAT"):
        arms.add_column(title)
    for arm in ARMS.values():
        arms.add_row(arm.name, arm.title)
    console.print(arms)
    console.print("models: " + ", ".join(models.names()), highlight=False)
    return 0


def _show(args: argparse.Namespace) -> int:
    from gpsched.bench import scenario

    scenario.load(args.scenario)  # a wrong file is an error here too
    print(scenario.find(args.scenario)[1].read_text(), end="")
    return 0


def _run(args: argparse.Namespace) -> int:
    import signal

    from rich.console import Console

    from gpsched.bench import outcome, runner
    from gpsched.bench.table import print_result
    from gpsched.cli.progress import check_writable, progress

    for path in (args.json, args.html, args.trace):
        check_writable(path)
    plan = runner.prepare(args.scenario, _options(args))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unwind: end the programs, restore every setting

    def keep(so_far: "BenchResult") -> None:
        if args.json:
            outcome.write(so_far, args.json)

    with progress(Console(stderr=True)) as told:
        result = runner.run(plan, told=told, finished=keep)
    if args.html:
        _write_page(result, args.html)
    print_result(result, Console())
    return 0 if result.ok else 1


def _options(args: argparse.Namespace) -> "Options":
    import sys

    from gpsched.bench import peers, runner
    from gpsched.bench.arms import ARMS

    return runner.Options(
        device=args.device,
        seconds=args.seconds,
        rounds=args.rounds,
        warm_up=args.warm_up,
        arms=tuple(args.arms.split(",")) if args.arms else tuple(ARMS),
        peers=dict(peers.load(path) for path in args.peer),
        models=args.models,
        python=args.python or sys.executable,
        scale=args.scale,
        trace=args.trace,
    )


def _compare(args: argparse.Namespace) -> int:
    from rich.console import Console

    from gpsched.bench import outcome
    from gpsched.bench.compare import compare

    comparison = compare(outcome.read(args.before), outcome.read(args.after), args.tolerance)
    regressions = comparison.regressions(set(args.judge.split(",")))
    _print_comparison(comparison, Console(), everything=args.all)
    if regressions:
        print(f"{len(regressions)} figures became worse in: {args.judge}")
        return 1
    print(f"no regression in: {args.judge}")
    return 0


def _print_comparison(comparison: "Comparison", console: "Console", *, everything: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from gpsched.bench.table import percent

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("SCENARIO", "ARM", "PROGRAM", "FIGURE", "CHANGE", "VERDICT"):
        table.add_column(title, justify="right" if title == "CHANGE" else "left")
    for change in comparison.changes:
        if everything or change.verdict != "same":
            where = change.scenario if change.value is None else f"{change.scenario} at {change.value:g}"
            table.add_row(where, change.arm, change.program, change.figure, percent(change.ratio), change.verdict)
    if table.row_count:
        console.print(table)
    for missing in comparison.missing:
        console.print(f"only in the first: {missing}", style="yellow", markup=False, highlight=False)


def _report(args: argparse.Namespace) -> int:
    from gpsched.bench import outcome
    from gpsched.cli.progress import check_writable

    result = outcome.read(args.result)
    check_writable(args.page)
    _write_page(result, args.page)
    return 0


def _write_page(result: "BenchResult", path: Path) -> None:
    from gpsched.bench.report import render

    path.write_text(render(result))


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 1e4:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.01 to 10000")
    return value


def _percentage(text: str) -> float:
    return _positive(text.removesuffix("%")) / 100
