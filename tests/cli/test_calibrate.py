"""``gpsched calibrate`` as users meet it: what it refuses, and what it says."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpsched.adaptive import client
from gpsched.adaptive.calibration.errors import GpuBusyError, ProgramsManagedError
from gpsched.adaptive.calibration.store import save
from gpsched.cli import calibrate
from tests.unit.calibration.samples import calibration


COMMAND = [sys.executable, "-m", "gpsched.cli.main", "calibrate"]


def gpsched(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=60)


class BusyDaemon:
    """A daemon with one process on GPUs 1 and 2."""

    def __init__(self, _path: str) -> None: ...

    def __enter__(self) -> "BusyDaemon":
        return self

    def __exit__(self, *_: object) -> None: ...

    def snapshot(self) -> Any:
        return SimpleNamespace(processes=[SimpleNamespace(pid=42, gpus=[1, 2])])


def test_a_gpu_with_managed_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "Client", BusyDaemon)
    calibrate._refuse_when_busy("socket", 0)
    with pytest.raises(GpuBusyError, match="--force") as failure:
        calibrate._refuse_when_busy("socket", 2)
    assert (failure.value.gpu, failure.value.pids) == (2, (42,))


def test_a_rule_that_manages_the_programs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "Client", BusyDaemon)
    calibrate._refuse_when_managed("socket", {41, 43})
    with pytest.raises(ProgramsManagedError, match="rule"):
        calibrate._refuse_when_managed("socket", {41, 42})


def test_a_place_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = gpsched("--device", "simulated", "--state-dir", str(tmp_path / "file"))
    assert result.returncode == 1
    assert "--state-dir" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_without_a_daemon_nothing_is_managed(tmp_path: Path) -> None:
    calibrate._refuse_when_busy(str(tmp_path / "none.sock"), 0)


def test_nothing_measured_yet(tmp_path: Path) -> None:
    shown = gpsched("--show", "--state-dir", str(tmp_path))
    assert shown.returncode == 0
    assert "run: gpsched calibrate" in shown.stdout
    assert json.loads(gpsched("--show", "--json", "--state-dir", str(tmp_path)).stdout) == []


def test_what_was_measured_is_shown(tmp_path: Path) -> None:
    save(tmp_path, calibration())
    shown = gpsched("--show", "--state-dir", str(tmp_path)).stdout
    assert "NVIDIA H200, driver 580.159.04" in shown
    assert "640 (700)" in shown
    assert "370 + 190" in shown


def test_a_wrong_gpu_is_one_line() -> None:
    result = gpsched("--gpu", "x")
    assert result.returncode == 2
    assert "'x' is not the number of a GPU" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
