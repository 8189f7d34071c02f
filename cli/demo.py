"""``gpsched demo``: the same service alone, beside a job under the driver's default, and beside it under gpsched."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers


if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gpsched.bench.result import Arm, DemoResult

_BARS = " ▁▂▃▄▅▆▇█"
_BINS = 24


def add_parser(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "demo",
        help="measure a service and a job, with and without gpsched",
        description="Measures a latency-critical service alone, beside a best-effort job under the driver's default, "
        "and beside it under gpsched. Without a GPU it uses the embedded one. "
        "Exit code 1: the state on the GPU was corrupted.",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the result, with every latency, to FILE")
    parser.add_argument(
        "--device", choices=("simulated", "real", "auto"), default="auto", help="which GPU (%(default)s)"
    )
    parser.add_argument("--seconds", type=_seconds, metavar="N", help="of measuring; set-up comes on top (54)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, write the JSON, print the table."""
    import signal

    import msgspec
    from rich.console import Console

    from gpsched.bench.demo import DEFAULT_SECONDS, Comparison, run_demo
    from gpsched.cli.progress import check_writable, progress

    check_writable(args.json)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unwind: end the programs, restore every setting
    with progress(Console(stderr=True)) as told:
        comparison = Comparison(seconds=args.seconds or DEFAULT_SECONDS)
        result = run_demo(args.device, comparison, progress=told)
    if args.json:
        args.json.write_bytes(msgspec.json.encode(result) + b"\n")
    _print(result, Console())
    return 0 if result.ok else 1


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to 3600")
    return seconds


def _print(result: "DemoResult", console: "Console") -> None:
    host, ratios = result.host, result.ratios
    kind = (
        f"simulated ({host.gpu}, time x{host.scale:g})"
        if host.simulated
        else f"real ({host.gpu}, driver {host.driver})"
    )
    console.print(f"GPU: {kind}; {result.rate:g} requests/s; latencies in µs of the GPU's time", highlight=False)
    console.print(_table(result))
    console.print(
        f"gpsched against the default: LC mean x{ratios.mean:.2f}, p50 x{ratios.p50:.2f}, p99 x{ratios.p99:.2f}; "
        f"BE x{ratios.be:.3f}",
        highlight=False,
    )
    for name, level in sorted(result.managed.levels.items(), reverse=True):
        console.print(f"{name.upper()} level {level}", highlight=False, markup=False)
    _print_checks(result, console)


def _print_checks(result: "DemoResult", console: "Console") -> None:
    check, managed = result.be_verification, result.managed
    if result.ok:
        console.print(f"BE state verified: {check.kernels} kernels, none lost or repeated", highlight=False)
    else:
        console.print(
            f"STATE CORRUPTED: BE {check.bad_counters} counters and {check.bad_states} words, "
            f"LC {result.lc_verification.bad_counters} counters are wrong",
            style="bold red",
            highlight=False,
        )
    if managed.lost_events:
        console.print(f"{managed.lost_events} events were lost", style="yellow", highlight=False)
    if managed.failed_controls:
        message = f"{managed.failed_controls} controls failed; the last: {managed.last_failure}"
        console.print(message, style="yellow", highlight=False, markup=False)


def _table(result: "DemoResult") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from gpsched.bench.stats import histogram, log_edges

    edges = log_edges([us for arm in result.arms for us in arm.latencies], _BINS)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("LC")
    for title in ("mean", "p50", "p99", "BE/s"):
        table.add_column(title, justify="right")
    table.add_column(_axis(edges[0], edges[-1]), no_wrap=True)
    names = {"alone": "alone", "default": "beside BE, default", "gpsched": "beside BE, gpsched"}
    for arm in result.arms:
        table.add_row(names[arm.name], *_figures(arm), _bars(histogram(arm.latencies, edges)))
    return table


def _axis(low: float, high: float) -> str:
    left, right = f"{low:.0f}", f"{high:.0f} µs"
    return left + "(log)".center(_BINS - len(left) - len(right)) + right


def _figures(arm: "Arm") -> list[str]:
    latency = arm.latency
    figures = [f"{value:.0f}" for value in (latency.mean, latency.p50, latency.p99)]
    return [*figures, "-" if arm.be_per_s is None else f"{arm.be_per_s:.0f}"]


def _bars(counts: list[int]) -> str:
    """One character a bin; a bin that is not empty is never blank."""
    top = max(counts)
    return "".join(_BARS[0 if not count else max(1, round(count / top * (len(_BARS) - 1)))] for count in counts)
