"""Puts the uprobes into each libcuda file once, on a thread of its own.

Without multi-links an attachment takes seconds, and the event loop must not wait for it. One thread, because
attachments of one file must not race.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable

import msgspec

from gpsched.adaptive.errors import GpschedError, ProcessGoneError
from gpsched.adaptive.probes import libraries, links
from gpsched.adaptive.probes.errors import AttachError


log = logging.getLogger(__name__)

Attach = Callable[[str, dict[int, int]], list[int]]


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

    def __init__(self, attach: Attach) -> None:
        self._attach = attach
        self._jobs: queue.SimpleQueue[int | str | None] = queue.SimpleQueue()
        self._done: dict[libraries.FileId, Attachment] = {}
        self._descriptors: list[int] = []
        self._pending = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="gpsched-attach", daemon=True)
        self._thread.start()

    def process(self, pid: int) -> None:
        """Ask for the libraries that a process has mapped."""
        self._put(pid)

    def file(self, path: str) -> None:
        """Ask for one library by its path."""
        self._put(path)

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
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _put(self, job: int | str) -> None:
        with self._changed:
            self._pending += 1
        self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._serve(job)
            except (GpschedError, OSError) as error:
                log.warning("%s", error)
            finally:
                with self._changed:
                    self._pending -= 1
                    self._changed.notify_all()
        links.close_all(self._descriptors)
        self._descriptors.clear()

    def _serve(self, job: int | str) -> None:
        if isinstance(job, str):
            self._once(libraries.open_library(job))
            return
        try:
            found = libraries.mapped_libraries(job)
        except ProcessGoneError:
            return
        for library in found:
            self._once(library)

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
