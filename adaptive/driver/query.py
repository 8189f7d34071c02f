"""Walks through the handles that a process may have, within bounds."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpsched.adaptive.driver import abi
from gpsched.adaptive.driver.calls import RmCalls


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a scan goes.

    Handles are tried up to ``first_*``, then on until ``misses`` in a row have no object, at most up to ``last_*``.
    ``calls`` and ``seconds`` end the scan of one process. On the H200 512 clients and a few thousand objects sufficed.
    """

    first_clients: int = 512
    first_objects: int = 2048
    misses: int = 512
    last_client: int = 4096
    last_object: int = 65536
    calls: int = 200_000
    seconds: float = 5.0


class Query:
    """Asks the driver about handles. ``complete`` is False once a bound on calls or time ended the scan."""

    def __init__(self, calls: RmCalls, bounds: Bounds) -> None:
        self.complete = True
        self.bounds = bounds
        self._calls = calls
        self._left = bounds.calls
        self._deadline = time.monotonic() + bounds.seconds

    def ask(self, fd: int, client: int, object_: int, control: abi.Control, params: abi.Params) -> int:
        """Issue one control and return its NV_STATUS. Raises OSError when the ioctl itself fails."""
        self._left -= 1
        return self._calls.once(fd, client, object_, control, params)

    def clients(self, exists: Callable[[int], bool], newest: Callable[[], int | None]) -> Iterator[int]:
        """Yield the client handles for which ``exists`` is true.

        Client handles count up while the driver is loaded, so when the first range has none the search goes down from
        ``newest()``, the handle that the driver would give out now.
        """
        found = False
        for handle in self._walk(abi.CLIENT_BASE, self.bounds.first_clients, self.bounds.last_client, exists):
            found = True
            yield handle
        top = None if found or not self.complete else newest()
        if top is not None:
            yield from self._walk_down(top, exists)

    def objects(self, exists: Callable[[int], bool]) -> Iterator[int]:
        """Yield the object handles for which ``exists`` is true."""
        return self._walk(abi.OBJECT_BASE, self.bounds.first_objects, self.bounds.last_object, exists)

    def _walk(self, base: int, first: int, last: int, exists: Callable[[int], bool]) -> Iterator[int]:
        stop = first
        for index in range(last):
            if index >= stop or self._exhausted():
                return
            if exists(base + index):
                stop = max(stop, index + 1 + self.bounds.misses)
                yield base + index

    def _walk_down(self, top: int, exists: Callable[[int], bool]) -> Iterator[int]:
        stop = abi.CLIENT_BASE + self.bounds.first_clients
        for handle in range(top, stop - 1, -1):
            if handle < stop or self._exhausted():
                return
            if exists(handle):
                stop = max(stop, handle - self.bounds.misses)
                yield handle

    def _exhausted(self) -> bool:
        if self._left <= 0 or time.monotonic() > self._deadline:
            self.complete = False
        return not self.complete
