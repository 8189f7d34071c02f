"""Turns the probes' events of one process into observations.

CUDA calls come from ``adaptive/probes`` today. Wakes and explicit hints need records of their own; ``wake`` and
``explicit`` here say what each must carry.
"""

from gpsched.adaptive.hints.observations import (
    UNKNOWN,
    Copy,
    Explicit,
    Launch,
    Observation,
    SyncEnter,
    SyncReturn,
    SyncScope,
    Wake,
    WakeKind,
    size_bucket,
)
from gpsched.adaptive.probes.events import Call, CudaEvent


_LAUNCHES = {Call.LAUNCH, Call.GRAPH_LAUNCH}
_COPIES = {Call.COPY_H2D, Call.COPY_D2H, Call.COPY_D2D, Call.COPY_PEER, Call.COPY_ANY}
_SCOPES = {
    Call.STREAM_SYNC: SyncScope.STREAM,
    Call.EVENT_SYNC: SyncScope.EVENT,
    Call.CTX_SYNC: SyncScope.CONTEXT,
    Call.STREAM_QUERY: SyncScope.STREAM,
    Call.EVENT_QUERY: SyncScope.EVENT,
}
_QUERIES = {Call.STREAM_QUERY, Call.EVENT_QUERY}
# Device-to-device copies and those of unknown direction may return before they are done (cuda.h: memcpy, peer and
# memset to the device are asynchronous with respect to the host).
_SYNCHRONOUS = {Call.COPY_D2H}


class CudaAdapter:
    """The CUDA calls of one process; remembers which handle each thread waits on, for returns carry none."""

    THREADS = 1024

    def __init__(self) -> None:
        self._waits: dict[int, int] = {}

    def convert(self, event: CudaEvent) -> list[Observation]:
        """Return what the event means, in order; nothing for failed calls."""
        time_us = event.time_ns / 1000.0
        if event.is_return:
            return self._returned(event, time_us)
        if event.call in _LAUNCHES:
            return [Launch(time_us, event.tid, event.handle)]
        if event.call in _COPIES:
            return self._copy(event, time_us)
        self._wait(event.tid, event.handle)
        return [SyncEnter(time_us, event.tid)]

    def _copy(self, event: CudaEvent, time_us: float) -> list[Observation]:
        copy = Copy(time_us, event.tid, event.handle, event.call == Call.COPY_H2D, size_bucket(event.size))
        if event.is_async or event.call not in _SYNCHRONOUS:
            return [copy]
        self._wait(event.tid, 0)
        return [copy, SyncEnter(time_us, event.tid)]

    def _returned(self, event: CudaEvent, time_us: float) -> list[Observation]:
        handle = self._waits.pop(event.tid, event.handle)
        if event.result != 0:
            return []
        if event.call in _QUERIES and not handle:
            # The record tells no handle: take the thread's own work to be done.
            return [SyncReturn(time_us, event.tid, SyncScope.EVENT)]
        if event.call in _SCOPES:
            return [SyncReturn(time_us, event.tid, _SCOPES[event.call], handle)]
        if event.call in _SYNCHRONOUS and not event.is_async:
            return [SyncReturn(time_us, event.tid, SyncScope.COPY)]
        return []

    def _wait(self, tid: int, handle: int) -> None:
        if len(self._waits) >= self.THREADS:
            self._waits.clear()
        self._waits[tid] = handle


def wake(time_ns: int, tid: int, kind: int, descriptor: int, size: int) -> Wake:
    """Return the wake of a record: ``kind`` as of WakeKind; ``descriptor`` and ``size`` (bytes) negative if unknown."""
    known = descriptor if descriptor >= 0 else UNKNOWN
    return Wake(time_ns / 1000.0, tid, WakeKind(kind), known, size_bucket(size))


def explicit(time_ns: int, tid: int, what: int, us: int) -> Explicit:
    """Return the hint of a call of ``gpsched_hint(what, us)``."""
    return Explicit(time_ns / 1000.0, tid, float(us), what == 2)
