"""What the controller wrote, and what it must remember: an append-only journal, a state file, a leader lock."""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from gpsched.tuner.cluster.errors import LeaderError


class Journal:
    """One JSON object a line: ``time`` (Unix s), ``event`` and the event's own fields; on disk before `write`
    returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - kept open for the controller's life

    def write(self, event: str, **fields: Any) -> None:
        """Append one event."""
        self._file.write(json.dumps({"time": round(time.time(), 3), "event": event, **fields}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    events = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return events


def load_state(path: Path) -> dict[str, Any]:
    """The state file's object; empty when there is none or it cannot be read."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return state if isinstance(state, dict) else {}


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the state file in one step, so that a crash leaves the old or the new one."""
    draft = path.with_suffix(".new")
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


class LeaderLock:
    """An flock on a file that all controllers share; LeaderError when another holds it. Ends with the process."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - the lock lives as long as the file is open
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            text = self._file.read().strip()
            self._file.close()
            raise LeaderError(str(path), int(text) if text.isdigit() else 0) from error
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let go of the lock."""
        self._file.close()
