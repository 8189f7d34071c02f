"""Turns the probes' events of one process into observations."""

from gpsched.adaptive.hints.observations import (
    UNKNOWN,
    Copy,
    EventRecord,
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
from gpsched.adaptive.probes.events import Call, CudaEvent, Event, Hint, HintEvent, WakeEvent


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
# Copies to the device and between devices may return before they are done, though not called asynchronous (CUDA
# driver API, "API synchronization behavior"); those of unknown direction are taken to be of these.
_SYNCHRONOUS = {Call.COPY_D2H}
_KINDS = {kind.value: kind for kind in WakeKind}
_SIZED = {WakeKind.SOCKET_READ, WakeKind.PIPE}


class EventAdapter:
    """The events of one process; remembers which handle each thread waits on, for returns carry none."""

    THREADS = 1024

    def __init__(self) -> None:
        self._waits: dict[int, int] = {}

    def convert(self, event: Event) -> list[Observation]:
        """Return what the event means, in order; nothing for failed calls and for other kinds of events."""
        if isinstance(event, CudaEvent):
            return self._returned(event) if event.is_return else self._entered(event)
        if isinstance(event, WakeEvent):
            return _wake(event)
        if isinstance(event, HintEvent):
            return [Explicit(event.time_ns / 1000.0, event.tid, float(event.in_us), event.hint == Hint.CANCEL)]
        return []

    def _entered(self, event: CudaEvent) -> list[Observation]:
        time_us, call = event.time_ns / 1000.0, event.call
        if call in _LAUNCHES:
            return [Launch(time_us, event.tid, event.handle)]
        if call in _COPIES:
            return self._copy(event, time_us)
        if call == Call.EVENT_RECORD:
            return [EventRecord(time_us, event.tid, event.handle, event.size)]
        self._wait(event.tid, event.handle)
        return [SyncEnter(time_us, event.tid)]

    def _copy(self, event: CudaEvent, time_us: float) -> list[Observation]:
        copy = Copy(time_us, event.tid, event.handle, event.call == Call.COPY_H2D, size_bucket(event.size))
        if event.is_async or event.call not in _SYNCHRONOUS:
            return [copy]
        self._wait(event.tid, 0)
        return [copy, SyncEnter(time_us, event.tid)]

    def _returned(self, event: CudaEvent) -> list[Observation]:
        time_us = event.time_ns / 1000.0
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


def _wake(event: WakeEvent) -> list[Observation]:
    """A wake; the sizes of what is always read whole (timers, counters) say nothing."""
    kind = _KINDS[event.wake]
    size = size_bucket(event.size) if kind in _SIZED else UNKNOWN
    descriptor = event.descriptor if event.descriptor >= 0 else UNKNOWN
    return [Wake(event.time_ns / 1000.0, event.tid, kind, descriptor, size)]
