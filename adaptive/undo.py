"""What was changed and what it was before: on disk before the first change, so that a crash never loses it.

An append-only file of JSON lines; the last line about a change counts. Every line about a driver's setting reaches the
disk (fsync) before the caller may change anything. One about something frozen need not: the file outlives the process
that wrote it, and what a crash of the machine loses is not frozen any more. A line cut by a crash is the last one and
was not acted on, so it is dropped.
"""

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Literal

import msgspec

from gpsched.adaptive.errors import GpschedError


ENDING_S = 10.0  # an earlier daemon may still be putting things back, or, killed, be closing thousands of probes
_COMPACT_BYTES = 1 << 20


class AlreadyRunningError(GpschedError):
    """Another daemon uses the same state directory. Field: ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"another gpsched daemon holds {path}; see: gpsched list, or stop it first")


class UndoLogError(GpschedError):
    """The log cannot be written, so nothing may be changed. Fields: ``path``, ``reason``."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"cannot keep original values in {path} ({reason}); choose another place with --state-dir")


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One changed setting of one channel group of one process (identified by pid and start time).

    ``timeslice``  it was ``original_us``
    ``channels``   ``channels`` may be disabled at any time, through the GPU's ``subdevice``; they were enabled
    """

    pid: int
    start_ticks: int
    fd: int
    client: int
    handle: int
    kind: Literal["timeslice", "channels"] = "timeslice"
    original_us: int = 0
    subdevice: int | None = None
    channels: tuple[int, ...] = ()

    @property
    def key(self) -> "Key":
        """What identifies the setting."""
        return (self.pid, self.start_ticks, self.client, self.handle, self.kind)


class StoppedProcess(msgspec.Struct, frozen=True, kw_only=True, tag="process"):
    """A process (identified by pid and start time) that gpsched stopped by SIGSTOP."""

    pid: int
    start_ticks: int

    @property
    def key(self) -> "Key":
        """What identifies it."""
        return ("process", self.pid, self.start_ticks)


class FrozenCgroup(msgspec.Struct, frozen=True, kw_only=True, tag="cgroup"):
    """A cgroup (identified by its directory's path and inode) that gpsched froze."""

    path: str
    inode: int

    @property
    def key(self) -> "Key":
        """What identifies it."""
        return ("cgroup", self.path, self.inode)


Key = tuple[int | str, ...]
Frozen = StoppedProcess | FrozenCgroup
Change = Setting | Frozen


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    what: Literal["changed", "restored"]
    setting: Setting | None = None
    frozen: Frozen | None = None

    @property
    def change(self) -> Change | None:
        return self.setting or self.frozen


class UndoLog:
    """The settings that differ from what the programs had. One daemon at a time: the file is locked."""

    def __init__(self, directory: Path, wait_s: float = 0.0) -> None:
        """Lock the log, waiting up to ``wait_s`` for a daemon that is ending. Raises the two errors above."""
        self.path = directory / "undo.jsonl"
        self._spare = directory / "undo.jsonl.new"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o755)
            self._file = self._open_locked(time.monotonic() + wait_s)
            self._pending = {each.key: each for each in _replay(self._spare_bytes() + self.path.read_bytes())}
            self._compact()
        except OSError as error:
            raise UndoLogError(self.path, error.strerror or str(error)) from error

    def _open_locked(self, deadline: float) -> int:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    os.close(file)
                    raise AlreadyRunningError(self.path) from error
                time.sleep(0.05)
            else:
                return file

    def _spare_bytes(self) -> bytes:
        """What a compaction that was cut short had saved; empty otherwise."""
        return self._spare.read_bytes() if self._spare.exists() else b""

    def _compact(self) -> None:
        """Keep only what is still to be restored.

        The file is rewritten in place since the lock belongs to it; a copy covers the moment in which it is empty.
        """
        lines = b"".join(_encode("changed", change) for change in self._pending.values())
        with self._spare.open("wb") as copy:
            copy.write(lines)
            copy.flush()
            os.fsync(copy.fileno())
        os.ftruncate(self._file, 0)
        _write_whole(self._file, lines)
        os.fsync(self._file)
        self._spare.unlink()
        self._bytes = len(lines)

    def pending(self) -> list[Setting]:
        """Settings that were changed and not restored, oldest first."""
        return [change for change in self._pending.values() if isinstance(change, Setting)]

    def frozen(self) -> list[Frozen]:
        """What was frozen and not thawed, oldest first."""
        return [change for change in self._pending.values() if not isinstance(change, Setting)]

    def changing(self, change: Change) -> None:
        """Put the original value on disk, or what is to be thawed. Only the first original of a setting counts."""
        if change.key not in self._pending:
            self._append("changed", change)
            self._pending[change.key] = change

    def restored(self, change: Change) -> None:
        """The setting has its original value again, or died with its process."""
        if self._pending.pop(change.key, None) is not None:
            self._append("restored", change)

    def _append(self, what: Literal["changed", "restored"], change: Change) -> None:
        line = _encode(what, change)
        try:
            if self._bytes > _COMPACT_BYTES:
                self._compact()
            _write_whole(self._file, line)
            if isinstance(change, Setting):
                os.fsync(self._file)
        except OSError as error:
            raise UndoLogError(self.path, error.strerror or str(error)) from error
        self._bytes += len(line)

    def close(self) -> None:
        """Give up the lock; the file stays when something is left to restore."""
        if not self._pending:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, 0)
        os.close(self._file)


def _encode(what: Literal["changed", "restored"], change: Change) -> bytes:
    """A newline on both sides: a line that was cut short does not swallow the next."""
    line = _Line(what, setting=change) if isinstance(change, Setting) else _Line(what, frozen=change)
    return b"\n" + msgspec.json.encode(line) + b"\n"


def _write_whole(file: int, data: bytes) -> None:
    if os.write(file, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _replay(content: bytes) -> list[Change]:
    pending: dict[Key, Change] = {}
    for line in content.splitlines():
        try:
            entry = msgspec.json.decode(line, type=_Line)
        except msgspec.MsgspecError:
            continue
        if entry.change is None:
            continue
        if entry.what == "changed":
            pending.setdefault(entry.change.key, entry.change)
        else:
            pending.pop(entry.change.key, None)
    return list(pending.values())
