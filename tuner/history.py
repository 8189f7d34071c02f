"""The tuner's memory on disk: windows, changes, and what was learned of each kind of work. SQLite, in WAL mode.

One process writes, others read meanwhile. A file that is no history, or one of a later version, is kept aside and a new
one begun; a full disk loses what cannot be written, which is counted and said, and never stops the tuner.
"""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from gpsched.tuner.errors import HistoryUnreadableError
from gpsched.tuner.model import Change, Expectation, Point, Window


log = logging.getLogger(__name__)
_T = TypeVar("_T")

FILE = "tuner.sqlite"
# One script a schema version, in order; the number of those that were run is the file's user_version.
MIGRATIONS = (
    """
    CREATE TABLE windows (id INTEGER PRIMARY KEY, time_s REAL NOT NULL, gpu INTEGER NOT NULL, data BLOB NOT NULL);
    CREATE INDEX windows_by_time ON windows (time_s);
    CREATE TABLE changes (id INTEGER PRIMARY KEY, time_s REAL NOT NULL, gpu INTEGER NOT NULL, data BLOB NOT NULL);
    CREATE INDEX changes_by_time ON changes (time_s);
    CREATE TABLE points (key TEXT NOT NULL, time_s REAL NOT NULL, data BLOB NOT NULL);
    CREATE INDEX points_by_key ON points (key);
    """,
    # Alone-latencies and solo rates of programs, which outlive the mix that they were measured in.
    """
    CREATE TABLE baselines (key TEXT PRIMARY KEY, time_s REAL NOT NULL, value REAL NOT NULL, count INTEGER NOT NULL);
    """,
)
KEEP_WINDOWS = 50_000  # about 40 MB
KEEP_CHANGES = 50_000
KEEP_DAYS = 30.0
KEEP_KEYS = 500
_PRUNE_EVERY_S = 600.0


class Baseline(msgspec.Struct, frozen=True):
    """A value measured ``count`` times without contention: µs of a latency, or launches per second."""

    value: float
    count: int


def path_in(state_dir: Path) -> Path:
    """Where the history is."""
    return state_dir / FILE


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
        return _decoded(self._read("SELECT data FROM points WHERE key = ? ORDER BY rowid", (key,)), Point)

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
            return _migrated(self.path)
        except (_LaterVersionError, sqlite3.DatabaseError, OSError) as error:
            if isinstance(error, sqlite3.OperationalError | OSError):
                return self._in_memory(str(error))
            return self._begun_anew(str(error))

    def _begun_anew(self, reason: str) -> sqlite3.Connection:
        aside = self.path.with_name(f"{self.path.name}.aside-{time.time_ns() // 1_000_000}")
        try:
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            database = _migrated(self.path)
        except (sqlite3.DatabaseError, OSError) as error:
            return self._in_memory(str(error))
        self.message = f"the history {self.path} could not be used ({reason}): kept as {aside}, a new one begun"
        log.warning("%s", self.message)
        return database

    def _in_memory(self, reason: str) -> sqlite3.Connection:
        """The disk is full or read-only: tune on, and remember until the end of this process."""
        self.message = self.problem = f"the history {self.path} cannot be written ({reason}): nothing outlives this run"
        log.warning("%s", self.message)
        return _migrated(None)

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


class HistoryReader:
    """The readers' side: reports and ``gpsched tune``. A missing file is an empty history.

    Raises ``HistoryUnreadableError``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = None
        try:
            if path.exists():
                self._database = _readable(path)
        except (OSError, sqlite3.Error) as error:
            raise HistoryUnreadableError(path, str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def windows(self, since_s: float = 0.0, until_s: float = 1e12, gpu: int | None = None) -> list[Window]:
        """Return the windows that ended in this time, the oldest first."""
        return _decoded(self._between("windows", since_s, until_s, gpu), Window)

    def last_windows(self) -> list[Window]:
        """Return the last window of each GPU."""
        rows = self._read("SELECT data FROM windows WHERE id IN (SELECT max(id) FROM windows GROUP BY gpu)", ())
        return _decoded(rows, Window)

    def changes(self, since_s: float = 0.0, until_s: float = 1e12, gpu: int | None = None) -> list[Change]:
        """Return the changes of this time with their numbers, the oldest first."""
        rows = self._between("changes", since_s, until_s, gpu)
        return [msgspec.structs.replace(change, id=number) for number, change in _numbered(rows, Change)]

    def points(self, key: str) -> list[Point]:
        """Return what was learned of this work, the oldest first."""
        return _decoded(self._read("SELECT data FROM points WHERE key = ? ORDER BY rowid", (key,)), Point)

    def keys(self) -> list[str]:
        """Return the kinds of work of which something was learned."""
        return [str(row[0]) for row in self._read("SELECT DISTINCT key FROM points", ())]

    def _between(self, table: str, since_s: float, until_s: float, gpu: int | None) -> list[tuple[Any, ...]]:
        where, parameters = "time_s >= ? AND time_s <= ?", [since_s, until_s]
        if gpu is not None:
            where, parameters = f"{where} AND gpu = ?", [*parameters, gpu]
        return self._read(f"SELECT data, id FROM {table} WHERE {where} ORDER BY id", tuple(parameters))  # noqa: S608

    def _read(self, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if self._database is None:
            return []
        try:
            return self._database.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            if "no such table" in str(error):  # begun a moment ago
                return []
            raise HistoryUnreadableError(self.path, str(error)) from error


def _readable(path: Path) -> sqlite3.Connection:
    """Open to read. Who may not write the folder cannot make WAL's index; while nobody writes, none is needed."""
    where = f"{path.resolve().as_uri()}?mode=ro"
    try:
        return _asked(where)
    except sqlite3.OperationalError:
        if path.with_name(f"{path.name}-wal").exists():
            raise
        return _asked(f"{where}&immutable=1")


def _asked(where: str) -> sqlite3.Connection:
    database = sqlite3.connect(where, uri=True, timeout=5.0)
    try:
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        database.close()
        raise
    return database


class _LaterVersionError(Exception):
    pass


def _migrated(path: Path | None) -> sqlite3.Connection:
    database = sqlite3.connect(path or ":memory:", timeout=5.0)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")  # a crash of the machine may lose the last windows, no more
        if path is not None and database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("it is damaged")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise _LaterVersionError(f"its version is {version}, ours {len(MIGRATIONS)}")
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            database.executescript(f"BEGIN; {script}; PRAGMA user_version = {number}; COMMIT;")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.close()
        raise
    return database


def _row(what: Window | Change) -> tuple[float, int, bytes]:
    return what.time_s, what.gpu, msgspec.json.encode(what)


def _decoded(rows: list[tuple[Any, ...]], type_: type[_T]) -> list[_T]:
    return [value for _, value in _numbered(rows, type_)]


def _numbered(rows: list[tuple[Any, ...]], type_: type[_T]) -> Iterator[tuple[int, _T]]:
    """Rows of a form that we do not know are left out: another version wrote them."""
    decoder = msgspec.json.Decoder(type_)
    for row in rows:
        with contextlib.suppress(msgspec.MsgspecError):
            yield (row[1] if len(row) > 1 else 0), decoder.decode(row[0])
