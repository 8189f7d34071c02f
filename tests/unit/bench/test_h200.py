"""The supervisor of the real-GPU measurements: it survives steps that fail, hang or cannot run."""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from gpsched.bench import h200
from gpsched.bench.errors import NoRealGpuError
from tests.unit.bench.samples import demo_result


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace what a step runs by this script; returns where to write it."""
    script = tmp_path / "step.py"
    real = h200._run_limited

    def run(command: list[str], errors: int, limit_s: float) -> int | None:
        return real([sys.executable, str(script), command[command.index("--step") + 1]], errors, min(limit_s, 1.0))

    monkeypatch.setattr(h200, "_run_limited", run)
    return script


@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        ("raise SystemExit('it broke')", "failed", "it broke"),
        ("import sys; print('no GPU', file=sys.stderr); sys.exit(77)", "skipped", "no GPU"),
        ("import time; time.sleep(60)", "timeout", "KeyboardInterrupt"),
    ],
)
def test_step_that_does_not_run(script: str, status: str, message: str, step: Path, tmp_path: Path) -> None:
    step.write_text(script)
    outcome = h200.supervise("cuda-prep200", tmp_path, 1.0, sys.executable)
    assert (outcome.status, outcome.message) == (status, message)
    assert outcome.ratios is None


def test_index_tells_of_all_steps(step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    (tmp_path / "sample.json").write_bytes(msgspec.json.encode(demo_result()))
    step.write_text(
        "import shutil, sys\n"
        "if sys.argv[1] != 'cuda-prep200': sys.exit('broken')\n"
        f"shutil.copy({str(tmp_path / 'sample.json')!r}, {str(out / 'cuda-prep200.json')!r})\n"
    )
    monkeypatch.setattr(sys, "argv", ["h200", "--out", str(out)])
    assert h200.main() == 1
    index = json.loads((out / "index.json").read_text())
    assert [entry["status"] for entry in index["steps"]] == ["ran", "failed", "failed", "failed"]
    assert index["steps"][0]["verified"] is True
    assert index["steps"][0]["ratios"]["be"] == pytest.approx(1180 / 1190)


def test_step_without_a_gpu_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise NoRealGpuError("none")

    monkeypatch.setattr(h200, "run_demo", refuse)
    assert h200.run_step("torch-eager-prep200", tmp_path, 1.0, "python3") == 77
    assert "no NVIDIA GPU here" in capsys.readouterr().err
