"""``gpsched bench tuner``: the proof of the tuner against an oracle, the defaults and other searches."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpsched.cli.arguments import Subparsers


if TYPE_CHECKING:
    from gpsched.bench.tuner.bed import Beds
    from gpsched.bench.tuner.mix import Mix
    from gpsched.bench.tuner.proof import Options
    from gpsched.bench.tuner.result import TunerResult


_DESCRIPTION = """For each mix of services and jobs, a grid of static settings gives the oracle. Then every arm runs
through the same windows: what it reaches of the oracle's best-effort progress, how soon, and how often it misses an
objective; also after a change of load or jobs, and for the tuner when it starts with what it learned before."""
_WRITE_EVERY_S = 2.0


def add_parser(actions: Subparsers) -> None:
    """Declare the action."""
    parser = actions.add_parser(
        "tuner",
        help="prove the tuner: against the best of a grid, the defaults and other searches",
        description=_DESCRIPTION + " Exit code 1: a target is missed.",
    )
    parser.add_argument("mix", nargs="*", metavar="MIX", help="names or TOML files (all: see --list)")
    parser.add_argument("--list", action="store_true", help="show the mixes and arms")
    parser.add_argument("--result", type=Path, metavar="FILE", help="show this earlier result, run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every window to FILE")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with curves")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write a figure a mix, as SVG")
    parser.add_argument("--markdown", action="store_true", help="print Markdown in place of tables")
    parser.add_argument(
        "--device",
        choices=("virtual", "simulated", "real"),
        default="virtual",
        help="the embedded GPU in virtual time; or programs and a daemon on the embedded or a real GPU (%(default)s)",
    )
    parser.add_argument(
        "--windows", metavar="N,M", type=_windows, help="windows before and after the change (60,40); M = 0: no change"
    )
    parser.add_argument("--window", metavar="S", type=float, help="length of a window (each mix' own)")
    parser.add_argument(
        "--static-windows", metavar="N", type=int, help="the most for arms that never change their settings (all)"
    )
    parser.add_argument(
        "--no-calibrate", action="store_true", help="reckon with an H200's costs, not those of the GPU at hand"
    )
    parser.add_argument(
        "--fit",
        action="store_true",
        help="with programs: move objectives by what services need more alone there than in virtual time",
    )
    parser.add_argument(
        "--scale", type=float, default=5.0, metavar="X", help="real time a µs of the embedded GPU takes"
    )
    parser.add_argument(
        "--earlier",
        type=Path,
        metavar="FILE",
        help="take the oracles and rivals of the same mixes from this earlier result: only the tuner runs anew",
    )
    parser.add_argument("--arms", metavar="A,B", help="only these, of: see --list")
    parser.add_argument("--seeds", type=int, choices=range(1, 21), default=2, metavar="N", help="runs of each arm (2)")
    parser.add_argument(
        "--rival-seeds", type=int, choices=range(1, 21), default=20, metavar="N", help="the most for all but the tuner"
    )
    parser.add_argument(
        "--limit", type=int, metavar="S", help="end after so many seconds, with what there is; programs end soon after"
    )
    parser.add_argument("--quick", action="store_true", help="a coarse grid, one seed, few windows: to see it work")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run or show; what there is is written every few seconds, and shown when the run is interrupted."""
    import os

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before numpy loads: its threads spin and slow all down
        os.environ.setdefault(name, "1")
    from rich.console import Console

    from gpsched.bench.tuner import proof, result
    from gpsched.bench.tuner.report import markdown, print_result
    from gpsched.cli.progress import check_writable, progress

    if args.list:
        return _list()
    for path in (args.json, args.html):
        check_writable(path)
    if args.result:
        found = result.read(args.result)
    else:
        mixes, options = _mixes(args), _options(args)
        keeper = _Keeper(args.json)
        try:
            with ExitStack() as stack, _ended_after(args.limit):
                told = stack.enter_context(progress(Console(stderr=True)))
                options, beds, fitted = _place(args, options, stack)
                proof.run(mixes, options, beds, told=told, kept=keeper.keep, fitted=fitted)
        except KeyboardInterrupt:
            print("gpsched: ended before its time; this is what there is so far", file=sys.stderr)
        finally:
            keeper.write()
        if keeper.last is None:
            raise KeyboardInterrupt
        found = keeper.last
    _write(found, args)
    if args.markdown:
        print(markdown(found), end="")
    else:
        print_result(found, Console())
    return 0 if found.ok else 1


@contextmanager
def _ended_after(limit_s: int | None) -> Iterator[None]:
    """An interrupt after so much real time, so that whoever has a machine for minutes gets what was measured."""
    import signal

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(limit_s or 0)
    try:
        yield
    finally:  # unwinding itself must not be interrupted
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class _Keeper:
    """Holds the result so far; it is on disk every few seconds."""

    def __init__(self, path: Path | None) -> None:
        self.last: TunerResult | None = None
        self._path, self._due = path, 0.0

    def keep(self, so_far: "TunerResult") -> None:
        self.last = so_far
        if time.monotonic() >= self._due:
            self.write()
            self._due = time.monotonic() + _WRITE_EVERY_S

    def write(self) -> None:
        from gpsched.bench.tuner import result

        if self._path and self.last:
            result.write(self.last, self._path)


def _mixes(args: argparse.Namespace) -> "dict[str, Mix]":
    import msgspec

    from gpsched.bench.tuner import mix

    mixes = mix.load(args.mix or mix.names())
    return {
        name: msgspec.structs.replace(one, window_s=args.window) if args.window else one for name, one in mixes.items()
    }


def _options(args: argparse.Namespace) -> "Options":
    import msgspec

    from gpsched.bench.tuner import result
    from gpsched.bench.tuner.proof import ARMS, Options

    arms = tuple(args.arms.split(",")) if args.arms else ARMS
    known = result.read(args.earlier).by_identity() if args.earlier else {}
    options = Options(
        arms=arms,
        static_windows=args.static_windows,
        seeds=args.seeds,
        rival_seeds=args.rival_seeds,
        earlier=known,
    )
    if args.quick:
        options = msgspec.structs.replace(options, windows=(20, 10), warm_windows=8, seeds=1, coarse=True)
    return msgspec.structs.replace(options, windows=args.windows) if args.windows else options


def _place(
    args: argparse.Namespace, options: "Options", stack: ExitStack
) -> tuple["Options", "Beds", "Callable[[Mix], Mix]"]:
    """What the windows run on, and how objectives are fitted to it."""
    import signal

    import msgspec

    from gpsched.bench.tuner.bed import VirtualBed

    if args.device == "virtual":
        return options, VirtualBed, _as_it_is
    from gpsched.bench.tuner import proof
    from gpsched.bench.tuner.live import Live

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unwind: end the programs, restore every setting
    live = stack.enter_context(Live(args.device, args.scale, measure_costs=not args.no_calibrate))
    how = "programs and a daemon on " + ("the embedded GPU in stretched time" if live.gpu.simulated else "a real GPU")
    how += f"; {live.costs_note}"
    if args.fit:
        how += "; objectives moved by what services need more alone there than in virtual time"
    options = msgspec.structs.replace(options, host=proof.host(live.gpu), how=how)
    return options, live.beds, live.fitted if args.fit else _as_it_is


def _as_it_is(mix: "Mix") -> "Mix":
    return mix


def _windows(text: str) -> tuple[int, int]:
    first, _, second = text.partition(",")
    if not (first.isdecimal() and second.isdecimal() and int(first) >= 5 and (int(second) >= 5 or int(second) == 0)):
        raise argparse.ArgumentTypeError(f"{text!r} is not two numbers from 5 on, like 60,40 (the second may be 0)")
    return int(first), int(second)


def _list() -> int:
    from gpsched.bench.tuner import mix
    from gpsched.bench.tuner.proof import ARMS

    for name, one in mix.load(mix.names()).items():
        print(f"{name:10} {one.title}; then: {one.after.what}")
    print(f"arms: {', '.join(ARMS)}")
    return 0


def _write(found: "TunerResult", args: argparse.Namespace) -> None:
    from gpsched.bench.tuner.report import figure, page

    if args.html:
        args.html.write_text(page(found), encoding="utf-8")
    if args.figures:
        args.figures.mkdir(parents=True, exist_ok=True)
        for mix in found.mixes:
            (args.figures / f"{mix.name}.svg").write_text(figure(mix) + "\n", encoding="utf-8")
