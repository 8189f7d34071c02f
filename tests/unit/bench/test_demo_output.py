"""What ``gpsched demo`` prints and returns."""

import json
from pathlib import Path

import pytest

from gpsched.bench import demo
from gpsched.cli.main import main
from tests.unit.bench.samples import demo_result


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def play(monkeypatch: pytest.MonkeyPatch, **changes: int) -> None:
    monkeypatch.setattr(demo, "run_demo", lambda *_args, **_options: demo_result(**changes))


@pytest.mark.usefixtures("wide")
def test_table_and_checks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    play(monkeypatch)
    assert main(["demo"]) == 0
    output = capsys.readouterr().out
    assert "GPU: simulated" in output
    assert "beside BE, gpsched" in output
    assert "(log)" in output
    assert "BE x0.992" in output
    assert "BE level timeslice: one [BE] only" in output
    assert "4800 kernels, none lost or repeated" in output
    assert "█" in output
    assert "events were lost" not in output


@pytest.mark.usefixtures("wide")
def test_corrupted_state_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    play(monkeypatch, bad_counters=7, lost_events=2)
    assert main(["demo"]) == 1
    output = capsys.readouterr().out
    assert "STATE CORRUPTED" in output
    assert "2 events were lost" in output


@pytest.mark.usefixtures("wide")
def test_json_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    play(monkeypatch)
    file = tmp_path / "result.json"
    assert main(["demo", "--json", str(file)]) == 0
    assert json.loads(file.read_text())["schema"] == "gpsched.demo/1"


def test_json_file_that_cannot_be_written_is_refused_before_measuring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "run_demo", lambda *_args, **_options: pytest.fail("measured first"))
    assert main(["demo", "--json", "/nonexistent/result.json"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("seconds", ["0", "x", "1e9", "nan"])
def test_bad_seconds(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--seconds", seconds])
    assert ended.value.code == 2
    assert "is not a number of seconds" in capsys.readouterr().err
