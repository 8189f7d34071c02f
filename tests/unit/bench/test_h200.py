"""The supervisor of the real-GPU measurements: it survives steps that fail, hang or cannot run."""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from gpsched.bench import h200, outcome, runner, scenario
from gpsched.bench.errors import NoRealGpuError
from tests.unit.bench.bench_samples import result
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
    done = h200.supervise("cuda-prep200", tmp_path, sys.executable, 1.0)
    assert (done.status, done.message) == (status, message)
    assert done.file is None


def test_index_tells_of_all_steps(step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    outcome.write(result(), tmp_path / "sample.json")
    step.write_text(
        "import shutil, sys\n"
        "if sys.argv[1] != 'many': sys.exit('broken')\n"
        f"shutil.copy({str(tmp_path / 'sample.json')!r}, {str(out / 'many.json')!r})\n"
    )
    monkeypatch.setattr(sys, "argv", ["h200", "--out", str(out)])
    assert h200.main() == 1
    steps = {entry["step"]: entry for entry in json.loads((out / "index.json").read_text())["steps"]}
    assert list(steps) == list(h200.DEFAULT)
    assert [entry["status"] for entry in steps.values()] == ["failed", "ran", "failed", "failed", "failed"]
    assert steps["many"]["verified"] is True
    (line,) = steps["many"]["figures"]
    assert line.startswith("x: LC mean over alone 1.05")


def test_step_cut_short_keeps_what_it_had(step: Path, tmp_path: Path) -> None:
    outcome.write(result(), tmp_path / "sample.json")
    target = tmp_path / "single.json"
    step.write_text(
        f"import shutil, time; shutil.copy({str(tmp_path / 'sample.json')!r}, {str(target)!r}); time.sleep(60)"
    )
    done = h200.supervise("single", tmp_path, sys.executable, 1.0)
    assert (done.status, done.file) == ("timeout", "single.json")
    assert done.figures


def test_demonstration_is_summed_up_too(tmp_path: Path) -> None:
    path = tmp_path / "cuda-prep200.json"
    path.write_bytes(msgspec.json.encode(demo_result()))
    figures, verified = h200._figures(path)
    assert verified is True
    assert "BE x0.992" in figures[0]


def test_steps_beyond_the_budget_are_skipped_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["h200", "--out", str(tmp_path), "--budget", "1"])
    assert h200.main() == 1
    steps = json.loads((tmp_path / "index.json").read_text())["steps"]
    assert {(entry["status"], entry["message"]) for entry in steps} == {("skipped", "the budget is spent")}


def test_default_steps_name_scenarios_and_arms_that_exist() -> None:
    named = [name for step in h200.DEFAULT.values() if step.scenarios for name in step.scenarios]
    assert sorted(named) == scenario.names()
    for step in h200.DEFAULT.values():
        assert runner.prepare(list(step.scenarios), step.options).arms


def test_step_without_a_gpu_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise NoRealGpuError("none")

    monkeypatch.setattr(h200, "run_demo", refuse)
    monkeypatch.setattr(runner, "open_device", refuse)
    for name in ("torch-eager-prep200", "single"):
        assert h200.run_step(name, tmp_path, "python3", 1.0) == 77
        assert "no NVIDIA GPU here" in capsys.readouterr().err
