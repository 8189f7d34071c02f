"""The readers' side of the tuner's memory on disk: reports, ``gpsched tune``, while the tuner writes."""

import sqlite3
from pathlib import Path
from typing import Any, Self

import msgspec

from gpsched.tuner.errors import HistoryUnreadableError
from gpsched.tuner.history_file import POINTS, decoded, numbered, readable
from gpsched.tuner.model import Change, Point, Window


class HistoryReader:
    """A missing file is an empty history.

    Raises ``HistoryUnreadableError``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = None
        try:
            if path.exists():
                self._database = readable(path)
        except (OSError, sqlite3.Error) as error:
            raise HistoryUnreadableError(path, str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def windows(self, since_s: float = 0.0, until_s: float = 1e12, gpu: int | None = None) -> list[Window]:
        """Return the windows that ended in this time, the oldest first."""
        return decoded(self._between("windows", since_s, until_s, gpu), Window)

    def last_windows(self) -> list[Window]:
        """Return the last window of each GPU."""
        rows = self._read("SELECT data FROM windows WHERE id IN (SELECT max(id) FROM windows GROUP BY gpu)", ())
        return decoded(rows, Window)

    def changes(self, since_s: float = 0.0, until_s: float = 1e12, gpu: int | None = None) -> list[Change]:
        """Return the changes of this time with their numbers, the oldest first."""
        rows = self._between("changes", since_s, until_s, gpu)
        return [msgspec.structs.replace(change, id=number) for number, change in numbered(rows, Change)]

    def points(self, key: str) -> list[Point]:
        """Return what was learned of this work, the oldest first."""
        return decoded(self._read(POINTS, (key,)), Point)

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
