"""The tuner's memory on disk: windows, changes, and what was learned of each kind of work; here the writer's side.

One process writes, others read meanwhile. A file that is no history, or one of a later version, is kept aside and a new
one begun; a full disk loses what cannot be written, which is counted and said, and never stops the tuner.
"""

import logging
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from gpsched.tuner.history_file import POINTS, LaterVersionError, decoded, migrated
from gpsched.tuner.model import Change, Expectation, Point, Window


log = logging.getLogger(__name__)

KEEP_WINDOWS = 50_000  # about 40 MB
KEEP_CHANGES = 50_000
KEEP_DAYS = 30.0
KEEP_KEYS = 500
_PRUNE_EVERY_S = 600.0


class Baseline(msgspec.Struct, frozen=True):
    """A value measured ``count`` times without contention: µs of a latency, or launches per second."""

    value: float
    count: int


class History:
    """The writer's side. ``problem`` says why the last write failed (None: it did not); ``lost`` counts such writes.

    ``message`` says what became of an unusable file; None when all was well.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        self.message: str | None = None
        self.lost = 0
        self._pruned = 0.0
        self._database = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def put_window(self, window: Window) -> None:
        """Remember a window."""
        self._write("INSERT INTO windows (time_s, gpu, data) VALUES (?, ?, ?)", _row(window))
        self._prune()

    def put_change(self, change: Change) -> int:
        """Remember a change; return the number that ``seen`` takes (0 when it could not be written)."""
        return self._write("INSERT INTO changes (time_s, gpu, data) VALUES (?, ?, ?)", _row(change))

    def seen(self, change: Change, number: int, seen: Expectation) -> None:
        """What the change came to."""
        if number:
            data = msgspec.json.encode(msgspec.structs.replace(change, seen=seen))
            self._write("UPDATE changes SET data = ? WHERE id = ?", (data, number))

    def points(self, key: str) -> list[Point]:
        """Return what was learned of this work, the oldest first."""
        return decoded(self._read(POINTS, (key,)), Point)

    def put_points(self, key: str, points: Sequence[Point]) -> None:
        """Remember these in place of what was known of this work; none to forget it."""
        rows = [(key, point.time_s, msgspec.json.encode(point)) for point in points]
        self._transaction(
            [("DELETE FROM points WHERE key = ?", [(key,)])]
            + ([("INSERT INTO points (key, time_s, data) VALUES (?, ?, ?)", rows)] if rows else [])
        )

    def baseline(self, key: str) -> Baseline | None:
        """Return what was measured of a program alone."""
        rows = self._read("SELECT value, count FROM baselines WHERE key = ?", (key,))
        return Baseline(*rows[0]) if rows else None

    def put_baseline(self, key: str, baseline: Baseline) -> None:
        """Remember what was measured of a program alone."""
        row = (key, time.time(), baseline.value, baseline.count)
        self._write("INSERT OR REPLACE INTO baselines (key, time_s, value, count) VALUES (?, ?, ?, ?)", row)

    # ---- inside

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return migrated(self.path)
        except (LaterVersionError, sqlite3.DatabaseError, OSError) as error:
            if isinstance(error, sqlite3.OperationalError | OSError):
                return self._in_memory(str(error))
            return self._begun_anew(str(error))

    def _begun_anew(self, reason: str) -> sqlite3.Connection:
        aside = self.path.with_name(f"{self.path.name}.aside-{time.time_ns() // 1_000_000}")
        try:
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            database = migrated(self.path)
        except (sqlite3.DatabaseError, OSError) as error:
            return self._in_memory(str(error))
        self.message = f"the history {self.path} could not be used ({reason}): kept as {aside}, a new one begun"
        log.warning("%s", self.message)
        return database

    def _in_memory(self, reason: str) -> sqlite3.Connection:
        """The disk is full or read-only: tune on, and remember until the end of this process."""
        self.message = self.problem = f"the history {self.path} cannot be written ({reason}): nothing outlives this run"
        log.warning("%s", self.message)
        return migrated(None)

    def _read(self, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._database.execute(statement, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            self._failed(error)
            return []

    def _write(self, statement: str, parameters: tuple[Any, ...]) -> int:
        return self._transaction([(statement, [parameters])])

    def _transaction(self, statements: list[tuple[str, list[tuple[Any, ...]]]]) -> int:
        """All or nothing; return the last row's number, 0 when it failed."""
        number = 0
        try:
            with self._database:
                for statement, rows in statements:
                    for row in rows:
                        number = self._database.execute(statement, row).lastrowid or 0
        except sqlite3.DatabaseError as error:
            self._failed(error)
            return 0
        if self.problem is not None and self.message != self.problem:
            log.info("the history can be written again; %d writes were lost", self.lost)
            self.problem = None
        return number

    def _failed(self, error: sqlite3.DatabaseError) -> None:
        """Say it once; if the file itself broke, go on with a new one."""
        self.lost += 1
        if not isinstance(error, sqlite3.OperationalError):
            self._database.close()
            self._database = self._begun_anew(str(error))
        elif self.problem is None:
            self.problem = f"the history {self.path} cannot be written: {error}"
            log.warning("%s", self.problem)

    def _prune(self) -> None:
        """Forget what is old. By number first: a clock that was wrong must not delete what is new."""
        now = time.monotonic()
        if now < self._pruned:
            return
        self._pruned = now + _PRUNE_EVERY_S
        for table, most in (("windows", KEEP_WINDOWS), ("changes", KEEP_CHANGES)):
            last = self._read(f"SELECT id, time_s FROM {table} ORDER BY id DESC LIMIT 1", ())  # noqa: S608 - our own names
            if last:
                newest, time_s = last[0]
                limits = (newest - most, time_s - KEEP_DAYS * 86_400)
                self._write(f"DELETE FROM {table} WHERE id <= ? OR time_s < ?", limits)  # noqa: S608
        old = "SELECT key FROM points GROUP BY key ORDER BY max(rowid) DESC LIMIT -1 OFFSET ?"
        self._write(f"DELETE FROM points WHERE key IN ({old})", (KEEP_KEYS,))  # noqa: S608


def _row(what: Window | Change) -> tuple[float, int, bytes]:
    return what.time_s, what.gpu, msgspec.json.encode(what)
