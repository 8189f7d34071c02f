"""Record files: written, read back, cut anywhere, and turned into other formats."""

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpsched.adaptive.export import COLUMNS, EXPORTERS
from gpsched.adaptive.model import Snapshot, Span
from gpsched.adaptive.record import Record, RecordError, RecordWriteError, Writer
from tests.tui import scene


@pytest.fixture(params=["r.jsonl", "r.jsonl.gz"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    writer = Writer(path)
    for second in range(4):
        writer.put(scene.snapshot(second))
    writer.close()
    return path


def test_reads_back_what_was_written(record: Path) -> None:
    read = Record(record)
    assert read.snapshots == [scene.snapshot(second) for second in range(4)]
    assert read.complete
    with pytest.raises(RecordWriteError, match="exists"):
        Writer(record)


def test_every_cut_is_read_as_far_as_it_is_whole(record: Path) -> None:
    content = record.read_bytes()
    whole = 0
    for end in range(len(content) // 2, len(content), max(1, len(content) // 40)):
        record.write_bytes(content[:end])
        try:
            read = Record(record)
        except RecordError:
            continue  # cut before the end of the first snapshot
        assert read.snapshots == [scene.snapshot(second) for second in range(len(read.snapshots))]
        assert len(read.snapshots) < 4 or not read.complete or end == len(content) - 1  # but for the last newline
        whole += len(read.snapshots)
    assert whole > 0 or record.suffix == ".gz"  # a short gzip file is one block


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a record"),
        (b"rubbish\n", "not a record"),
        (b'{"schema":"gpsched.record/9","host":"h","started_s":1}\n', "another version"),
        (b'{"schema":"gpsched.record/1","host":"h","started_s":1}\n', "no snapshot"),
        (gzip.compress(b"x" * 1000)[:20], "not a record"),
        (b"\x1f\x8bnot gzip at all", "gpsched record"),
    ],
)
def test_what_is_no_record_is_said(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=reason):
        Record(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_record_is_read_as_far_as_it_is_whole_or_refused(record: Path, data: st.DataObject) -> None:
    whole = Record(record).snapshots
    content = bytearray(record.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = record.with_name("damaged")
    damaged.write_bytes(content)
    try:
        read = Record(damaged)
    except RecordError:
        return
    assert 1 <= len(read.snapshots) <= len(whole) + 4  # a byte may have become a newline


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        Record(tmp_path / "none")


def _exported(form: str) -> str:
    return "".join(EXPORTERS[form](scene.snapshot(second) for second in range(3)))


def test_json_lines() -> None:
    lines = _exported("json").splitlines()
    assert [json.loads(line)["time_s"] for line in lines] == [scene.NOW, scene.NOW + 1, scene.NOW + 2]


def test_csv_has_a_row_for_each_process_and_moment() -> None:
    rows = list(csv.DictReader(io.StringIO(_exported("csv"))))
    assert len(rows) == 12
    assert list(rows[0]) == list(COLUMNS)
    assert (rows[9]["pid"], rows[9]["launches"], rows[9]["slo_us"]) == ("200", "4000", "")
    assert float(rows[8]["p99_us"]) <= 1024


_KINDS = ("burst", "reservation")


def test_chrome_trace_tells_each_span_once() -> None:
    events = json.loads(_exported("chrome"))
    spans = [event for event in events if event["ph"] == "X"]
    ends = {kind: [event["ts"] + event["dur"] for event in spans if event["name"] == kind] for kind in _KINDS}
    assert {kind: len(each) for kind, each in ends.items()} == {"burst": 3, "reservation": 3}  # one a second
    assert spans[0]["dur"] == 2e6
    again = json.loads("".join(EXPORTERS["chrome"]([scene.snapshot(1), scene.snapshot(1)])))
    assert len([event for event in again if event["ph"] == "X"]) == 2
    assert json.loads("".join(EXPORTERS["chrome"]([]))) == []


def test_a_span_that_grows_is_told_in_parts_that_do_not_overlap() -> None:
    def at(second: float, *spans: tuple[float, float]) -> Snapshot:
        shown = [Span(kind="turn", start_s=scene.NOW + start, end_s=scene.NOW + end) for start, end in spans]
        view = scene.process(1, "train", "be", spans=shown)
        return scene.snapshot(0, time_s=scene.NOW + second, processes=[view])

    looks = [at(1, (0, 1)), at(2, (0.0001, 1.0), (1.5, 1.9)), at(3, (1.4999, 2.5))]
    events = json.loads("".join(EXPORTERS["chrome"](looks)))
    told = [(event["ts"] / 1e6 - scene.NOW, event["dur"] / 1e6) for event in events if event["ph"] == "X"]
    assert told == [pytest.approx(each, abs=1e-3) for each in [(0, 1), (1.5, 0.4), (1.9, 0.6)]]
    tracks = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    assert {event["tid"] for event in events if event["ph"] == "X"} == {tracks["turn"]}
