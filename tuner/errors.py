"""Errors of the tuner; each message is one line that says what to do."""

from pathlib import Path

from gpsched.adaptive.errors import GpschedError


class HistoryUnreadableError(GpschedError):
    """The history cannot be read. Fields: ``path``, ``reason``."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"cannot read the tuner's history {path} ({reason}); name its folder with --state-dir")
