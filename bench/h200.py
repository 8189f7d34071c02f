"""All measurements that need a real GPU, in one command: ``python -m gpsched.bench.h200 --out DIR``.

GPU time is scarce: the steps end within ``--budget`` seconds. Each is a process of its own with a time limit, and what
it has measured is in the folder after every scenario; one that fails or hangs does not take the others with it.
``--check`` tries in seconds whether they can run at all. ``DIR`` then holds, at most: index.json (how each step went),
check.txt, results.json, page.html, models.toml, events.gz, demos.json, log.txt.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal

from gpsched.bench.h200_check import Line, check


_UNWIND_S = 45.0  # an interrupted step ends its programs and its daemons restore every setting
_STRAY_S = 15.0  # daemons of a step that was killed restore them, too
_BUDGET_S = 1200.0
_INTERRUPTED = 130
_UNSUPPORTED = 77  # UnsupportedHostError.exit_code, without importing what may be missing
_STRETCH = 10.0  # the embedded GPU's time, and its host's
_LEAST_S = 60.0  # no step measures anything in less
_CHECK, _LOG, _INDEX, _PAGE = "check.txt", "log.txt", "index.json", "page.html"

Status = Literal["ran", "skipped", "failed", "timeout"]
Steps = dict[str, dict[str, object]]


def _check(args: argparse.Namespace) -> list[Line]:
    lines = []
    with (args.out / _CHECK).open("w") if args.out else open(os.devnull, "w") as file:
        for line in check(args.python, args.device):
            lines.append(line)
            for out in (file, sys.stdout):
                print(line, file=out, flush=True)
    return lines


def _supervise(name: str, args: argparse.Namespace, limit_s: float) -> dict[str, object]:
    """Run one step as a child, for as long as it may take; return how it went."""
    print(f"{name}, at most {limit_s:.0f} s", flush=True)
    started = time.monotonic()
    command = [sys.executable, "-m", "gpsched.bench.h200", "--out", str(args.out), "--step", name]
    command += ["--python", args.python, "--device", args.device]
    command += ["--seconds", str(args.seconds)] if args.seconds else []
    with (args.out / _LOG).open("ab") as log:
        log.write(f"== {name}\n".encode())
        log.flush()
        begin = log.tell()
        returncode = _run_limited(command, log, limit_s)
    said = (args.out / _LOG).read_bytes()[begin:].decode(errors="replace").strip().splitlines()
    status = _status(returncode)
    message = None if returncode == 0 else said[-1] if said else "see results.json for what failed"
    figures, verified = _figures(name, args.out)
    real_s = round(time.monotonic() - started, 1)
    print(f"  {status} in {real_s:.0f} s {message or ''}", *figures, sep="\n    ", flush=True)
    return {"status": status, "real_s": real_s, "message": message, "figures": figures, "verified": verified}


def _status(returncode: int | None) -> Status:
    if returncode is None:
        return "timeout"
    return "ran" if returncode == 0 else "skipped" if returncode == _UNSUPPORTED else "failed"


def _run_limited(command: list[str], errors: IO[bytes], limit_s: float) -> int | None:
    """Return the exit code, or None when the time was up: then it was interrupted, and at last killed.

    Nothing that it started is left when this returns.
    """
    process = subprocess.Popen(command, stderr=errors, start_new_session=True)
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_UNWIND_S)
        return None
    except BaseException:  # interrupted ourselves: the step ends as it would at its limit
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_UNWIND_S)
        raise
    finally:
        process.kill()
        process.wait()
        _end_group(process.pid)


def _end_group(group: int) -> None:
    """Wait for what is left of a step (a daemon puts things back when its parent dies), and kill what stays."""
    end = time.monotonic() + _STRAY_S
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < end:
            time.sleep(0.1)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)


def _figures(name: str, directory: Path) -> tuple[list[str], bool | None]:
    """The few figures of a step for the screen and the index, and whether all states were right."""
    try:
        from gpsched.bench import h200_figures
    except ImportError as error:
        return [f"no figures: {error}"], None
    return h200_figures.of_step(name, directory)


def _add(earlier: Path, out: Path) -> None:
    """Take an earlier run's files; what is measured now is added to them."""
    for name in ("results.json", "models.toml", "events.gz", "demos.json", _INDEX, _LOG):
        if (earlier / name).exists():
            shutil.copyfile(earlier / name, out / name)


def _page(directory: Path) -> None:
    """Nicer to have on the spot; ``gpsched bench report`` makes it anywhere."""
    if not (directory / "results.json").exists():
        return
    try:
        from gpsched.bench import outcome, report

        (directory / _PAGE).write_text(report.render(outcome.read(directory / "results.json")))
    except Exception as error:
        print(f"no page ({error}); make it later: gpsched bench report results.json page.html", flush=True)


def _run_steps(args: argparse.Namespace, names: list[str]) -> Steps:
    from gpsched.bench.h200_steps import STEPS

    end = time.monotonic() + args.budget
    patience = 1.0 if args.device == "real" else _STRETCH
    path = args.out / _INDEX
    known = json.loads(path.read_text()) if path.exists() else {}
    commands, steps = [*known.get("commands", []), sys.argv], known.get("steps", {})
    ran: Steps = {}
    for name in names:
        limit = min(end - time.monotonic() - _UNWIND_S, STEPS[name].limit_s * patience)
        if limit < min(_LEAST_S, STEPS[name].limit_s):
            ran[name] = {"status": "skipped", "message": "the budget is spent"}
        else:
            ran[name] = _supervise(name, args, limit)
        index = {"schema": "gpsched.h200/3", "commands": commands, "steps": steps | ran}
        path.write_text(json.dumps(index, indent=2) + "\n")
    return ran


def _run_step(args: argparse.Namespace) -> int:
    from gpsched.bench import h200_steps

    settings = h200_steps.Settings(directory=args.out, python=args.python, seconds=args.seconds, device=args.device)
    return h200_steps.run_step(args.step, settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpsched.bench.h200", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the results go")
    parser.add_argument("--check", action="store_true", help="only try whether the measurements can run here")
    parser.add_argument("--add", type=Path, metavar="DIR", help="begin with what an earlier run left in another folder")
    parser.add_argument("--only", action="append", metavar="STEP", help="again for each step; an unknown one lists all")
    parser.add_argument("--budget", type=float, default=_BUDGET_S, help="seconds for all steps together (%(default)s)")
    parser.add_argument("--seconds", type=float, help="of measuring: an arm of a scenario, or a whole demonstration")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with PyTorch")
    parser.add_argument("--device", choices=("real", "simulated"), default="real", help="simulated: a rehearsal")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Run the steps; 1 unless all of them ran and verified their state, 77 when nothing can run here."""
    parser = _parser()
    args = parser.parse_args()
    if args.out is None and not args.check:
        parser.error("--out is needed")
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    if args.add is not None and not args.step:
        _add(args.add, args.out)
    if args.step:
        return _run_step(args)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    blocked = [line.what for line in _check(args) if line.state == "MISSING"]
    if args.check or blocked:
        print(f"cannot measure here: {', '.join(blocked)}" if blocked else "all that is needed is here", flush=True)
        return _UNSUPPORTED if blocked else 0
    from gpsched.bench.h200_steps import DEFAULT, STEPS

    names = args.only or list(DEFAULT)
    if unknown := [name for name in names if name not in STEPS]:
        parser.error(f"no step {unknown[0]!r}; known: {', '.join(STEPS)}")
    try:
        steps = _run_steps(args, names)
    except KeyboardInterrupt:
        print(f"interrupted; what was measured is in {args.out}", flush=True)
        return _INTERRUPTED
    _page(args.out)
    return 0 if all(step["status"] == "ran" and step.get("verified") is not False for step in steps.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
