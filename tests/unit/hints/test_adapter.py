"""The probes' CUDA events as observations."""

from gpsched.adaptive.hints.adapter import EventAdapter
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
)
from gpsched.adaptive.probes.events import Call, CudaEvent, Event, Hint, HintEvent, ProcExit, WakeEvent
from gpsched.adaptive.probes.events import Wake as WakeSource


def convert(*events: Event) -> list[Observation]:
    adapter = EventAdapter()
    return [observation for event in events for observation in adapter.convert(event)]


def enter(time: int, call: Call, handle: int = 0, size: int = 0, is_async: bool = False, tid: int = 1) -> CudaEvent:
    return CudaEvent(time * 1000, 9, tid, call, False, is_async, handle, size, 0)


def leave(time: int, call: Call, result: int = 0, is_async: bool = False, tid: int = 1) -> CudaEvent:
    return CudaEvent(time * 1000, 9, tid, call, True, is_async, 0, 0, result)


def test_launches_and_stream_synchronisations_carry_their_stream() -> None:
    assert convert(
        enter(10, Call.GRAPH_LAUNCH, 7, is_async=True),
        leave(12, Call.GRAPH_LAUNCH, is_async=True),
        enter(13, Call.STREAM_SYNC, 7),
        leave(50, Call.STREAM_SYNC),
    ) == [Launch(10.0, 1, 7), SyncEnter(13.0, 1), SyncReturn(50.0, 1, SyncScope.STREAM, 7)]


def test_copies_tell_direction_and_size() -> None:
    assert convert(enter(10, Call.COPY_H2D, 7, 1000, is_async=True)) == [Copy(10.0, 1, 7, True, 10)]


def test_a_synchronous_copy_to_the_host_synchronises() -> None:
    assert convert(enter(10, Call.COPY_D2H, 0, 4), leave(90, Call.COPY_D2H)) == [
        Copy(10.0, 1, 0, False, 3),
        SyncEnter(10.0, 1),
        SyncReturn(90.0, 1, SyncScope.COPY),
    ]


def test_failed_calls_prove_nothing() -> None:
    assert convert(enter(10, Call.CTX_SYNC), leave(20, Call.CTX_SYNC, result=700)) == [SyncEnter(10.0, 1)]


def test_a_query_without_its_handle_covers_the_threads_own_work() -> None:
    assert convert(leave(20, Call.STREAM_QUERY)) == [SyncReturn(20.0, 1, SyncScope.EVENT)]


def test_threads_do_not_mix_their_handles() -> None:
    observed = convert(
        enter(10, Call.STREAM_SYNC, 7, tid=1),
        enter(11, Call.EVENT_SYNC, 8, tid=2),
        leave(12, Call.STREAM_SYNC, tid=1),
        leave(13, Call.EVENT_SYNC, tid=2),
    )
    assert observed[2:] == [SyncReturn(12.0, 1, SyncScope.STREAM, 7), SyncReturn(13.0, 2, SyncScope.EVENT, 8)]


def test_event_records_tell_event_and_stream() -> None:
    assert convert(enter(10, Call.EVENT_RECORD, 55, 7)) == [EventRecord(10.0, 1, 55, 7)]


def woken(kind: WakeSource, descriptor: int, size: int) -> WakeEvent:
    return WakeEvent(5_000, 9, 3, kind, descriptor, size, size)


def test_wakes_carry_descriptor_and_size_where_they_mean_something() -> None:
    assert convert(woken(WakeSource.SOCKET_READ, 7, 200)) == [Wake(5.0, 3, WakeKind.SOCKET_READ, 7, 8)]
    assert convert(woken(WakeSource.TIMER, 7, 8)) == [Wake(5.0, 3, WakeKind.TIMER, 7)]
    assert convert(woken(WakeSource.FUTEX, UNKNOWN, 0)) == [Wake(5.0, 3, WakeKind.FUTEX)]


def test_the_numbers_of_wakes_are_the_probes() -> None:
    assert {kind.name: kind.value for kind in WakeSource}.items() <= {k.name: k.value for k in WakeKind}.items()


def test_hints() -> None:
    assert convert(HintEvent(5_000, 9, 3, Hint.RESERVE, 800)) == [Explicit(5.0, 3, 800.0, False)]
    assert convert(HintEvent(5_000, 9, 3, Hint.CANCEL, 0)) == [Explicit(5.0, 3, 0.0, True)]


def test_other_events_mean_nothing_here() -> None:
    assert convert(ProcExit(5_000, 9, 9, 0)) == []
