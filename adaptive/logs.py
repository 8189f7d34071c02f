"""The daemon's log on standard error: text or JSON, with the priorities that journald reads (sd-daemon(3))."""

import logging
import os
from typing import Literal

import msgspec


Format = Literal["text", "json"]
_PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


class _Text(logging.Formatter):
    def __init__(self, journal: bool) -> None:
        super().__init__("gpsched: %(message)s" if not journal else "%(message)s")
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        """Every line of a message gets the priority, as journald takes each for a message of its own."""
        text = super().format(record)
        return prefixed(text, record.levelno) if self._journal else text


class _Json(logging.Formatter):
    def __init__(self, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        """One object a line."""
        entry = {
            "time_s": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        line = msgspec.json.encode(entry).decode()
        return prefixed(line, record.levelno) if self._journal else line


def prefixed(text: str, level: int) -> str:
    """Put ``<N>`` before every line."""
    mark = f"<{_PRIORITY.get(level, 6)}>"
    return mark + text.replace("\n", "\n" + mark)


def setup(level: str, form: Format) -> None:
    """Log everything from ``level`` on to standard error."""
    journal = "JOURNAL_STREAM" in os.environ
    handler = logging.StreamHandler()
    handler.setFormatter(_Json(journal) if form == "json" else _Text(journal))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
