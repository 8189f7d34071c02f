"""``gpsched cluster``: forecast demand, simulate and compare spot policies, control a Slurm cluster, make reports."""

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from gpsched.tuner.cluster.generate import GeneratorSettings
    from gpsched.tuner.cluster.model import Workload


_EPILOG = """examples:
  gpsched cluster simulate --days 7                           our policy on a synthetic 10,412-GPU cluster
  gpsched cluster compare --arms fifo,static-quota,ours --seeds 5 --out result.json
  gpsched cluster compare --scenario philly --traces DIR      the same on a public trace
  gpsched cluster forecast --traces DIR --html forecast.html  pinball loss and coverage on real demand
  gpsched cluster control --engine slurm --dry-run            what it would do to the Slurm cluster here
  gpsched cluster rules >>/etc/gpsched/config.toml            on each node: classes by the jobs' QOS
  gpsched cluster report result.json --html result.html
"""


def add_parser(subparsers: "argparse._SubParsersAction[Any]") -> None:
    """Add ``cluster`` and its actions."""
    parser = subparsers.add_parser(
        "cluster",
        help="forecast, spot quotas and victims for a whole cluster: simulate them, or run them on Slurm",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_forecast(actions)
    one = actions.add_parser("simulate", help="one policy on one workload")
    one.add_argument("--arm", default="ours", help="policy (default: ours)")
    one.add_argument("--seed", type=_positive(int), default=1)
    many = actions.add_parser("compare", help="several policies on the same workloads, with intervals and the target")
    many.add_argument("--arms", default="", metavar="A,B", help="policies (default: all)")
    many.add_argument("--seeds", type=_positive(int), default=5, help="number of workloads (default: 5)")
    for sub in (one, many):
        _add_workload(sub)
        _add_output(sub)
    _add_control(actions)
    rules = actions.add_parser("rules", help="print what the nodes' configuration needs to know of the QOS")
    _add_qos(rules)
    report = actions.add_parser("report", help="show result files again, as tables or HTML")
    report.add_argument("result", type=Path, nargs="+", help="files written with --out; several are shown as one")
    _add_output(report)


def _positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return value

    parse.__name__ = "number"  # argparse names it in messages
    return parse


def _add_workload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", default="alibaba", help="alibaba (synthetic), helios, philly, openb or gfs")
    parser.add_argument("--traces", type=Path, metavar="DIR", help="folder of the public traces (docs/cluster.md)")
    parser.add_argument("--days", type=_positive(float), default=30.0, help="length of a synthetic workload")
    parser.add_argument(
        "--scale", type=_positive(float), default=1.0, help="size of the synthetic cluster; 1 is 10,412 GPUs"
    )
    parser.add_argument(
        "--spot-load", type=_positive(float), default=0.15, help="spot GPU time over capacity (default: 0.15)"
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse a trace with any bad row instead of leaving rows out"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    parser.add_argument("--html", type=Path, help="write a page with plots")
    parser.add_argument("--markdown", action="store_true", help="print Markdown in place of a table")


def _add_forecast(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser("forecast", help="backtest the demand forecast: pinball loss and coverage")
    parser.add_argument("--series", default="models", choices=("models", "helios"), help="by GPU model, or by tenant")
    parser.add_argument("--traces", type=Path, metavar="DIR", required=True, help="folder of the public traces")
    parser.add_argument("--methods", default="boosting,linear,last-value", metavar="A,B")
    parser.add_argument("--level", type=_share, default=0.9, help="quantile (default: 0.9)")
    parser.add_argument("--train-hours", type=_positive(int), default=504)
    parser.add_argument("--test-hours", type=_positive(int), default=236)
    parser.add_argument("--html", type=Path, help="write a page with plots")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def _add_control(actions: "argparse._SubParsersAction[Any]") -> None:
    parser = actions.add_parser("control", help="run the decisions on a real cluster until SIGTERM")
    parser.add_argument("--engine", choices=("slurm",), default="slurm")
    parser.add_argument("--dry-run", action="store_true", help="journal what would be done, change nothing")
    parser.add_argument("--once", action="store_true", help="one cycle, then a safe stop")
    parser.add_argument("--interval", type=_positive(float), default=10.0, help="seconds between cycles (default: 10)")
    parser.add_argument("--state-dir", type=Path, default=Path("/var/lib/gpsched/cluster"), help="journal and state")
    parser.add_argument(
        "--lock", type=Path, help="leader lock, on storage all controllers share (default: in the state dir)"
    )
    _add_qos(parser)
    parser.add_argument(
        "--victims", choices=("gpsched", "slurm"), default="gpsched", help="who chooses what HP jobs evict"
    )
    parser.add_argument(
        "--stop-quota", type=int, help="GPUs each spot QOS is left with at a safe stop (default: as it is)"
    )
    parser.add_argument("--most-evictions", type=_positive(int), default=64, help="per cycle (default: 64)")
    parser.add_argument(
        "--per-minute", type=_positive(int), default=120, help="changes a minute at most (default: 120)"
    )
    parser.add_argument("--take-back", action="store_true", help="overwrite a QOS that someone else edited")


def _add_qos(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hp-qos", type=_qos, default="hp", metavar="NAME", help="QOS of HP jobs (default: hp)")
    parser.add_argument(
        "--spot-qos", default="spot,spot-1h,spot-2h,spot-4h", help="NAME or NAME-<hours>h, comma-separated"
    )


def _qos(text: str) -> str:
    import re

    if not re.fullmatch(r"[\w.-]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no QOS name")
    return text


def run(args: argparse.Namespace) -> int:
    """Run one action; returns the exit code."""
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    ):  # before scikit-learn loads: its threads spin and slow all down
        os.environ.setdefault(name, "1")
    actions = {
        "forecast": _forecast,
        "simulate": _simulate,
        "compare": _compare,
        "control": _control,
        "rules": _rules,
        "report": _report,
    }
    return actions[args.action](args)


def _simulate(args: argparse.Namespace) -> int:
    return _run_arms(args, [args.arm], [args.seed])


def _compare(args: argparse.Namespace) -> int:
    from gpsched.tuner.cluster.arms import PROPOSED

    names = args.arms.split(",") if args.arms else [arm.name for arm in PROPOSED]
    return _run_arms(args, names, list(range(1, args.seeds + 1)))


def _run_arms(args: argparse.Namespace, arms: list[str], seeds: list[int]) -> int:
    from gpsched.tuner.cluster.arms import make_arm
    from gpsched.tuner.cluster.compare import compare
    from gpsched.tuner.cluster.generate import GeneratorSettings
    from gpsched.tuner.cluster.report import save_results

    for arm in arms:
        make_arm(arm)  # an unknown name fails before an hour of work
    _check_output(args)
    workloads = (
        _load(args, GeneratorSettings(days=args.days, scale=args.scale, spot_load=args.spot_load, seed=seed))
        for seed in seeds
    )
    about = {"command": _command_line(), **_machine()}
    results = []
    with _progress(args.quiet, len(seeds) * len(arms)) as show:
        for one in compare(workloads, arms, show, timeline=len(seeds) == 1):
            results.append(one)
            if args.out:  # after each: hours of work are not lost with the last of it
                save_results(args.out, results, about)
    return _show(results, about, args)


def _load(args: argparse.Namespace, settings: "GeneratorSettings") -> "Workload":
    from gpsched.tuner.cluster.scenarios import load

    workload = load(args.scenario, args.traces, settings, not args.strict)
    for reason, count in workload.skipped.items():
        print(f"{workload.name}: left out {count} rows: {reason}")
    return workload


def _check_output(args: argparse.Namespace) -> None:
    from gpsched.adaptive.errors import UsageError

    for path in (getattr(args, "out", None), args.html):
        if path and not path.parent.is_dir():
            raise UsageError(f"{path}: the folder {path.parent} does not exist; create it first")


def _show(results: list[Any], about: dict[str, Any], args: argparse.Namespace) -> int:
    from gpsched.tuner.cluster.compare import summary, verdicts
    from gpsched.tuner.cluster.report import COLUMNS, cells, markdown, results_page, verdict_rows

    if args.html:
        args.html.write_text(results_page(results, about), encoding="utf-8")
    if args.markdown:
        print(markdown(results), end="")
        return 0
    _print_table(
        ["policy", *(heading for heading, _, _ in COLUMNS.values())],
        [[p, *cells(f)] for p, f in summary(results).items()],
    )
    found = verdicts(results)
    if found:
        _print_table(["ours against", "figure", "change", "wanted", "met"], verdict_rows(found))
    return 0


def _print_table(heads: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for index, head in enumerate(heads):
        table.add_column(head, justify="right" if index else "left", no_wrap=index == 0)
    for row in rows:
        table.add_row(*row)
    console = Console()
    # A pipe or file has no width of its own: give the table what it needs rather than cut cells.
    Console(width=console.width if console.is_terminal else 240).print(table)


@contextlib.contextmanager
def _progress(quiet: bool, total: int) -> Iterator[Callable[[str, float], None] | None]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total)
        done: dict[str, float] = {}

        def show(label: str, share: float) -> None:
            done[label] = share
            bar.update(task, description=label, completed=sum(done.values()))

        yield show


def _forecast(args: argparse.Namespace) -> int:
    from gpsched.tuner.cluster.backtest import backtest
    from gpsched.tuner.cluster.forecast import ForecastSettings
    from gpsched.tuner.cluster.report import backtest_page, score_rows
    from gpsched.tuner.cluster.traces import read_helios_demand, read_model_demand

    _check_output(args)
    if args.series == "models":
        folder = args.traces / "alibaba-v2026-spot-gpu/derived-mit"
        series = read_model_demand(folder / "hourly_concurrency_top_models.csv")
    else:
        series, _ = read_helios_demand(args.traces / "helios-earth/earth_vc_hourly_2020-05.csv")
        series["(all)"] = [sum(values) for values in zip(*series.values(), strict=True)]
    with _progress(args.quiet, 1) as show:
        found = backtest(
            series,
            args.train_hours,
            args.test_hours,
            tuple(args.methods.split(",")),
            ForecastSettings(level=args.level),
            (lambda share: show("forecast", share)) if show else None,
        )
    if args.html:
        args.html.write_text(backtest_page(found, {"command": _command_line(), **_machine()}), encoding="utf-8")
    _print_table(
        ["method", "series", "h", "pinball GPUs", "pinball", "coverage", "reserve GPUs", "steps"], score_rows(found)
    )
    return 0


def _control(args: argparse.Namespace) -> int:
    import signal
    import threading

    from gpsched.tuner.cluster.controller import Controller, ControllerSettings

    settings = ControllerSettings(
        state_dir=args.state_dir,
        lock=args.lock or args.state_dir / "leader.lock",
        hp_qos=args.hp_qos,
        spot=_guarantees(args.spot_qos),
        interval_s=args.interval,
        victims=args.victims == "gpsched",
        stop_quota=args.stop_quota,
        most_evictions=args.most_evictions,
        take_back=args.take_back,
    )
    controller = Controller(settings, args.dry_run, args.per_minute)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        if args.once:
            controller.cycle()
        else:
            print(f"controlling {', '.join(settings.spot)}; journal in {args.state_dir}/journal.jsonl", flush=True)
            controller.run(ended.is_set)
    finally:
        controller.stop()
    return 0


def _rules(args: argparse.Namespace) -> int:
    from gpsched.tuner.cluster.nodelink import node_rules

    print(node_rules(args.hp_qos, _guarantees(args.spot_qos)), end="")
    return 0


def _guarantees(text: str) -> dict[str, float]:
    import re

    found = {}
    for name in text.split(","):
        if not re.fullmatch(r"[\w.-]+", name):
            from gpsched.adaptive.errors import UsageError

            raise UsageError(f"--spot-qos: {name!r} is no QOS name")
        hours = re.search(r"-(\d+)h$", name)
        found[name] = int(hours[1]) * 3600.0 if hours else 0.0
    return found


def _report(args: argparse.Namespace) -> int:
    from gpsched.tuner.cluster.report import load_results, merge, save_results

    _check_output(args)
    results, about = merge([load_results(path) for path in args.result])
    if args.out:
        save_results(args.out, results, about)
    return _show(results, about, args)


def _command_line() -> str:
    import shlex
    import sys

    return shlex.join(["gpsched", *sys.argv[1:]])


def _machine() -> dict[str, str]:
    import datetime
    import platform

    now = datetime.datetime.now(datetime.UTC)
    return {
        "date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
    }
