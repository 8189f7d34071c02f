"""Event traces: the kernel's events as they came, so that what hints and policy make of them can be repeated.

Compressed lines: a header (JSON), then a record of bpf/events.h each (base64), and at the end which threads were
gpsched's own (JSON). A file may hold several such parts, one behind the other. One that was cut is read as far as it
goes.
"""

import base64
import gzip
import logging
import os
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

import msgspec

from gpsched.adaptive.errors import GpschedError, UsageError
from gpsched.adaptive.probes.errors import EventDecodeError
from gpsched.adaptive.probes.events import Event, decode


log = logging.getLogger(__name__)

SCHEMA = "gpsched.events/1"
MOST = 10_000  # events a part: some ten seconds of a busy service, about 200 kB


class TraceError(UsageError):
    """The file is no trace, or cannot be read. Fields: ``path``, ``reason``."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}; make one with: gpsched record --events FILE")


class TraceWriteError(GpschedError):
    """The trace cannot be written. Fields: ``path``, ``reason``."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"cannot write {path} ({reason})")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a part. ``about``: what was running; ``scale``: real µs per µs of the GPU's clock."""

    schema: str = SCHEMA
    host: str
    started_s: float
    about: str = ""
    scale: float = 1.0


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of a part. ``agents``: threads of hold agents, whose calls are not the program's own."""

    agents: list[int]


class TraceWriter:
    """Appends one part to a file; what comes after ``MOST`` events is left out."""

    def __init__(self, path: Path, about: str = "", scale: float = 1.0) -> None:
        """Raises ``TraceWriteError``."""
        self._path, self._left = path, MOST
        try:
            self._file = cast(IO[bytes], gzip.open(path, "ab"))  # noqa: SIM115 (closed by close)
        except OSError as error:
            raise TraceWriteError(str(path), error.strerror or str(error)) from error
        header = Header(host=os.uname().nodename, started_s=time.time(), about=about, scale=scale)
        self._line(msgspec.json.encode(header))

    def put(self, record: bytes) -> None:
        """Append one record as it came from the ring buffer; raises ``TraceWriteError``."""
        if self._left > 0:
            self._left -= 1
            self._line(base64.b64encode(record))

    def close(self, agents: Iterable[int] = ()) -> None:
        """End the part; ``agents``: threads of hold agents. Raises ``TraceWriteError``."""
        self._line(msgspec.json.encode(End(agents=sorted(agents))))
        try:
            self._file.close()
        except OSError as error:
            raise TraceWriteError(str(self._path), error.strerror or str(error)) from error

    def _line(self, line: bytes) -> None:
        try:
            self._file.write(line + b"\n")
        except OSError as error:
            raise TraceWriteError(str(self._path), error.strerror or str(error)) from error


class Tracing:
    """What a daemon writes down while it is asked to; call it with each record. A full disk ends it, with a message."""

    def __init__(self) -> None:
        self._writer: TraceWriter | None = None

    @property
    def active(self) -> bool:
        """Whether anything is to be written."""
        return self._writer is not None

    def __call__(self, record: bytes) -> None:
        """Write the record, if anything is to be written."""
        if self._writer is None:
            return
        try:
            self._writer.put(record)
        except TraceWriteError as error:
            log.warning("%s; no more events are written", error)
            self._writer = None

    def start(self, path: Path, about: str = "", scale: float = 1.0) -> None:
        """Append a part to ``path``, in place of what was being written; raises ``TraceWriteError``."""
        self.stop()
        self._writer = TraceWriter(path, about, scale)

    def stop(self, agents: Iterable[int] = ()) -> None:
        """End the part, if there is one; ``agents`` as for ``TraceWriter.close``."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close(agents)
        except TraceWriteError as error:
            log.warning("%s", error)


class Trace(msgspec.Struct):
    """One part, its events in order of time (those of several CPUs do not come so), without those of ``agents``."""

    header: Header
    events: list[Event]
    agents: list[int] = []


def is_trace(path: Path) -> bool:
    """Whether the file begins like a trace."""
    try:
        return SCHEMA.encode() in next(_lines(path), b"")
    except TraceError:
        return False


def read(path: Path) -> list[Trace]:
    """Return all parts; raises ``TraceError``."""
    parts: list[Trace] = []
    for line in _lines(path):
        if parts and line.startswith(b'{"agents"'):
            parts[-1].agents = msgspec.json.decode(line, type=End).agents
        elif line.startswith(b"{"):
            parts.append(Trace(_header(path, line), []))
        elif parts:
            try:
                parts[-1].events.append(decode(base64.b64decode(line, validate=True)))
            except (EventDecodeError, ValueError) as error:
                raise TraceError(str(path), f"an event cannot be decoded ({error})") from error
    if not parts:
        raise TraceError(str(path), "holds no trace")
    for part in parts:
        own = [event for event in part.events if event.tid not in part.agents]
        part.events = sorted(own, key=lambda event: event.time_ns)
    return parts


def _header(path: Path, line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.MsgspecError as error:
        raise TraceError(str(path), "not a trace of gpsched") from error
    if header.schema != SCHEMA:
        raise TraceError(str(path), f"a trace of another version ({header.schema})")
    return header


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines only."""
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line.rstrip()
    except (EOFError, zlib.error):  # cut, or damaged from here on
        return
    except OSError as error:
        raise TraceError(str(path), error.strerror or str(error)) from error
