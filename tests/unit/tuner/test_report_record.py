"""Reports of record files: what snapshots tell, and what they do not."""

from pathlib import Path

import msgspec
import pytest

from gpsched.adaptive.model import Snapshot
from gpsched.adaptive.record import Record, Writer
from gpsched.cli.main import main
from gpsched.tuner.report.record import from_record
from tests.tui import scene


BURSTS = 50


def second(number: int) -> Snapshot:
    """As in the scene, but the service's histogram grows."""
    snapshot = scene.snapshot(number)
    served = [
        msgspec.structs.replace(view, latency=scene.latency(*[800.0] * BURSTS * number)) if view.pid == 100 else view
        for view in snapshot.processes
    ]
    return msgspec.structs.replace(snapshot, processes=served)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    writer = Writer(tmp_path / "r.jsonl")
    for number in range(1, 7):
        writer.put(second(number))
    writer.close()
    return tmp_path / "r.jsonl"


def test_objectives_and_rates_come_from_the_differences_of_snapshots(record: Path) -> None:
    first, other = from_record(Record(record)).gpus
    (service,) = first.services
    assert (service.name, service.bursts, service.rate_hz) == ("serve", 5 * BURSTS, BURSTS)
    assert (service.kept, service.missed, service.value_us) == (5, 0, 900.0)
    assert service.reservations == 50
    (job,) = first.jobs
    assert (job.rate_hz, job.progress) == (2000.0, None)
    assert other.gpu == 1
    assert other.judged == 0  # nothing was served there


def test_what_a_record_cannot_tell_is_said(record: Path) -> None:
    made = from_record(Record(record))
    assert "progress over solo rates" in made.notes[0]
    assert made.gpus[0].gain is None


def test_a_daemon_that_restarted_counts_from_zero(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "r.jsonl")
    for number in (5, 1):
        writer.put(msgspec.structs.replace(second(number), time_s=scene.NOW + 10 - number))
    writer.close()
    (service,) = from_record(Record(tmp_path / "r.jsonl")).gpus[0].services
    assert service.bursts == BURSTS


def test_a_record_cut_in_the_middle_is_reported_as_far_as_it_goes(record: Path) -> None:
    record.write_bytes(record.read_bytes()[:-200])
    made = from_record(Record(record))
    assert made.gpus[0].windows == 4
    assert any("cut" in note for note in made.notes)


def test_replay_prints_and_writes_it(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(record), "--report"]) == 0
    assert "serve" in capsys.readouterr().out
    assert main(["replay", str(record), "--html", str(tmp_path / "page.html")]) == 0
    assert "<svg" in (tmp_path / "page.html").read_text()
