"""The PyTorch programs: arguments always, the CPU path where torch is installed.

GPSCHED_TORCH_PYTHON names another interpreter that has torch, as ``--python`` does for the measurements.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpsched.adaptive.probes.libraries import hint_offset, open_library
from gpsched.bench import torch_lc
from gpsched.bench.fleet import Switchboard
from gpsched.bench.workload import HERE, torch_job, torch_service


PYTHON = os.environ.get("GPSCHED_TORCH_PYTHON", sys.executable)
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, timeout=60, check=False).returncode == 0
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed; GPSCHED_TORCH_PYTHON may name a Python")


def run(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYTHON, str(HERE / name), *options], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["torch_lc.py", "torch_be.py"])
def test_help(name: str) -> None:
    result = run(name, "--help")
    assert result.returncode == 0
    assert "--device" in result.stdout


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("torch_lc.py", ["--mode", "lazy"]),
        ("torch_lc.py", ["--device", "cpu", "--mode", "graph"]),
        ("torch_be.py", ["--size", "1"]),
        ("torch_be.py", ["--device", "tpu"]),
    ],
)
def test_bad_arguments(name: str, options: list[str]) -> None:
    result = run(name, *options)
    assert result.returncode == 2
    assert "error:" in result.stderr


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
@pytest.mark.parametrize("name", ["torch_lc.py", "torch_be.py"])
def test_without_torch(name: str) -> None:
    result = run(name)
    assert result.returncode == 77
    assert result.stderr.startswith("no PyTorch in this interpreter")


def test_services_in_python_give_hints_where_a_probe_hears_them(tmp_path: Path) -> None:
    assert hint_offset(open_library(str(HERE / "build/libgpsched-switchboard.so"))) is not None
    switches = Switchboard(tmp_path / "board")
    own = torch_lc.Switchboard(str(switches.path))
    with switches.hints():
        assert own.library.hints_wanted() & 1
        own.announce(200.0)
    assert not own.library.hints_wanted() & 1
    torch_lc.Switchboard(None).announce(200.0)


@needs_torch
def test_service_on_the_processor() -> None:
    options = ("--device", "cpu", "--mode", "eager", "--model", "linear", "--prep-us", "1000")
    with torch_service({}, *options, python=PYTHON) as service:
        run = service.run(20, 100)
        end = service.finish()
    assert min(run.server_us) >= 1000
    assert end.ok
    assert end.kernels == 20


@needs_torch
def test_job_on_the_processor() -> None:
    with torch_job({}, "--device", "cpu", "--size", "32", python=PYTHON) as job:
        job.pause()
        first = job.progress()
        job.resume()
        while job.progress().kernels < first.kernels + 10:
            pass
        end = job.finish()
    assert end.ok
    assert end.kernels >= first.kernels + 10
