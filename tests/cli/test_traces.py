"""``gpsched record --events`` and ``gpsched replay`` of what it wrote."""

from pathlib import Path
from types import TracebackType

import pytest

from gpsched.adaptive import client
from gpsched.adaptive.trace import TraceWriter, read
from gpsched.cli.main import main
from tests.unit.test_trace import record


class Client:
    """Stands for the daemon: it writes down what it sees."""

    writer: TraceWriter | None = None

    def __init__(self, _socket: str) -> None:
        pass

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        pass

    def trace(self, file: Path | None, about: str = "", scale: float = 1.0) -> None:
        if file is not None:
            self.writer = TraceWriter(file, about, scale)
            return
        assert self.writer is not None
        for time_ns in range(5):
            self.writer.put(record(time_ns))
        self.writer.close()


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "Client", Client)


def test_events_are_written_by_the_daemon_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events.gz"
    assert main(["record", "--events", "-d", "10ms", str(path)]) == 0
    assert capsys.readouterr().out == f"5 events in {path}\n"
    assert len(read(path)[0].events) == 5
    assert main(["replay", str(path)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("5 events over 0.0 s")
    assert "1 bursts, learning" in second


def test_a_file_that_exists_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events.gz"
    path.write_text("mine")
    assert main(["record", "--events", "-d", "10ms", str(path)]) == 1
    assert "it exists" in capsys.readouterr().err
    assert path.read_text() == "mine"
