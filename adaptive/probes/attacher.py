"""Puts the uprobes into each libcuda file, and into each file with the hint function, once, on a thread of its own.

Without multi-links an attachment takes seconds, and the event loop must not wait for it. One thread, because
attachments of one file must not race.
"""

import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from gpsched.adaptive.errors import GpschedError, ProcessGoneError
from gpsched.adaptive.probes import libraries, links
from gpsched.adaptive.probes.errors import AttachError


log = logging.getLogger(__name__)

Attach = Callable[[str, dict[int, int]], list[int]]
AttachHint = Callable[[str, int], list[int]]
_AT_ONCE, _SOON, _LATER = range(3)  # urgency of jobs


class Attachment(msgspec.Struct, frozen=True):
    """One libcuda file: how many ``entry_points`` are probed, in what time; or the ``error`` that prevented it."""

    path: str
    device: int
    inode: int
    entry_points: int
    seconds: float
    error: str | None = None


class Attacher:
    """Attaches in the background; ``close`` detaches everything."""

    def __init__(self, attach: Attach, attach_hint: AttachHint) -> None:
        self._attach, self._attach_hint = attach, attach_hint
        self._jobs: queue.PriorityQueue[tuple[int, int, Callable[[], None] | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()  # jobs of one urgency keep their order
        self._searched: set[libraries.FileId] = set()  # for the hint function
        self._done: dict[libraries.FileId, Attachment] = {}
        self._descriptors: list[int] = []
        self._pending = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="gpsched-attach", daemon=True)
        self._thread.start()

    def process(self, pid: int) -> None:
        """Ask for the libraries that a process has mapped."""
        self._put(partial(self._serve_process, pid))

    def file(self, path: str) -> None:
        """Ask for one library by its path."""
        self._put(lambda: self._once(libraries.open_library(path)))

    def host(self) -> None:
        """Ask for the host's libraries: CUDA's, and the one with which Python programs give hints."""
        self._put(self._serve_host)

    def hints(self, pid: int) -> None:
        """Ask for the hint function in whatever program files a process has mapped; libraries of others come first."""
        self._put(partial(self._serve_hints, libraries.mapped_programs(pid, self._searched)), _LATER)

    def attachments(self) -> tuple[Attachment, ...]:
        """Return what was attached so far, failures included, in that order."""
        with self._changed:
            return tuple(self._done.values())

    def wait(self, timeout_s: float) -> bool:
        """Wait until nothing is left to do; returns False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._pending == 0, timeout_s)

    def close(self, timeout_s: float = 10.0) -> bool:
        """Detach everything; returns False when that takes longer, and the end of the process completes it.

        Bounded because without multi-links each probe waits for a grace period of the kernel.
        """
        self._jobs.put((_AT_ONCE, next(self._numbers), None))
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _put(self, job: Callable[[], None], urgency: int = _SOON) -> None:
        with self._changed:
            self._pending += 1
        self._jobs.put((urgency, next(self._numbers), job))

    def _run(self) -> None:
        while (job := self._jobs.get()[2]) is not None:
            try:
                job()
            except ProcessGoneError:
                pass
            except (GpschedError, OSError) as error:
                log.warning("%s", error)
            finally:
                with self._changed:
                    self._pending -= 1
                    self._changed.notify_all()
        links.close_all(self._descriptors)
        self._descriptors.clear()

    def _serve_process(self, pid: int) -> None:
        for library in libraries.mapped_libraries(pid):
            self._once(library)

    def _serve_host(self) -> None:
        for path in libraries.host_libraries():
            self._once(libraries.open_library(path))
        if libraries.OWN_HINT.exists():
            self._search(libraries.open_library(str(libraries.OWN_HINT)))

    def _serve_hints(self, rest: Iterator[libraries.Library]) -> None:
        """One file at a time: frameworks map hundreds, and other processes' first launches must not wait for them."""
        library = next(rest, None)
        if library:
            self._search(library)
            self._put(partial(self._serve_hints, rest), _LATER)

    def _search(self, library: libraries.Library) -> None:
        """Probe the hint function if the file has it; each file is searched once."""
        try:
            offset = None if library.id in self._searched else libraries.hint_offset(library)
            self._searched.add(library.id)
            if offset is not None:
                self._descriptors += self._attach_hint(library.path, offset)
                log.info("%s: its hints are heard", library.shown)
        finally:
            os.close(library.descriptor)

    def _once(self, library: libraries.Library) -> None:
        """A file that failed is not tried again: it would fail for each of its processes."""
        try:
            if library.id not in self._done:
                self._first(library)
        finally:
            os.close(library.descriptor)

    def _first(self, library: libraries.Library) -> None:
        start = time.monotonic()
        count, error = 0, None
        try:
            count = self._probe(library)
        except AttachError as failure:
            log.warning("%s", failure)
            error = str(failure)
        spent = time.monotonic() - start
        with self._changed:
            self._done[library.id] = Attachment(library.shown, *library.id, count, spent, error)
        if count:
            log.info("%s: %d entry points probed in %.2f s", library.shown, count, spent)

    def _probe(self, library: libraries.Library) -> int:
        places = libraries.probe_places(library)
        if not places:
            raise AttachError(library.shown, "it exports no entry point of the CUDA driver")
        try:
            self._descriptors += self._attach(library.path, places)
        except OSError as error:
            raise AttachError(library.shown, str(error)) from error
        return len(places)
