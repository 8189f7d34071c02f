"""A daemon of one's own for a measurement: started as a child, with its own socket, state and configuration."""

import json
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from gpsched.adaptive.calibration import store
from gpsched.adaptive.calibration.model import Calibration
from gpsched.adaptive.client import Client
from gpsched.adaptive.config import Reservations
from gpsched.adaptive.errors import DaemonUnreachableError
from gpsched.adaptive.scratch import Scratch
from gpsched.bench.errors import ProgramFailedError, ProgramTimeoutError


_START_S = 60.0  # compiling the programs and attaching them takes seconds, on a real libcuda up to ten
_STOP_S = 30.0  # it restores every setting, and closing uprobes takes up to 7 s
_POLL_S = 0.1
_STRETCHED = {"limit_us": 10_000_000, "turn_us": 1_000_000, "alone_turn_us": 1_000_000}  # and the most that they may be


def stretched(settings: str, scale: float) -> str:
    """Settings (TOML) for a GPU whose time runs ``scale`` times slower than the daemon's.

    The limit of a reservation and the turns, unless they are set, are as long on the GPU's clock as the defaults say.
    """
    raw = tomllib.loads(settings)
    section = raw.setdefault("reservations", {})
    for name, most in _STRETCHED.items():
        section.setdefault(name, min(round(getattr(Reservations(), name) * scale), most))
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        for name, keys in raw.items()
    )


@contextmanager
def running_daemon(
    config: str = "", calibration: Calibration | None = None, log_file: Path | None = None
) -> Iterator[Client]:
    """Yield a client of a daemon with this configuration (TOML) and these costs (default: an H200's) that answers.

    Where the calibration is of a GPU in stretched time, the configuration is stretched as well.
    It ends by SIGTERM, on which it restores every setting. What it says is appended to ``log_file``.

    Raises ``ProgramFailedError`` (with the daemon's exit code and last line) when it does not start.
    """
    with ExitStack() as stack:
        opened = log_file.open("a+b") if log_file else tempfile.TemporaryFile()  # noqa: SIM115 (closed by the stack)
        log = stack.enter_context(opened)
        directory = stack.enter_context(Scratch("gpsched-bench-"))
        if calibration is not None:
            store.save(directory / "state", calibration)
            config = stretched(config, calibration.scale)
        process = _start(directory, config, log)
        try:
            with _connect(directory / "socket", process, log) as client:
                yield client
        finally:
            _stop(process)


def _start(directory: Path, settings: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
    config = directory / "config.toml"
    config.write_text(settings)
    # setpriv: should this process be killed, the daemon is told to stop too, and restores every setting.
    command = [
        "setpriv",
        "--pdeathsig",
        "TERM",
        sys.executable,
        "-P",
        "-m",
        "gpsched.cli.main",
        "daemon",
        "--socket",
        str(directory / "socket"),
    ]
    command += ["--state-dir", str(directory / "state"), "--config", str(config)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _connect(path: Path, process: subprocess.Popen[bytes], log: IO[bytes]) -> Client:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log.seek(0)
            lines = log.read().decode(errors="replace").strip().splitlines()
            raise ProgramFailedError("gpsched daemon", lines[-1] if lines else "it said nothing", process.returncode)
        if client := _answering(path):
            return client
        time.sleep(_POLL_S)
    raise ProgramTimeoutError("gpsched daemon", "answer on its socket", _START_S)


def _answering(path: Path) -> Client | None:
    try:
        client = Client(path)
    except DaemonUnreachableError:
        return None
    try:
        client.snapshot()
    except DaemonUnreachableError:
        client.close()
        return None
    return client


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
