"""The tuner's memory: what was written is read, whatever state the file or the disk is in."""

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
import pytest

from gpsched.tuner import history as module
from gpsched.tuner import history_file
from gpsched.tuner.errors import HistoryUnreadableError
from gpsched.tuner.history import Baseline, History
from gpsched.tuner.history_file import FILE, MIGRATIONS
from gpsched.tuner.history_reader import HistoryReader
from gpsched.tuner.model import Change, Expectation, Point, Window


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / FILE


def window(time_s: float, gpu: int = 0) -> Window:
    return Window(
        time_s=time_s,
        length_s=2.0,
        gpu=gpu,
        gpu_model="H200",
        key="k",
        settings={"reservations.turn_us": 50_000},
        lc=[],
        be=[],
    )


def change(time_s: float) -> Change:
    return Change(time_s=time_s, gpu=0, key="k", kind="try", what={"timeslice.be_us": (1, 200)}, why="more for the job")


def point(progress: float) -> Point:
    return Point(settings={}, margin=0.1, progress=progress, load=0.2, windows=1, time_s=5.0)


def test_what_was_written_is_read(path: Path) -> None:
    with History(path) as history:
        for time_s in (1.0, 2.0, 3.0):
            history.put_window(window(time_s, gpu=int(time_s) % 2))
        number = history.put_change(change(2.0))
        history.seen(change(2.0), number, Expectation(progress=0.9, margin=0.1))
        history.put_points("k", [point(0.5), point(0.6)])
        history.put_baseline("p", Baseline(365.0, 40))
        assert history.message is None
    with HistoryReader(path) as reader:
        assert [each.time_s for each in reader.windows(since_s=1.5)] == [2.0, 3.0]
        assert [each.time_s for each in reader.windows(gpu=1)] == [1.0, 3.0]
        (told,) = reader.changes()
        assert (told.id, told.seen) == (number, Expectation(progress=0.9, margin=0.1))
        assert [each.progress for each in reader.points("k")] == [0.5, 0.6]
        assert reader.keys() == ["k"]
    with History(path) as history:
        assert history.baseline("p") == Baseline(365.0, 40)
        history.put_points("k", [])
        assert history.points("k") == []


def test_a_missing_file_is_an_empty_history(path: Path) -> None:
    with HistoryReader(path) as reader:
        assert reader.windows() == []
        assert reader.changes() == []


def test_readers_read_while_it_is_written(path: Path) -> None:
    with History(path) as history:
        history.put_window(window(1.0))
        counts: list[int] = []

        def read() -> None:
            with HistoryReader(path) as reader:
                counts.append(len(reader.windows()))

        thread = threading.Thread(target=read)
        thread.start()
        for time_s in range(20):
            history.put_window(window(float(time_s)))
        thread.join()
        read()
    assert counts[0] >= 1
    assert counts[1] == 21


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 8000])
def test_a_corrupt_file_is_kept_aside_and_said(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with History(path) as history:
        assert history.message
        assert "kept as" in history.message
        history.put_window(window(1.0))
    (aside,) = path.parent.glob("*.aside-*")
    assert aside.read_bytes() == content
    with HistoryReader(path) as reader:
        assert len(reader.windows()) == 1


def test_a_file_that_breaks_in_the_middle_is_found(path: Path) -> None:
    with History(path) as history:
        for time_s in range(400):
            history.put_window(window(float(time_s)))
    pages = bytearray(path.read_bytes())
    pages[4096 * 3 : 4096 * 6] = b"\x5a" * 4096 * 3
    path.write_bytes(pages)
    with History(path) as history:
        assert history.message
        history.put_window(window(1.0))
    assert len(list(path.parent.glob("*.aside-*"))) == 1


def test_a_later_version_is_not_overwritten(path: Path) -> None:
    with History(path) as history:
        history.put_window(window(1.0))
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with History(path) as history:
        assert history.message
        assert "version" in history.message
    assert len(list(path.parent.glob("*.aside-*"))) == 1


def test_an_earlier_version_is_migrated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(history_file, "MIGRATIONS", MIGRATIONS[:1])
        with History(path) as history:
            history.put_window(window(1.0))
    with History(path) as history:
        assert history.message is None
        history.put_baseline("p", Baseline(1.0, 1))
        assert history.baseline("p") == Baseline(1.0, 1)
    with HistoryReader(path) as reader:
        assert len(reader.windows()) == 1


def test_a_full_disk_loses_windows_but_stops_nothing(path: Path) -> None:
    with History(path) as history:
        pages = history._database.execute("PRAGMA page_count").fetchone()[0]
        history._database.execute(f"PRAGMA max_page_count = {pages + 2}")
        for time_s in range(100):
            history.put_window(window(float(time_s)))
        assert history.lost > 0
        assert history.problem
        assert "full" in history.problem
        history._database.execute("PRAGMA max_page_count = 100000")
        history.put_window(window(1000.0))
        assert history.problem is None
    with HistoryReader(path) as reader:
        assert reader.windows()[-1].time_s == 1000.0


def test_where_nothing_can_be_written_it_remembers_until_its_end(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with History(tmp_path / "file" / FILE) as history:
        assert history.message
        history.put_points("k", [point(0.5)])
        assert len(history.points("k")) == 1


def test_old_windows_go_by_number_and_the_clock_may_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_WINDOWS", 10)
    with History(path) as history:
        for time_s in (4e9, *range(30)):  # the first at a time when the clock was wrong
            history.put_window(window(float(time_s)))
        history._pruned = 0.0
        history.put_window(window(30.0))
    with HistoryReader(path) as reader:
        assert [each.time_s for each in reader.windows()] == [float(time_s) for time_s in range(21, 31)]


def test_rows_of_another_form_are_left_out(path: Path) -> None:
    with History(path) as history:
        history.put_window(window(1.0))
        history._database.execute("INSERT INTO windows (time_s, gpu, data) VALUES (2, 0, ?)", (b'{"time_s": "x"}',))
        history._database.commit()
    with HistoryReader(path) as reader:
        assert [each.time_s for each in reader.windows()] == [1.0]


def test_readers_say_what_is_wrong(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(HistoryUnreadableError), HistoryReader(path) as reader:
        reader.windows()


def test_windows_survive_the_schema() -> None:
    """Fields may be added with defaults: an old row is still a window."""
    old = msgspec.json.encode(window(1.0)).replace(b'"trial":false,', b"").replace(b'"load":0.0,', b"")
    assert msgspec.json.decode(old, type=Window) == window(1.0)


_WRITER = """
import sys
from pathlib import Path
from gpsched.tuner.history import History
from tests.unit.tuner.test_history import change, point, window

with History(Path(sys.argv[1])) as history:
    print("writing", history.message, flush=True)
    for number in range(10**9):
        history.put_window(window(float(number)))
        history.put_change(change(float(number)))
        history.put_points("k", [point(0.5)] * 20)
"""


def test_it_is_whole_whenever_its_writer_is_killed(path: Path) -> None:
    windows = 0
    for _ in range(5):
        command = [sys.executable, "-c", _WRITER, str(path)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing None\n"
        time.sleep(random.random() * 0.05)
        writer.kill()
        writer.wait()
        writer.stdout.close()
        with HistoryReader(path) as reader:
            assert len(reader.points("k")) in (0, 20)  # all or nothing
            before, windows = windows, len(reader.windows())
        assert windows >= before
    with History(path) as history:
        assert history.message is None


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_who_may_not_write_can_read() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are root's alone
        path = Path(name) / FILE
        path.parent.chmod(0o755)
        with History(path) as history:
            history.put_window(window(1.0))
        program = (
            "import os; from pathlib import Path\n"
            "from gpsched.tuner.history_reader import HistoryReader; os.setuid(65534)\n"
            f"print(len(HistoryReader(Path({str(path)!r})).windows()))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.stdout == "1\n", done.stderr
