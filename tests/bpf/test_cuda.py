"""Every entry point and variant gives exactly the right event, or exactly the right count."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpsched.adaptive.probes.events import Call, CudaEvent
from tests.bpf import fake_cuda
from tests.bpf.conftest import Recorder, Victim


pytestmark = [pytest.mark.root, pytest.mark.bpf]
NOT_READY, ILLEGAL_ADDRESS = 600, 700
QUERIES = (Call.STREAM_QUERY, Call.EVENT_QUERY)
_VALUES = {"s": str(fake_cuda.STREAM), "e": str(fake_cuda.EVENT), "n": str(fake_cuda.SIZE), "c": "@gs_config"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_cuda.build(tmp_path_factory.mktemp("cuda"))


def managed(recorder: Recorder, victim: Victim, library: Path, class_: str) -> Victim:
    assert victim.do(f"load {library}") == 1
    recorder.probes.manage(victim.pid, class_)
    assert recorder.probes.wait_attached(30)
    return victim


def command(symbol: str) -> str:
    _, _, arguments = fake_cuda.SYMBOLS[symbol]
    words = [_VALUES.get(letter, str(0xBAD0 + index)) for index, letter in enumerate(arguments)]
    return f"call {symbol} {' '.join(words)}"


def expected_handle(arguments: str) -> int:
    if "s" in arguments or "c" in arguments:
        return fake_cuda.STREAM
    return fake_cuda.EVENT if "e" in arguments else 0


def cuda_events(recorder: Recorder, pid: int) -> list[CudaEvent]:
    return [event for event in recorder.of(pid) if isinstance(event, CudaEvent)]


def test_every_entry_point_gives_its_event(recorder: Recorder, victim: Victim, library: Path) -> None:
    managed(recorder, victim, library, "lc")
    for symbol, (call, is_async, arguments) in fake_cuda.SYMBOLS.items():
        seen = len(cuda_events(recorder, victim.pid))
        victim.do(command(symbol))
        events = cuda_events(recorder, victim.pid)[seen:]
        if call in QUERIES:
            (event,) = events
            assert (event.call, event.is_return, event.result) == (call, True, 0), symbol
            assert event.handle == expected_handle(arguments), symbol
            continue
        if call is Call.EVENT_RECORD:
            (event,) = events
            assert (event.call, event.is_return) == (call, False), symbol
            assert (event.handle, event.size) == (fake_cuda.EVENT, fake_cuda.STREAM), symbol
            continue
        if is_async:  # nothing was waited for
            (enter,) = events
            done = None
        else:
            enter, done = events
        size = fake_cuda.SIZE if "n" in arguments else 0
        shape = (enter.call, enter.is_return, enter.is_async, enter.handle, enter.size, enter.result)
        assert shape == (call, False, is_async, expected_handle(arguments), size, 0), symbol
        assert enter.tid == victim.pid
        if done is None:
            continue
        assert (done.call, done.is_return, done.is_async, done.handle, done.result) == (call, True, False, 0, 0), symbol
        assert done.tid == victim.pid
        assert 0 < enter.time_ns < done.time_ns


def test_calls_are_counted_alike_for_both_classes(
    recorder: Recorder, victims: Callable[..., Victim], library: Path
) -> None:
    lc, be = (managed(recorder, victims(), library, class_) for class_ in ("lc", "be"))
    for victim in (lc, be):
        for symbol in fake_cuda.SYMBOLS:
            victim.do(command(symbol))
    wanted = {call.name.lower(): 0 for call in Call if call}
    for call, _, _ in fake_cuda.SYMBOLS.values():
        wanted[call.name.lower()] += 1
    assert recorder.probes.counters(lc.pid) == wanted
    assert recorder.probes.counters(be.pid) == wanted


def test_best_effort_sends_no_call(recorder: Recorder, victim: Victim, library: Path) -> None:
    managed(recorder, victim, library, "be")
    victim.do("repeat 10000 cuLaunchKernel")
    assert cuda_events(recorder, victim.pid) == []
    assert recorder.probes.counters(victim.pid)["launch"] == 10000


def test_change_of_class_keeps_the_counts(recorder: Recorder, victim: Victim, library: Path) -> None:
    managed(recorder, victim, library, "be")
    victim.do("call cuGraphLaunch")
    recorder.probes.manage(victim.pid, "lc")
    victim.do("call cuGraphLaunch")
    assert recorder.probes.counters(victim.pid)["graph_launch"] == 2
    assert len(cuda_events(recorder, victim.pid)) == 1


def test_result_is_the_call_s(recorder: Recorder, victim: Victim, library: Path) -> None:
    managed(recorder, victim, library, "lc")
    victim.do(f"call fake_set_result {ILLEGAL_ADDRESS}")
    victim.do("call cuStreamSynchronize")
    assert [event.result for event in cuda_events(recorder, victim.pid)] == [0, ILLEGAL_ADDRESS]


def test_polling_is_silent_until_the_work_is_done(recorder: Recorder, victim: Victim, library: Path) -> None:
    managed(recorder, victim, library, "lc")
    victim.do(f"call fake_set_result {NOT_READY}")
    victim.do("repeat 1000 cuEventQuery")
    assert cuda_events(recorder, victim.pid) == []
    victim.do("call fake_set_result 0")
    victim.do("call cuEventQuery")
    assert [event.call for event in cuda_events(recorder, victim.pid)] == [Call.EVENT_QUERY]
    assert recorder.probes.counters(victim.pid)["event_query"] == 1001


def test_other_functions_are_not_probed(recorder: Recorder, victim: Victim, library: Path) -> None:
    managed(recorder, victim, library, "lc")
    for symbol in fake_cuda.UNPROBED:
        victim.do(f"call {symbol}")
    assert cuda_events(recorder, victim.pid) == []


def test_unmanaged_processes_are_invisible(recorder: Recorder, victims: Callable[..., Victim], library: Path) -> None:
    managed(recorder, victims(), library, "lc")
    stranger = victims()
    stranger.do(f"load {library}")
    stranger.do("repeat 100 cuLaunchKernel")
    assert recorder.of(stranger.pid) == []
    assert recorder.probes.counters(stranger.pid) == {}


def test_threads_are_told_apart(recorder: Recorder, victim: Victim, library: Path) -> None:
    managed(recorder, victim, library, "lc")
    victim.send("leave")
    victim.do("call cuLaunchKernel")
    (tid,) = {event.tid for event in cuda_events(recorder, victim.pid)}
    assert tid != victim.pid
