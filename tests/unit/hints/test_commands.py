"""What ``gpsched hints`` and ``gpsched explain`` print."""

import argparse
import random
import re

import msgspec
import pytest

from gpsched.adaptive.client import Client
from gpsched.adaptive.errors import ProcessGoneError
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.model import HintsReport
from gpsched.adaptive.model import DaemonView, ProcessView, Snapshot
from gpsched.cli import explain, hints
from tests.unit.hints.obedient import run
from tests.unit.hints.streams import arrivals, asyncio_server


PID = 4242


def process(class_: str) -> ProcessView:
    fields = {"pid": PID, "name": "serve", "command": "serve", "user": "u", "cgroup": "/", "container": None}
    fields |= {"class": class_, "source": "attach", "tenant": "u", "slo_us": None, "level": "hold", "gpus": [0]}
    fields |= {"reason": "short lead", "groups": [], "calls": {}}
    return msgspec.convert(fields, ProcessView)


@pytest.fixture(scope="module")
def report() -> HintsReport:
    rng = random.Random(1)
    learner = HintLearner(pid=PID)
    run(learner, asyncio_server(arrivals("poisson", 100, 200, rng), rng))
    return learner.report()


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, report: HintsReport) -> list[ProcessView]:
    """A client that answers without a socket; the list holds its processes."""
    processes = [process("lc")]
    view = msgspec.convert(
        {"pid": 1, "version": "0", "uptime_s": 1.0, "libraries": [], "lost_events": 0, "failed_controls": 0}
        | {"last_failure": None},
        DaemonView,
    )
    monkeypatch.setattr(Client, "__init__", lambda self, path: None)
    monkeypatch.setattr(Client, "close", lambda self: None)
    monkeypatch.setattr(Client, "hints", lambda self, pid: report)
    monkeypatch.setattr(Client, "snapshot", lambda self: Snapshot(time_s=1.0, daemon=view, processes=processes))
    monkeypatch.setenv("COLUMNS", "160")
    return processes


def parse(*args: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    hints.add_parser(subparsers)
    explain.add_parser(subparsers)
    return parser.parse_args(args)


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    parsed = parse(*args)
    assert parsed.run(parsed) == 0
    return capsys.readouterr().out


def test_hints_shows_candidates_the_chosen_one_and_why(
    capsys: pytest.CaptureFixture[str], daemon: list[ProcessView]
) -> None:
    text = printed(capsys, "hints", str(PID))
    chosen = [line for line in text.splitlines() if re.match(r"\s*\d+\*", line)]
    assert len(chosen) == 1
    assert "100.0%" in chosen[0]
    assert "followed by no burst" in " ".join(text.split())
    assert "sure: socket_read, 8192-32767 bytes announces" in " ".join(text.split())


def test_hints_as_json_round_trips(
    capsys: pytest.CaptureFixture[str], daemon: list[ProcessView], report: HintsReport
) -> None:
    text = printed(capsys, "hints", str(PID), "--json")
    assert msgspec.json.decode(text, type=HintsReport) == report
    first = msgspec.json.decode(text)["candidates"][0]
    assert first["kind"] == "socket_read"
    assert set(first["lead_us"]) == {"p1", "p5", "p25", "p50", "p75", "p95", "p99"}


def test_explain_shows_level_plan_reservations_and_sums(
    capsys: pytest.CaptureFixture[str], daemon: list[ProcessView]
) -> None:
    text = printed(capsys, "explain", str(PID))
    assert "level     hold: short lead" in text
    assert "after socket_read, 8192-32767 bytes, given up after" in text
    assert text.count(": in time, reserved") == 10
    assert "200 bursts" in text
    assert "of switch time hidden" in text


def test_explain_of_a_best_effort_job_has_no_hints(
    capsys: pytest.CaptureFixture[str], daemon: list[ProcessView]
) -> None:
    daemon[:] = [process("be")]
    assert printed(capsys, "explain", str(PID)).splitlines()[0] == "4242 serve: be by attach"
    assert msgspec.json.decode(printed(capsys, "explain", str(PID), "--json"))["hints"] is None


def test_explain_of_an_unknown_process(daemon: list[ProcessView]) -> None:
    daemon.clear()
    parsed = parse("explain", str(PID))
    with pytest.raises(ProcessGoneError):
        parsed.run(parsed)


def test_explain_says_where_events_are_awaited(
    capsys: pytest.CaptureFixture[str],
    daemon: list[ProcessView],
    report: HintsReport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "awake" not in printed(capsys, "explain", str(PID))
    monkeypatch.setattr(Client, "hints", lambda self, pid: msgspec.structs.replace(report, beside=77))
    assert "events are awaited where a thread of 77 keeps a CPU awake" in printed(capsys, "explain", str(PID))


@pytest.mark.parametrize("command", ["hints", "explain"])
def test_a_service_that_is_left_to_the_actuator_is_said_to_be(
    capsys: pytest.CaptureFixture[str],
    daemon: list[ProcessView],
    report: HintsReport,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    assert "left to the actuator" not in printed(capsys, command, str(PID))
    monkeypatch.setattr(Client, "hints", lambda self, pid: msgspec.structs.replace(report, resting=True))
    text = printed(capsys, command, str(PID))
    assert "known well: left to the actuator" in text
    assert command == "hints" or f"of {report.outcome.bursts} that were looked at" in text
