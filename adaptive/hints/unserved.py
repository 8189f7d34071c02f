"""Requests that a thread has read and not begun to serve.

An event loop reads all that has come, then serves one request after the other without waiting in between: nothing wakes
it for the second, but it is known since it was read. Once the thread has slept, all are served; of a thread that nobody
sees sleep nothing is known.
"""

from gpsched.adaptive.hints.observations import WAKINGS, WakeKind


class Unserved:
    """Counts what each thread has read; each burst that it begins serves one."""

    THREADS = 512

    def __init__(self) -> None:
        self._read: dict[int, int] = {}
        self._serves: int | None = None  # the thread that began the last burst

    @property
    def waits(self) -> bool:
        """Whether the thread that began the last burst has another request to serve."""
        return self._serves is not None and self._read.get(self._serves, 0) > 0

    def wake(self, kind: WakeKind, tid: int) -> None:
        """A thread read a request, or is being woken out of its sleep."""
        if kind in WAKINGS:
            if len(self._read) >= self.THREADS:
                self._read.clear()
            self._read[tid] = 0
        elif kind == WakeKind.SOCKET_READ and tid in self._read:
            self._read[tid] += 1

    def launch(self, tid: int) -> None:
        """A thread begins a burst."""
        self._serves = tid
        if self._read.get(tid, 0):
            self._read[tid] -= 1
