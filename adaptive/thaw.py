"""How what is frozen is told to run: from the record of it alone, so that whoever comes after a crash can do it."""

import contextlib
import errno
import logging
import os
import signal
from pathlib import Path

from gpsched.adaptive.cgroups import Cgroup
from gpsched.adaptive.errors import ProcessGoneError
from gpsched.adaptive.undo import Frozen, FrozenCgroup, StoppedProcess, UndoLog
from gpsched.adaptive.workloads import procinfo


log = logging.getLogger(__name__)

_PENDING = ("SigPnd", "ShdPnd")
_STOP_SIGNALS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_STOP_MASK = sum(1 << (number - 1) for number in _STOP_SIGNALS)


def restore_frozen(undo: UndoLog) -> int:
    """Thaw what a daemon that died left frozen; return how much that was. What cannot be thawed stays in the log."""
    count = 0
    for record in undo.frozen():
        if thaw(record):
            undo.restored(record)
            count += 1
    return count


def thaw(record: Frozen) -> bool:
    """Return whether the thing is not frozen by us any more; one that is gone is not."""
    try:
        if isinstance(record, FrozenCgroup):
            cgroup = Cgroup(Path(record.path))
            if cgroup.inode == record.inode:
                cgroup.set_frozen(False)
        elif not _wants_to_stay(record):
            send(record, signal.SIGCONT)
    except ProcessGoneError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return True
        log.warning("cannot thaw %s: %s; gpsched restore tries again", record, error.strerror)
        return False
    return True


def send(record: StoppedProcess, number: signal.Signals) -> None:
    """Signal this very process: the descriptor is bound before the start time is compared. Raises as ``open`` does."""
    try:
        pidfd = os.pidfd_open(record.pid)
    except ProcessLookupError as error:
        raise ProcessGoneError(record.pid) from error
    try:
        if procinfo.start_ticks(record.pid) != record.start_ticks:
            raise ProcessGoneError(record.pid)
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError as error:
        raise ProcessGoneError(record.pid) from error
    finally:
        os.close(pidfd)


def _wants_to_stay(record: StoppedProcess) -> bool:
    """Whether its user stopped it while we had: that signal is still pending, and SIGCONT would discard it.

    Before the process has come to a stop the pending signal may be our own.
    """
    if state(record.pid) != "T":
        return False
    masks = [int(line.split()[1], 16) for line in _read(record.pid, "status").splitlines() if line.startswith(_PENDING)]
    return any(mask & _STOP_MASK for mask in masks)


def settled(record: Frozen) -> bool:
    """Also true of what is gone."""
    with contextlib.suppress(OSError, ProcessGoneError):
        if isinstance(record, FrozenCgroup):
            return Cgroup(Path(record.path)).settled
        return all(state(record.pid, f"task/{task}/") in "TtZX" for task in _tasks(record.pid))
    return True


def _tasks(pid: int) -> list[str]:
    return [folder.name for folder in Path(f"/proc/{pid}/task").iterdir()]


def state(pid: int, task: str = "") -> str:
    """The letter of proc(5), of the first thread or of ``task``."""
    return _read(pid, f"{task}stat").rpartition(")")[2].split()[0]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError as error:
        raise ProcessGoneError(pid) from error
