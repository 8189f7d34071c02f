"""The supervisor of the real-GPU measurements: it survives steps that fail, hang or cannot run."""

import json
import sys
import time
from pathlib import Path
from typing import IO

import msgspec
import pytest

from gpsched.bench import h200, h200_check, h200_figures, h200_steps, outcome, runner, scenario
from gpsched.bench.errors import NoRealGpuError
from gpsched.bench.h200_check import Line
from tests.unit.bench.bench_samples import result
from tests.unit.bench.samples import demo_result


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace what a step runs by this script, and let the machine be fit; returns where to write the script."""
    script = tmp_path / "step.py"
    real = h200._run_limited

    def run(command: list[str], errors: IO[bytes], limit_s: float) -> int | None:
        name = command[command.index("--step") + 1]
        return real([sys.executable, str(script), name], errors, min(limit_s, 1.0))

    monkeypatch.setattr(h200, "_run_limited", run)
    monkeypatch.setattr(h200, "check", lambda _python, _device: [Line("ok", "everything", "there")])
    return script


def supervise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str
) -> tuple[int, dict[str, dict[str, object]]]:
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["h200", "--out", str(out), *options])
    code = h200.main()
    index = out / "index.json"
    return code, json.loads(index.read_text())["steps"] if index.exists() else {}


@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        ("raise SystemExit('it broke')", "failed", "it broke"),
        ("import sys; print('no GPU', file=sys.stderr); sys.exit(77)", "skipped", "no GPU"),
        ("import time; time.sleep(60)", "timeout", "KeyboardInterrupt"),
    ],
)
def test_step_that_does_not_run(
    script: str, status: str, message: str, step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step.write_text(script)
    code, steps = supervise(tmp_path, monkeypatch, "--only", "single", "--only", "cuda-prep200")
    assert code == 1
    assert [(one["status"], one["message"]) for one in steps.values()] == [(status, message)] * 2
    assert "== single" in (tmp_path / "out/log.txt").read_text()


def test_index_tells_of_all_steps(step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step.write_text("import sys\nif sys.argv[1] != 'many': sys.exit('broken')\n")
    code, steps = supervise(tmp_path, monkeypatch)
    assert code == 1
    assert list(steps) == list(h200_steps.DEFAULT)
    assert {name: one["status"] for name, one in steps.items()} == {
        name: "ran" if name == "many" else "failed" for name in h200_steps.DEFAULT
    }
    assert (tmp_path / "out/check.txt").read_text() == "ok      everything                  there\n"


def test_nothing_is_started_where_something_is_missing(
    step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [Line("ok", "this", ""), Line("MISSING", "that", "not there")]
    monkeypatch.setattr(h200, "check", lambda _python, _device: lines)
    assert supervise(tmp_path, monkeypatch) == (77, {})
    assert "cannot measure here: that" in capsys.readouterr().out


def test_programs_of_a_step_end_with_it(step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that ignore an interrupt, and whose step was killed."""
    monkeypatch.setattr(h200, "_UNWIND_S", 0.5)
    monkeypatch.setattr(h200, "_STRAY_S", 0.5)
    stubborn = "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\n"
    step.write_text(
        f"{stubborn}import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {stubborn + 'time.sleep(60)'!r}])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\ntime.sleep(60)\n"
    )
    _, steps = supervise(tmp_path, monkeypatch, "--only", "single")
    assert steps["single"]["status"] == "timeout"
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_scenarios_of_all_steps_are_in_one_result(tmp_path: Path) -> None:
    path = tmp_path / h200_steps.RESULTS
    one = result()
    other = msgspec.structs.replace(one, scenarios=[msgspec.structs.replace(one.scenarios[0], name="y")])
    for part in (one, other, other):
        h200_steps.add_result(part, path)
    assert [found.name for found in outcome.read(path).scenarios] == ["x", "y"]
    assert [found.name for found in tmp_path.iterdir()] == [h200_steps.RESULTS]


def test_figures_of_a_step(tmp_path: Path) -> None:
    sample = result()
    scenarios = [msgspec.structs.replace(sample.scenarios[0], name=name) for name in ("A", "C")]
    outcome.write(msgspec.structs.replace(sample, scenarios=scenarios), tmp_path / h200_steps.RESULTS)
    lines, verified = h200_figures.of_step("single", tmp_path)
    assert verified is True
    assert lines[-2].startswith("A: gpsched LC mean 1.05")
    assert lines[-1] == "A: no freeze: no <cgroup>"
    assert not any(line.startswith("C:") for line in lines)
    assert h200_figures.of_step("others", tmp_path) == ([], None)
    assert h200_figures.of_step("models", tmp_path) == ([], None)


def test_demonstration_is_summed_up_too(tmp_path: Path) -> None:
    path = tmp_path / h200_steps.DEMOS
    assert h200_figures.of_step("cuda-prep200", tmp_path) == ([], None)
    path.write_bytes(msgspec.json.encode({"cuda-prep200": demo_result()}))
    figures, verified = h200_figures.of_step("cuda-prep200", tmp_path)
    assert verified is True
    assert "BE x0.992" in figures[0]


def test_runs_add_up(step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = tmp_path / "earlier"
    step.write_text("")
    outcome.write(result(), tmp_path / "sample.json")
    supervise(tmp_path, monkeypatch, "--only", "many")
    (tmp_path / "out").rename(earlier)
    (tmp_path / "sample.json").rename(earlier / h200_steps.RESULTS)
    code, steps = supervise(tmp_path, monkeypatch, "--only", "single", "--add", str(earlier))
    assert code == 0
    assert list(steps) == ["many", "single"]
    assert outcome.read(tmp_path / "out" / h200_steps.RESULTS).scenarios[0].name == "x"
    assert (tmp_path / "out/page.html").exists()
    assert len(json.loads((tmp_path / "out/index.json").read_text())["commands"]) == 2


def test_steps_beyond_the_budget_are_skipped_and_said(
    step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, steps = supervise(tmp_path, monkeypatch, "--budget", "1")
    assert code == 1
    assert {(one["status"], one["message"]) for one in steps.values()} == {("skipped", "the budget is spent")}


def test_default_steps_name_scenarios_and_arms_that_exist() -> None:
    named = [name for step in h200_steps.DEFAULT.values() for name in step.scenarios]
    assert sorted(named) == scenario.names()
    for step in h200_steps.DEFAULT.values():
        assert runner.prepare(list(step.scenarios), step.options).arms


def test_step_without_a_gpu_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise NoRealGpuError("none")

    monkeypatch.setattr(h200_steps, "_end_with_parent", lambda: None)
    monkeypatch.setattr(h200_steps, "run_demo", refuse)
    monkeypatch.setattr(runner, "open_device", refuse)
    settings = h200_steps.Settings(directory=tmp_path, seconds=1.0)
    for name in ("torch-eager-prep200", "single"):
        assert h200_steps.run_step(name, settings) == 77
        assert "no NVIDIA GPU here" in capsys.readouterr().err


def test_an_unknown_step_names_those_that_exist(
    step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        supervise(tmp_path, monkeypatch, "--only", "singel")
    assert "known: kernels, targets, http, models, single" in capsys.readouterr().err


def test_check_answers_every_question_and_survives_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[Line]:
        raise OSError("broken")

    for name in ("_daemon", "_doctor", "_fuse"):
        monkeypatch.setattr(h200_check, name, fail)
    monkeypatch.setattr(h200_check, "NEEDED", {"msgspec": "all", "no_such_package": "nothing"})
    lines = {line.what: line for line in h200_check.check(sys.executable, "simulated")}
    assert lines["package msgspec"].state == "ok"
    assert lines["package no_such_package"].state == "MISSING"
    assert "(for: nothing)" in lines["package no_such_package"].detail
    assert lines["fail"] == Line("MISSING", "fail", "OSError: broken")
    assert lines["Python"].state == "ok"


def test_check_imports_nothing_that_may_be_missing() -> None:
    import subprocess

    look = (
        "import sys, gpsched.bench.h200_check as c, gpsched.bench.h200; sys.exit(str(set(c.NEEDED) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr.strip() == "set()"


def test_an_interrupt_ends_the_run_and_keeps_what_was_measured(
    step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(h200, "_run_steps", interrupted)
    assert supervise(tmp_path, monkeypatch)[0] == 130
    assert "interrupted; what was measured is in" in capsys.readouterr().out
