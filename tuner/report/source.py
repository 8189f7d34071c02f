"""Where a report's data comes from."""

from pathlib import Path

from gpsched.tuner.history_file import path_in
from gpsched.tuner.history_reader import HistoryReader
from gpsched.tuner.report.build import build
from gpsched.tuner.report.model import Report


def from_history(state_dir: Path, from_s: float, to_s: float, gpu: int | None = None) -> Report:
    """Report what the tuner of this state directory remembers, of one GPU or all; raises ``HistoryUnreadableError``.

    A history that was damaged and replaced is said in the notes: what it held is not in the report.
    """
    path = path_in(state_dir)
    aside = sorted(path.parent.glob(f"{path.name}.aside-*"))
    notes = [f"{len(aside)} unusable histories were kept aside, the last as {aside[-1]}"] if aside else []
    with HistoryReader(path) as history:
        return build(
            history.windows(from_s, to_s, gpu),
            history.changes(from_s, to_s, gpu),
            history.points,
            source=str(path),
            from_s=from_s,
            to_s=to_s,
            notes=notes,
        )
