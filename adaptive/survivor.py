"""Thaws what the daemon had frozen, should the daemon be killed: a child that waits for its parent's end.

A process that was stopped stays so whoever dies, and a restart of the daemon may be long in coming. The child needs no
message: its standard input ends with the parent. Run as ``python -m gpsched.adaptive.survivor STATE_DIR``.
"""

import contextlib
import logging
import signal
import subprocess
import sys
from pathlib import Path

from gpsched.adaptive.thaw import restore_frozen
from gpsched.adaptive.undo import ENDING_S, AlreadyRunningError, UndoLog


log = logging.getLogger(__name__)
_END_S = 5.0
_FOR_THE_PARENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the parent thaws when it ends by these


class Survivor:
    """The child. ``watch`` starts it, again if it has died."""

    def __init__(self, state_dir: Path) -> None:
        self._command = [sys.executable, "-m", "gpsched.adaptive.survivor", str(state_dir)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The child's process id; 0 while there is none."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and alive else 0

    def watch(self) -> None:
        """Make sure that the child is there. Without it, what is frozen is still on record; so no error is raised."""
        if self.pid:
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_PARENT)  # inherited: from its very first moment
        try:
            # A session of its own: no terminal and no signal to our group reaches it.
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            log.warning("cannot start the process that thaws after a crash: %s", error)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        """Nothing is frozen any more: let the child end."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin
        with contextlib.suppress(OSError):
            process.stdin.write(b"done")
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(state_dir: Path) -> int:
    """Wait for the parent; return the exit code."""
    for number in _FOR_THE_PARENT:
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read() == b"done":
        return 0
    try:
        undo = UndoLog(state_dir, wait_s=ENDING_S)
    except AlreadyRunningError:  # a new daemon, which thaws by itself
        return 0
    try:
        restore_frozen(undo)
        return 1 if undo.frozen() else 0
    finally:
        undo.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
