"""The history's file: its schema, how it is opened to write and to read, and its rows. SQLite, in WAL mode."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec


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
POINTS = "SELECT data FROM points WHERE key = ? ORDER BY rowid"  # the oldest first


def path_in(state_dir: Path) -> Path:
    """Where the history is."""
    return state_dir / FILE


class LaterVersionError(Exception):
    """A later version of gpsched wrote the file."""


def migrated(path: Path | None) -> sqlite3.Connection:
    """Open to write, in the newest form; None: in memory. Raises ``LaterVersionError`` and what sqlite3 raises."""
    database = sqlite3.connect(path or ":memory:", timeout=5.0)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")  # a crash of the machine may lose the last windows, no more
        if path is not None and database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("it is damaged")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise LaterVersionError(f"its version is {version}, ours {len(MIGRATIONS)}")
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            database.executescript(f"BEGIN; {script}; PRAGMA user_version = {number}; COMMIT;")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.close()
        raise
    return database


def readable(path: Path) -> sqlite3.Connection:
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


def decoded(rows: list[tuple[Any, ...]], type_: type[_T]) -> list[_T]:
    """The same as ``numbered``, without the numbers."""
    return [value for _, value in numbered(rows, type_)]


def numbered(rows: list[tuple[Any, ...]], type_: type[_T]) -> Iterator[tuple[int, _T]]:
    """Yield each row's number (0 where it was not asked for) and what its data is.

    Rows of a form that we do not know are left out: another version wrote them.
    """
    decoder = msgspec.json.Decoder(type_)
    for row in rows:
        with contextlib.suppress(msgspec.MsgspecError):
            yield (row[1] if len(row) > 1 else 0), decoder.decode(row[0])
