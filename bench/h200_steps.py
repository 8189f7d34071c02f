"""The steps of the measurements on a real GPU, and how one is run. All scenarios end up in one result."""

import ctypes
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from gpsched.adaptive.errors import GpschedError
from gpsched.bench import outcome, runner
from gpsched.bench.demo import DEFAULT_SECONDS, Comparison, run_demo
from gpsched.bench.device import Kind


RESULTS, DEMOS, MODELS, EVENTS = "results.json", "demos.json", "models.toml", "events.gz"
DAEMONS = "log.txt"  # that of the steps: what the daemons say is between what a step says

_OVERHEAD_S = 100.0  # of a demonstration: daemon, CUDA's and PyTorch's start, the model's first run, verification
_PR_SET_PDEATHSIG = 1

_SINGLE = ("resident", "be-alone", "default", "seq", "static", "hold", "gpsched")
_MANY = ("resident", "default", "seq", "static", "gpsched")
_OTHERS = ("resident", "be-alone", "default", "static", "gpsched")
_SWEEP = ("resident", "default", "gpsched")
_TARGETS = ("resident", "default", "reserve", "gpsched")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step: a demonstration, scenarios with their options, or (neither) the kernels of the models."""

    limit_s: float
    comparison: Comparison | None = None
    scenarios: tuple[str, ...] = ()
    options: runner.Options = runner.Options()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """For all steps: ``seconds`` of measuring (None: each step's own), an interpreter with PyTorch, and the GPU."""

    directory: Path
    python: str = sys.executable
    seconds: float | None = None
    device: Kind = "real"


def _scenarios(names: str, arms: tuple[str, ...], seconds: float, limit_s: float, *, torch: bool = True) -> Step:
    warm_up = 3.0 if torch else 2.0  # the learner needs some 100 requests
    options = runner.Options(arms=arms, seconds=seconds, rounds=2, warm_up=warm_up, torch=torch)
    return Step(limit_s=limit_s, scenarios=tuple(names.split()), options=options)


def _torch(mode: str, prep_us: int) -> Step:
    options = ("--model", "resnet50", "--mode", mode, "--prep-us", str(prep_us))
    comparison = Comparison(programs="torch", lc_options=options, rate=50.0)
    return Step(limit_s=DEFAULT_SECONDS + _OVERHEAD_S, comparison=comparison)


#: Most telling first, so that a short budget is spent well. The sweeps go without PyTorch, whose programs take too long
#: to start.
DEFAULT: dict[str, Step] = {
    "kernels": _scenarios("default llm-decode", _SINGLE, 4.0, 150.0, torch=False),
    "targets": _scenarios("lead jobs-lead-500 jobs-lead-0", _TARGETS, 5.0, 360.0, torch=False),
    "http": _scenarios("http-torch-graph http-torch-eager", _SWEEP, 6.0, 150.0),
    "models": Step(limit_s=90.0),
    "single": _scenarios("A B Y Z", _SINGLE, 10.0, 540.0),  # 1,000 requests an arm
    "many": _scenarios("C D E REAL", _MANY, 5.0, 340.0),
    "others": _scenarios("R xsched-priority xsched-share http-poisson", _OTHERS, 3.0, 240.0),
    "sweeps": _scenarios("sweep-jobs sweep-preparation sweep-rate sweep-load", _SWEEP, 1.5, 360.0, torch=False),
}
#: Only when asked for: the rows of the measurements page that gpsched was designed from.
OPTIONAL: dict[str, Step] = {
    "brief": _scenarios("A B C D E REAL Y Z", _SWEEP, 5.0, 420.0),
    "cuda-prep200": Step(limit_s=DEFAULT_SECONDS + _OVERHEAD_S, comparison=Comparison()),
    "torch-graph-prep200": _torch("graph", 200),
    "torch-graph-prep1000": _torch("graph", 1000),
    "torch-eager-prep200": _torch("eager", 200),
}
STEPS = DEFAULT | OPTIONAL


def run_step(name: str, settings: Settings) -> int:
    """Run one step in this process and add what it measured to the files of the folder."""
    _end_with_parent()
    step = STEPS[name]
    try:
        if step.comparison is not None:
            return _run_demo(name, step.comparison, settings)
        if step.scenarios:
            return _run_scenarios(step, settings)
        return _record_models(settings)
    except GpschedError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _end_with_parent() -> None:
    """Be interrupted when the supervisor is killed: then programs end, and daemons restore what they changed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)


def _told(what: str, share: float) -> None:
    print(f"  {share:4.0%} {what}", flush=True)


def _run_demo(name: str, comparison: Comparison, settings: Settings) -> int:
    seconds = settings.seconds or DEFAULT_SECONDS
    comparison = msgspec.structs.replace(comparison, seconds=seconds, python=settings.python)
    result = run_demo(settings.device, comparison, progress=_told)
    path = settings.directory / DEMOS
    known: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    path.write_bytes(msgspec.json.encode({**known, name: result}))
    return 0


def _run_scenarios(step: Step, settings: Settings) -> int:
    directory, options = settings.directory, step.options
    seconds = settings.seconds
    options = msgspec.structs.replace(
        options,
        device=settings.device,
        python=settings.python,
        seconds=seconds or options.seconds,
        warm_up=min(options.warm_up, 2 * seconds) if seconds else options.warm_up,
        trace=directory / EVENTS,
        log=directory / DAEMONS,
    )
    plan = runner.prepare(list(step.scenarios), options)
    result = runner.run(plan, told=_told, finished=lambda so_far: add_result(so_far, directory / RESULTS))
    return 0 if result.ok else 1


def add_result(result: outcome.BenchResult, path: Path) -> None:
    """Put scenarios into the result at ``path``, in place of those of the same names."""
    if path.exists():
        names = {scenario.name for scenario in result.scenarios}
        kept = [scenario for scenario in outcome.read(path).scenarios if scenario.name not in names]
        result = msgspec.structs.replace(result, scenarios=kept + result.scenarios)
    new = path.with_suffix(".new")
    outcome.write(result, new)
    new.replace(path)


def _record_models(settings: Settings) -> int:
    """The models' kernels with their durations, to be used on the embedded GPU (``gpsched bench run --models``)."""
    command = [settings.python, str(Path(__file__).with_name("torch_models.py"))]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.stdout:
        (settings.directory / MODELS).write_bytes(done.stdout)
    return done.returncode
