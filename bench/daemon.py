"""A daemon of one's own for a measurement: started as a child, with its own socket, state and configuration."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gpsched.adaptive.calibration import store
from gpsched.adaptive.calibration.model import Calibration
from gpsched.adaptive.client import Client
from gpsched.adaptive.errors import DaemonUnreachableError
from gpsched.adaptive.scratch import Scratch
from gpsched.bench.errors import ProgramFailedError, ProgramTimeoutError


_START_S = 60.0  # compiling the programs and attaching them takes seconds, on a real libcuda up to ten
_STOP_S = 30.0  # it restores every setting, and closing uprobes takes up to 7 s
_POLL_S = 0.1


@contextmanager
def running_daemon(config: str = "", calibration: Calibration | None = None) -> Iterator[Client]:
    """Yield a client of a daemon with this configuration (TOML) and these costs (default: an H200's) that answers.

    It ends by SIGTERM, on which it restores every setting.

    Raises ``ProgramFailedError`` (with the daemon's exit code and last line) when it does not start.
    """
    with Scratch("gpsched-bench-") as directory, tempfile.TemporaryFile() as log:
        if calibration is not None:
            store.save(directory / "state", calibration)
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
