"""``gpsched tune`` as users meet it: what it says, and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpsched.adaptive.config import Config
from gpsched.adaptive.errors import UsageError
from gpsched.adaptive.knobs import Proposal, TuneParams
from gpsched.adaptive.settings import LiveSettings
from gpsched.cli import tune
from gpsched.tuner.history import History
from gpsched.tuner.history_file import path_in
from gpsched.tuner.model import Change, Expectation


COMMAND = [sys.executable, "-m", "gpsched.cli.main", "tune"]


def command(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False)


def change(**fields: object) -> Change:
    base = {"time_s": 1e9, "gpu": 0, "key": "k", "kind": "try", "why": "+2.0% expected"}
    return Change(what={"reservations.turn_us": (50_000, 80_000)}, **(base | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "value"), [("turn_us=80000", 80_000), ("be_share=0.5", 0.5), ("level=reserve", "reserve")]
)
def test_values_have_their_types(text: str, value: object) -> None:
    assert tune.parsed(text) == (text.partition("=")[0], value)


@pytest.mark.parametrize("text", ["turn_us", "turn_us=", ""])
def test_half_an_assignment_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        tune.parsed(text)


@pytest.mark.parametrize("options", [("pin",), ("unpin",), ("reset", "turn_us"), ("status", "x"), ("retune",)])
def test_wrong_usage_is_exit_code_2(options: tuple[str, ...]) -> None:
    done = command(*options)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_without_a_daemon_it_says_how_to_start_one(tmp_path: Path) -> None:
    done = command("status", "--socket", str(tmp_path / "none"))
    assert done.returncode == 4
    assert "gpsched daemon" in done.stderr


def test_history_needs_no_daemon(tmp_path: Path) -> None:
    assert command("history", "--state-dir", str(tmp_path)).stdout == "the tuner has changed nothing yet\n"
    with History(path_in(tmp_path)) as history:
        number = history.put_change(change())
        history.seen(change(), number, Expectation(progress=0.913, margin=0.2))
    shown = command("history", "--state-dir", str(tmp_path)).stdout
    for part in ("try: turn_us 50000 -> 80000", "why: +2.0% expected", "expected: unknown", "seen: progress 91.3%"):
        assert part in shown
    (told,) = json.loads(command("history", "--json", "--state-dir", str(tmp_path)).stdout)["changes"]
    assert told["what"] == {"reservations.turn_us": [50_000, 80_000]}
    (tmp_path / "tuner.sqlite").write_bytes(b"x" * 5000)
    done = command("history", "--state-dir", str(tmp_path))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


def test_status_says_whose_a_setting_is() -> None:
    settings = LiveSettings(Config())
    assert tune.status_lines(settings.view([]), []) == [
        "the tuner is off; start it with: gpsched tune on",
        "no managed process uses a GPU",
    ]
    proposal = Proposal(gpu=0, values={"reservations.turn_us": 80_000}, note="12:00:00 try: turn_us 50000 -> 80000")
    settings.tune(TuneParams(pid=7, lease_s=9.0, phase="GPU 0: explore", proposals=[proposal]))
    settings.pin("be_us", 100)
    lines = tune.status_lines(settings.view([0]), [])
    assert lines[0] == "tuner: pid 7, GPU 0: explore"
    assert any("reservations.turn_us" in line and line.endswith("tuner, else 50000") for line in lines)
    assert any("timeslice.be_us" in line and line.endswith("pin, else 1") for line in lines)
    assert max(map(len, lines)) <= 80
