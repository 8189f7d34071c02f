"""Event traces: written by the daemon, read whole, in parts, or cut."""

import gzip
from pathlib import Path

import pytest

from gpsched.adaptive import trace
from gpsched.adaptive.probes.events import CUDA, HEAD, Call, Kind


def record(time_ns: int, tid: int = 7) -> bytes:
    return HEAD.pack(time_ns, 5, tid, Kind.CUDA_ENTER, Call.LAUNCH, 0, 0, 0) + CUDA.pack(1, 0)


def write(path: Path, times: list[int], *, about: str = "", agents: tuple[int, ...] = ()) -> None:
    writer = trace.TraceWriter(path, about, scale=5.0)
    for time_ns in times:
        writer.put(record(time_ns))
    writer.put(record(1_000_000, tid=99))
    writer.close(agents)


def test_parts_are_appended_and_read_in_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, [3, 1, 2], about="first", agents=(99,))
    write(path, [4], about="second")
    first, second = trace.read(path)
    assert [event.time_ns for event in first.events] == [1, 2, 3]
    assert (first.header.about, first.header.scale, second.header.about) == ("first", 5.0, "second")
    assert [event.tid for event in second.events] == [7, 99]
    assert trace.is_trace(path)


def test_no_more_than_the_bound_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST", 10)
    write(tmp_path / "t", list(range(100)), agents=(99,))
    (part,) = trace.read(tmp_path / "t")
    assert len(part.events) == 10


def test_one_that_was_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, list(range(500)))
    path.write_bytes(path.read_bytes()[:-300])
    (part,) = trace.read(path)
    assert 0 < len(part.events) < 500


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b'{"schema":"gpsched.events/2","host":"h","started_s":1}\n', b"not base64\n"]
)
def test_what_is_no_trace_is_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(content))
    assert not trace.is_trace(path)
    with pytest.raises(trace.TraceError):
        trace.read(path)


def test_a_plain_file_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text('{"schema":"gpsched.record/1"}\n')
    assert not trace.is_trace(path)
    with pytest.raises(trace.TraceError):
        trace.read(path)


def test_a_record_that_cannot_be_decoded_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = trace.TraceWriter(path)
    writer.put(b"short")
    writer.close()
    with pytest.raises(trace.TraceError, match="cannot be decoded"):
        trace.read(path)


def test_a_full_disk_ends_the_writing_and_not_the_daemon(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracing = trace.Tracing()
    tracing(record(1))  # nothing is asked for
    tracing.start(Path("/dev/full"))
    for time_ns in range(trace.MOST):
        tracing(record(time_ns * 7919))
    tracing.start(tmp_path / "t")
    tracing(record(2))
    tracing.stop()
    assert len(trace.read(tmp_path / "t")[0].events) == 1
