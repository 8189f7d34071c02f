"""The whole demonstration on the embedded GPU: daemon, probes, controls, programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


pytestmark = [pytest.mark.sim, pytest.mark.root, pytest.mark.bpf]

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(150)
def test_demo_shows_latency_regained_without_loss_for_the_job(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs root and /dev/fuse")
    for folder in ("adaptive/simgpu/native", "bench/programs"):
        subprocess.run(["make", "-s", "-C", str(ROOT / folder)], check=True, timeout=180)
    file = tmp_path / "demo.json"
    command = [sys.executable, "-m", "gpsched.cli.main", "demo", "--device", "simulated"]
    command += ["--seconds", "20", "--json", str(file)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "GPU: simulated" in finished.stdout
    result = json.loads(file.read_text())
    assert result["host"]["simulated"] is True
    assert result["managed"]["lost_events"] == result["managed"]["failed_controls"] == 0
    level = result["managed"]["levels"]["lc"].partition(":")[0]
    assert level in ("timeslice", "reserve", "hold")  # 200 µs of lead are just about what hold needs
    assert result["be_verification"]["bad_counters"] == 0
    assert result["ratios"]["default_mean_over_alone"] > 2.5
    assert result["ratios"]["p50"] < 0.5
    assert result["ratios"]["be"] > 0.95
