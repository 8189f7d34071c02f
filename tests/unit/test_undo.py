"""The undo log: what is on disk at every moment suffices to restore."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive import undo
from gpsched.adaptive.undo import (
    AlreadyRunningError,
    Frozen,
    FrozenCgroup,
    Setting,
    StoppedProcess,
    UndoLog,
    UndoLogError,
)


def _setting(handle: int = 1, original: int = 2048, pid: int = 10) -> Setting:
    return Setting(pid=pid, start_ticks=5, fd=3, client=0xC1D00001, handle=handle, original_us=original)


FROZEN: list[Frozen] = [
    StoppedProcess(pid=10, start_ticks=5),
    StoppedProcess(pid=10, start_ticks=6),
    FrozenCgroup(path="/sys/fs/cgroup/job", inode=77),
]


def _reopen(log: UndoLog, directory: Path) -> UndoLog:
    """As after SIGKILL: the lock is gone, nothing was tidied up."""
    os.close(log._file)
    return UndoLog(directory)


def test_the_original_is_on_disk_before_the_change(tmp_path: Path) -> None:
    log = UndoLog(tmp_path)
    log.changing(_setting())
    log = _reopen(log, tmp_path)
    assert log.pending() == [_setting()]


def test_only_the_first_original_counts(tmp_path: Path) -> None:
    log = UndoLog(tmp_path)
    log.changing(_setting(original=2048))
    log.changing(_setting(original=1))
    log = _reopen(log, tmp_path)
    assert log.pending() == [_setting(original=2048)]


def test_restored_settings_are_struck_off(tmp_path: Path) -> None:
    log = UndoLog(tmp_path)
    log.changing(_setting(1))
    log.changing(_setting(2))
    log.restored(_setting(1))
    log = _reopen(log, tmp_path)
    assert log.pending() == [_setting(2)]


@given(cut=st.integers(min_value=1, max_value=60))
def test_a_line_cut_by_a_crash_is_dropped(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    directory = tmp_path_factory.mktemp("undo")
    log = UndoLog(directory)
    log.changing(_setting(1))
    log.changing(_setting(2))
    content = log.path.read_bytes()
    log.path.write_bytes(content[:-cut])
    log = _reopen(log, directory)
    assert _setting(1) in log.pending()
    log.changing(_setting(3))
    log = _reopen(log, directory)
    assert {setting.handle for setting in log.pending()} >= {1, 3}
    log.close()


def test_a_crash_while_compacting_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = UndoLog(tmp_path)
    log.changing(_setting())

    def cut(file: int, _length: int) -> None:
        log.path.write_bytes(b"")
        os.close(file)  # as the kernel does for a process that is killed
        raise KeyboardInterrupt

    monkeypatch.setattr(undo.os, "ftruncate", cut)
    with pytest.raises(KeyboardInterrupt):
        _reopen(log, tmp_path)
    monkeypatch.undo()
    again = UndoLog(tmp_path)
    assert again.pending() == [_setting()]


def test_two_daemons_cannot_share_it(tmp_path: Path) -> None:
    log = UndoLog(tmp_path)
    with pytest.raises(AlreadyRunningError, match="another gpsched daemon"):
        UndoLog(tmp_path)
    log.close()
    UndoLog(tmp_path).close()


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UndoLogError, match="--state-dir"):
        UndoLog(tmp_path / "file")


def test_a_full_disk_forbids_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = UndoLog(tmp_path)
    log.changing(_setting(1))

    def full(_file: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(undo.os, "write", full)
    with pytest.raises(UndoLogError, match="No space left"):
        log.changing(_setting(2))
    assert log.pending() == [_setting(1)]


def test_a_half_written_line_does_not_spoil_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = UndoLog(tmp_path)
    write = os.write
    monkeypatch.setattr(undo.os, "write", lambda file, data: write(file, data[:20]))
    with pytest.raises(UndoLogError):
        log.changing(_setting(1))
    monkeypatch.undo()
    log.changing(_setting(2))
    assert undo._replay(log.path.read_bytes()) == [_setting(2)]


def test_what_is_frozen_is_kept_apart_from_settings(tmp_path: Path) -> None:
    log = UndoLog(tmp_path)
    log.changing(_setting())
    for frozen in FROZEN:
        log.changing(frozen)
    log = _reopen(log, tmp_path)
    assert log.pending() == [_setting()]
    assert log.frozen() == FROZEN
    log.restored(FROZEN[0])
    log = _reopen(log, tmp_path)
    assert log.frozen() == FROZEN[1:]
    assert log.pending() == [_setting()]


def test_freezing_for_days_does_not_fill_the_disk(tmp_path: Path) -> None:
    log = UndoLog(tmp_path)
    log.changing(_setting())
    largest = 0
    for _ in range(20_000):
        log.changing(FROZEN[0])
        log.restored(FROZEN[0])
        largest = max(largest, log.path.stat().st_size)
    assert largest < undo._COMPACT_BYTES + 1000
    assert undo._replay(log.path.read_bytes()) == [_setting()]


def test_lines_of_an_unknown_kind_are_skipped(tmp_path: Path) -> None:
    log = UndoLog(tmp_path)
    log.changing(_setting())
    log.path.write_bytes(b'{"what":"changed","frozen":{"type":"vm"}}\n' + log.path.read_bytes() + b'{"what":"changed"}')
    log = _reopen(log, tmp_path)
    assert log.pending() == [_setting()]
    assert log.frozen() == []
