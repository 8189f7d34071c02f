"""All comparisons that need a real GPU, in one command: ``python -m gpsched.bench.h200 --out DIR``.

GPU time is scarce: each step is a process of its own with a time limit, writes its result as soon as it has one, and
a step that fails or hangs does not take the others with it. ``DIR/index.json`` says how each went.
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

from gpsched.adaptive.errors import GpschedError, UnsupportedHostError
from gpsched.bench.demo import DEFAULT_SECONDS, Comparison, run_demo
from gpsched.bench.result import DemoResult, Ratios


_OVERHEAD_S = 100.0  # daemon, CUDA's and PyTorch's start, the model's first run, verification
_UNWIND_S = 45.0  # an interrupted step ends its programs and its daemon restores every setting


def _torch(mode: str, prep_us: int) -> Comparison:
    options = ("--model", "resnet50", "--mode", mode, "--prep-us", str(prep_us))
    return Comparison(programs="torch", lc_options=options, rate=50.0)


#: The rows of the measurements page that these repeat: the request loop beside the FMA job, resnet50 beside products.
STEPS: dict[str, Comparison] = {
    "cuda-prep200": Comparison(),
    "torch-graph-prep200": _torch("graph", 200),
    "torch-graph-prep1000": _torch("graph", 1000),
    "torch-eager-prep200": _torch("eager", 200),
}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one step went. ``file`` and ``ratios`` where it ``ran``, else ``message``."""

    step: str
    status: Literal["ran", "skipped", "failed", "timeout"]
    real_s: float
    file: str | None = None
    message: str | None = None
    ratios: Ratios | None = None
    verified: bool | None = None


def run_step(name: str, directory: Path, seconds: float, python: str) -> int:
    """Run one step in this process and write its result."""
    comparison = msgspec.structs.replace(STEPS[name], seconds=seconds, python=python)
    try:
        result = run_demo("real", comparison, progress=lambda what, share: print(f"  {share:4.0%} {what}", flush=True))
    except GpschedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    (directory / f"{name}.json").write_bytes(msgspec.json.encode(result))
    return 0


def supervise(name: str, directory: Path, seconds: float, python: str) -> Outcome:
    """Run one step as a child, for as long as it may take."""
    print(name, flush=True)
    started = time.monotonic()
    (directory / f"{name}.json").unlink(missing_ok=True)
    log = directory / f"{name}.log"
    command = [sys.executable, "-m", "gpsched.bench.h200", "--out", str(directory), "--step", name]
    command += ["--seconds", str(seconds), "--python", python]
    with log.open("wb") as errors:
        returncode = _run_limited(command, errors.fileno(), seconds + _OVERHEAD_S)
    outcome = _outcome(name, returncode, directory, log, time.monotonic() - started)
    print(
        f"  {outcome.status} in {outcome.real_s:.0f} s {outcome.message or ''} {_ratio_text(outcome.ratios)}",
        flush=True,
    )
    return outcome


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
    file = directory / f"{name}.json"
    if returncode == 0:
        result = msgspec.json.decode(file.read_bytes(), type=DemoResult)
        return Outcome(step=name, status="ran", real_s=real_s, file=file.name, ratios=result.ratios, verified=result.ok)
    lines = log.read_text(errors="replace").strip().splitlines()
    status: Literal["timeout", "skipped", "failed"] = "failed"
    if returncode is None:
        status = "timeout"
    elif returncode == UnsupportedHostError.exit_code:
        status = "skipped"
    return Outcome(step=name, status=status, real_s=real_s, message=lines[-1] if lines else "it said nothing")


def _ratio_text(ratios: Ratios | None) -> str:
    if ratios is None:
        return ""
    return f"LC mean x{ratios.mean:.3f} p99 x{ratios.p99:.3f} BE x{ratios.be:.3f} of the default"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpsched.bench.h200", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the results go")
    parser.add_argument("--only", action="append", choices=tuple(STEPS), metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="of measuring, a step (%(default)s)")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch and torchvision")
    parser.add_argument("--step", choices=tuple(STEPS), help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Run the steps; 1 unless all of them ran and verified their state."""
    args = _parser().parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.step:
        return run_step(args.step, args.out, args.seconds, args.python)
    outcomes: list[Outcome] = []
    for name in args.only or STEPS:
        outcomes.append(supervise(name, args.out, args.seconds, args.python))
        index = {"schema": "gpsched.h200/1", "command": sys.argv, "steps": msgspec.to_builtins(outcomes)}
        (args.out / "index.json").write_text(json.dumps(index, indent=2) + "\n")
    return 0 if all(outcome.status == "ran" and outcome.verified for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
