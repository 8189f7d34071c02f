"""All measurements that need a real GPU, in one command: ``python -m gpsched.bench.h200 --out DIR``.

GPU time is scarce: all default steps together fit in ``--budget`` seconds (20 minutes). Each step is a process of its
own with a time limit and writes what it has after every scenario; one that fails or hangs does not take the others with
it. ``DIR/index.json`` says how each went.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import msgspec

from gpsched.adaptive.errors import ConfigError, GpschedError, UnsupportedHostError
from gpsched.bench import outcome, report, runner
from gpsched.bench.demo import DEFAULT_SECONDS, Comparison, run_demo
from gpsched.bench.figures import overall_be
from gpsched.bench.plots import mean_over_alone
from gpsched.bench.result import DemoResult


_OVERHEAD_S = 100.0  # of a demonstration: daemon, CUDA's and PyTorch's start, the model's first run, verification
_UNWIND_S = 45.0  # an interrupted step ends its programs and its daemon restores every setting
_BUDGET_S = 1200.0
_LEAST_S = 60.0  # no step measures anything in less

_SINGLE = ("resident", "be-alone", "default", "seq", "static", "hold", "gpsched")
_MANY = ("resident", "default", "seq", "static", "gpsched")
_OTHERS = ("resident", "be-alone", "default", "static", "gpsched")
_SWEEP = ("resident", "default", "gpsched")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step: a demonstration, scenarios with their options, or (neither) the kernels of the models."""

    limit_s: float
    comparison: Comparison | None = None
    scenarios: tuple[str, ...] = ()
    options: runner.Options = runner.Options()


def _scenarios(names: str, arms: tuple[str, ...], seconds: float, limit_s: float, *, torch: bool = True) -> Step:
    warm_up = 3.0 if torch else 2.0  # the learner needs some 100 requests
    options = runner.Options(device="real", arms=arms, seconds=seconds, rounds=2, warm_up=warm_up, torch=torch)
    return Step(limit_s=limit_s, scenarios=tuple(names.split()), options=options)


def _torch(mode: str, prep_us: int) -> Step:
    options = ("--model", "resnet50", "--mode", mode, "--prep-us", str(prep_us))
    comparison = Comparison(programs="torch", lc_options=options, rate=50.0)
    return Step(limit_s=DEFAULT_SECONDS + _OVERHEAD_S, comparison=comparison)


#: The papers' scenarios, most telling first; the sweeps without PyTorch, whose programs take too long to start.
DEFAULT: dict[str, Step] = {
    "single": _scenarios("A B Y Z", _SINGLE, 5.0, 380.0),
    "many": _scenarios("C D E REAL", _MANY, 5.0, 340.0),
    "others": _scenarios("default R xsched-priority xsched-share http-poisson llm-decode", _OTHERS, 3.0, 300.0),
    "sweeps": _scenarios("sweep-jobs sweep-preparation sweep-rate sweep-load", _SWEEP, 1.5, 360.0, torch=False),
    "models": Step(limit_s=90.0),
}
#: Only when asked for: the rows of the measurements page that gpsched was designed from.
OPTIONAL: dict[str, Step] = {
    "cuda-prep200": Step(limit_s=DEFAULT_SECONDS + _OVERHEAD_S, comparison=Comparison()),
    "torch-graph-prep200": _torch("graph", 200),
    "torch-graph-prep1000": _torch("graph", 1000),
    "torch-eager-prep200": _torch("eager", 200),
}
STEPS = DEFAULT | OPTIONAL


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one step went. ``file``: what it measured, if anything; ``verified``: no program's state was corrupted."""

    step: str
    status: Literal["ran", "skipped", "failed", "timeout"]
    real_s: float
    file: str | None = None
    message: str | None = None
    figures: list[str] = []
    verified: bool | None = None


def run_step(name: str, directory: Path, python: str, seconds: float | None) -> int:
    """Run one step in this process and write its result."""
    step = STEPS[name]
    try:
        if step.comparison is not None:
            return _run_demo(step.comparison, directory / f"{name}.json", python, seconds)
        if step.scenarios:
            return _run_scenarios(step, directory / f"{name}.json", python, seconds)
    except GpschedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return _record_models(directory / f"{name}.toml", python)


def _told(what: str, share: float) -> None:
    print(f"  {share:4.0%} {what}", flush=True)


def _run_demo(comparison: Comparison, path: Path, python: str, seconds: float | None) -> int:
    comparison = msgspec.structs.replace(comparison, seconds=seconds or DEFAULT_SECONDS, python=python)
    path.write_bytes(msgspec.json.encode(run_demo("real", comparison, progress=_told)))
    return 0


def _run_scenarios(step: Step, path: Path, python: str, seconds: float | None) -> int:
    options = msgspec.structs.replace(step.options, python=python, seconds=seconds or step.options.seconds)
    plan = runner.prepare(list(step.scenarios), options)
    result = runner.run(plan, told=_told, finished=lambda so_far: outcome.write(so_far, path))
    path.with_suffix(".html").write_text(report.render(result))
    return 0 if result.ok else 1


def _record_models(path: Path, python: str) -> int:
    """The models' kernels with their durations, to be used on the embedded GPU (``gpsched bench run --models``)."""
    with path.open("wb") as out:
        return subprocess.call([python, str(Path(__file__).with_name("torch_models.py"))], stdout=out)


def supervise(name: str, directory: Path, python: str, limit_s: float, seconds: float | None = None) -> Outcome:
    """Run one step as a child, for as long as it may take."""
    print(name, flush=True)
    started = time.monotonic()
    for suffix in (".json", ".html", ".toml"):
        (directory / f"{name}{suffix}").unlink(missing_ok=True)
    log = directory / f"{name}.log"
    command = [sys.executable, "-m", "gpsched.bench.h200", "--out", str(directory), "--step", name]
    command += ["--python", python, *(["--seconds", str(seconds)] if seconds else [])]
    with log.open("wb") as errors:
        returncode = _run_limited(command, errors.fileno(), limit_s)
    done = _outcome(name, returncode, directory, log, time.monotonic() - started)
    print(f"  {done.status} in {done.real_s:.0f} s {done.message or ''}", *done.figures, sep="\n    ", flush=True)
    return done


def _run_limited(command: list[str], errors: int, limit_s: float) -> int | None:
    """Return the exit code, or None when the time was up: then it was interrupted, and at last killed."""
    process = subprocess.Popen(command, stderr=errors)
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_UNWIND_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return None


def _outcome(name: str, returncode: int | None, directory: Path, log: Path, real_s: float) -> Outcome:
    lines = log.read_text(errors="replace").strip().splitlines()
    message = None if returncode == 0 else lines[-1] if lines else "see its result for what failed"
    status: Literal["ran", "timeout", "skipped", "failed"] = "failed"
    if returncode is None:
        status = "timeout"
    elif returncode in (0, UnsupportedHostError.exit_code):
        status = "skipped" if returncode else "ran"
    file = next((path for suffix in (".json", ".toml") if (path := directory / f"{name}{suffix}").exists()), None)
    if file is None or file.stat().st_size == 0:
        return Outcome(step=name, status=status, real_s=real_s, message=message)
    figures, verified = _figures(file)
    return Outcome(
        step=name,
        status=status,
        real_s=real_s,
        file=file.name,
        message=message,
        figures=figures,
        verified=verified,
    )


def _figures(file: Path) -> tuple[list[str], bool | None]:
    """The few figures for the screen and the index, and whether all states were right."""
    if file.suffix == ".toml":
        return [], None
    try:
        result = outcome.read(file)
    except ConfigError:
        demo = msgspec.json.decode(file.read_bytes(), type=DemoResult)
        return [f"LC mean x{demo.ratios.mean:.3f} BE x{demo.ratios.be:.3f} of the default"], demo.ok
    lines = []
    for scenario in result.scenarios:
        if scenario.error:
            lines.append(f"{scenario.name}: {scenario.error}")
        for point in scenario.points:
            arm, at = point.arm("gpsched"), "" if point.value is None else f" at {point.value:g}"
            over, be = (mean_over_alone(arm), overall_be(arm, point.arm("default"))) if arm else (None, None)
            lines.append(f"{scenario.name}{at}: LC mean over alone {_or_dash(over)}, BE over native {_or_dash(be)}")
    return lines, result.ok


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpsched.bench.h200", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the results go")
    parser.add_argument("--only", action="append", choices=tuple(STEPS), metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--budget", type=float, default=_BUDGET_S, help="seconds for all steps together (%(default)s)")
    parser.add_argument("--seconds", type=float, help="of measuring: an arm of a scenario, or a whole demonstration")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch and torchvision")
    parser.add_argument("--step", choices=tuple(STEPS), help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Run the steps; 1 unless all of them ran and verified their state."""
    args = _parser().parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.step:
        return run_step(args.step, args.out, args.python, args.seconds)
    end = time.monotonic() + args.budget
    outcomes: list[Outcome] = []
    for name in args.only or DEFAULT:
        left = end - time.monotonic()
        if left < min(_LEAST_S, STEPS[name].limit_s):
            outcomes.append(Outcome(step=name, status="skipped", real_s=0.0, message="the budget is spent"))
        else:
            outcomes.append(supervise(name, args.out, args.python, min(left, STEPS[name].limit_s), args.seconds))
        index = {"schema": "gpsched.h200/2", "command": sys.argv, "steps": msgspec.to_builtins(outcomes)}
        (args.out / "index.json").write_text(json.dumps(index, indent=2) + "\n")
    return 0 if all(done.status == "ran" and done.verified is not False for done in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
