"""Record files: snapshots as JSON lines, after one line that says what the file is.

A file that was cut in the middle (a full disk, a crash) is read up to its last whole line.
"""

import gzip
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import msgspec

from gpsched.adaptive.errors import GpschedError, UsageError
from gpsched.adaptive.model import Snapshot


SCHEMA = "gpsched.record/1"
_GZIP = b"\x1f\x8b"


class RecordError(UsageError):
    """The file is no record, or cannot be read. Fields: ``path``, ``reason``."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}; make one with: gpsched record FILE")


class RecordWriteError(GpschedError):
    """The record cannot be written. Fields: ``path``, ``reason``."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"cannot write {path} ({reason}); what is there so far can be replayed")


class Header(msgspec.Struct, frozen=True):
    """The first line."""

    schema: str
    host: str
    started_s: float


class Writer:
    """Appends snapshots to a new file, compressed when its name ends with ``.gz``; each is flushed."""

    def __init__(self, path: Path) -> None:
        """Raises ``RecordWriteError``, also when the file exists."""
        self.path = path
        try:
            opened = gzip.open(path, "xb") if path.suffix == ".gz" else path.open("xb")  # noqa: SIM115 - kept
        except OSError as error:
            raise RecordWriteError(str(path), error.strerror or str(error)) from error
        self._file = cast(IO[bytes], opened)
        self._line(msgspec.json.encode(Header(SCHEMA, os.uname().nodename, time.time())))

    def put(self, snapshot: Snapshot) -> None:
        """Append one; raises ``RecordWriteError``."""
        self._line(msgspec.json.encode(snapshot))

    def _line(self, line: bytes) -> None:
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            raise RecordWriteError(str(self.path), error.strerror or str(error)) from error

    def close(self) -> None:
        """End the file."""
        self._file.close()


class Record:
    """A record that was read. ``complete`` is False when it had been cut; then its last, partial line is left out."""

    def __init__(self, path: Path) -> None:
        """Raises ``RecordError``."""
        self.path = path
        self.complete = True
        lines = self._lines()
        try:
            self.header = msgspec.json.decode(next(lines, b""), type=Header)
        except msgspec.MsgspecError as error:
            raise RecordError(str(path), "not a record of gpsched") from error
        if self.header.schema != SCHEMA:
            raise RecordError(str(path), f"a record of another version ({self.header.schema})")
        self.snapshots = list(self._decoded(lines))
        if not self.snapshots:
            raise RecordError(str(path), "holds no snapshot")

    def _decoded(self, lines: Iterator[bytes]) -> Iterator[Snapshot]:
        decoder = msgspec.json.Decoder(Snapshot)
        for line in lines:
            try:
                snapshot = decoder.decode(line)
            except msgspec.MsgspecError:
                self.complete = False
                return
            yield snapshot

    def _lines(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as probe:
                compressed = probe.read(2) == _GZIP
            with gzip.open(self.path, "rb") if compressed else self.path.open("rb") as file:
                yield from cast(IO[bytes], file)
        except (EOFError, zlib.error):  # a gzip file that was cut, or is damaged from here on
            self.complete = False
        except (OSError, gzip.BadGzipFile) as error:
            raise RecordError(str(self.path), str(getattr(error, "strerror", None) or error)) from error
