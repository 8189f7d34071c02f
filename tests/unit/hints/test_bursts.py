"""Burst segmentation: what ends a burst, over streams, threads, contexts, events, queries and copies."""

import pytest

from gpsched.adaptive.hints.bursts import Burst, BurstSegmenter
from gpsched.adaptive.hints.observations import Copy, EventRecord, Launch, SyncEnter, SyncReturn, SyncScope


@pytest.fixture
def segmenter() -> BurstSegmenter:
    return BurstSegmenter(gap_us=400.0)


def sync(segmenter: BurstSegmenter, time: float, scope: SyncScope, handle: int = 0, tid: int = 1) -> Burst | None:
    segmenter.sync_enter(SyncEnter(time - 1.0, tid))
    return segmenter.sync_return(SyncReturn(time, tid, scope, handle))


def test_a_stream_synchronisation_ends_the_burst_of_its_stream(segmenter: BurstSegmenter) -> None:
    assert segmenter.launch(Launch(100.0, 1, 7))
    assert not segmenter.launch(Launch(110.0, 1, 7))
    assert sync(segmenter, 300.0, SyncScope.STREAM, 7) == Burst(100.0, 300.0, 2, "sync")
    assert not segmenter.active


def test_every_stream_must_be_synchronised(segmenter: BurstSegmenter) -> None:
    segmenter.launch(Launch(100.0, 1, 7))
    segmenter.launch(Launch(110.0, 1, 8))
    assert sync(segmenter, 300.0, SyncScope.STREAM, 7) is None
    assert sync(segmenter, 400.0, SyncScope.STREAM, 8) == Burst(100.0, 400.0, 2, "sync")


def test_gaps_that_the_quiet_time_bridges_are_counted(segmenter: BurstSegmenter) -> None:
    segmenter.between.us = 50.0
    for start in (100.0, 220.0, 340.0):
        assert segmenter.advance(start) is None
        segmenter.launch(Launch(start, 1, 7))
        segmenter.launch(Launch(start + 1.0, 1, 7))
        assert sync(segmenter, start + 100.0, SyncScope.STREAM, 7) is None
    assert segmenter.advance(1_000.0) == Burst(100.0, 440.0, 6, "sync", gaps=2)


def test_gaps_are_as_long_whether_they_are_bridged_or_not(segmenter: BurstSegmenter) -> None:
    """A copy to the device comes 30 µs before each launch: within a burst, the gap ends with it."""
    time = 1_000.0
    learned = []
    for _ in range(600):  # until all that it remembers was learned while they were bridged
        segmenter.advance(time)
        segmenter.copy(Copy(time, 1, 7, to_device=True, size=3))
        segmenter.advance(time + 30.0)
        segmenter.launch(Launch(time + 30.0, 1, 7))
        sync(segmenter, time + 130.0, SyncScope.STREAM, 7)
        time += 280.0  # 150 after the synchronisation
        learned.append(segmenter.between.us)
    assert min(learned[50:]) >= 150.0
    assert max(learned) <= 1.25 * 180.0
    burst = segmenter.advance(time + 10_000.0)
    assert burst is not None
    assert burst.gaps > 500


def test_a_context_synchronisation_covers_all_streams_of_its_context(segmenter: BurstSegmenter) -> None:
    segmenter.launch(Launch(100.0, 1, 7, context=1))
    segmenter.launch(Launch(110.0, 1, 8, context=1))
    segmenter.launch(Launch(120.0, 1, 8, context=2))
    assert segmenter.sync_return(SyncReturn(300.0, 1, SyncScope.CONTEXT, context=1)) is None
    assert segmenter.sync_return(SyncReturn(400.0, 1, SyncScope.CONTEXT, context=2)) is not None


def test_a_synchronisation_does_not_cover_what_another_thread_launched_meanwhile(segmenter: BurstSegmenter) -> None:
    segmenter.launch(Launch(100.0, 1, 7))
    segmenter.sync_enter(SyncEnter(110.0, 1))
    segmenter.launch(Launch(120.0, 2, 7))
    assert segmenter.sync_return(SyncReturn(200.0, 1, SyncScope.STREAM, 7)) is None
    assert sync(segmenter, 300.0, SyncScope.STREAM, 7, tid=2) == Burst(100.0, 300.0, 2, "sync")


def test_an_event_covers_its_stream_up_to_the_record(segmenter: BurstSegmenter) -> None:
    segmenter.launch(Launch(100.0, 1, 7))
    segmenter.record(EventRecord(110.0, 1, 55, 7))
    assert sync(segmenter, 200.0, SyncScope.EVENT, 55) is not None
    segmenter.launch(Launch(1000.0, 1, 7))
    segmenter.record(EventRecord(1010.0, 1, 55, 7))
    segmenter.launch(Launch(1020.0, 1, 7))
    assert sync(segmenter, 1200.0, SyncScope.EVENT, 55) is None


def test_an_event_whose_record_was_not_seen_covers_the_threads_own_work(segmenter: BurstSegmenter) -> None:
    segmenter.launch(Launch(100.0, 1, 7))
    assert sync(segmenter, 200.0, SyncScope.EVENT, 55, tid=2) is None
    assert sync(segmenter, 300.0, SyncScope.EVENT, 55, tid=1) is not None


def test_a_query_that_finds_the_work_done_ends_the_burst(segmenter: BurstSegmenter) -> None:
    segmenter.launch(Launch(100.0, 1, 7))
    assert segmenter.sync_return(SyncReturn(250.0, 1, SyncScope.STREAM, 7)) == Burst(100.0, 250.0, 1, "sync")


def test_polling_for_long_work_is_not_cut_off_once_it_is_known(segmenter: BurstSegmenter) -> None:
    """The open quiet time learns short gaps between launches; the wait for the query's success is none of them."""
    closed = []
    for i in range(40):
        start = 1e6 + i * 50_000.0
        for j in range(4):
            if burst := segmenter.advance(start + j * 20.0):
                closed.append(burst)
            segmenter.launch(Launch(start + j * 20.0, 1, 7))
        polls = (segmenter.advance(start + poll * 100.0) for poll in range(1, 40))
        closed += [burst for burst in polls if burst]
        if burst := segmenter.sync_return(SyncReturn(start + 4_000.0, 1, SyncScope.STREAM, 7)):
            closed.append(burst)
    assert [burst.closed_by for burst in closed[-10:]] == ["sync"] * 10


def test_copies_belong_to_a_burst_only_within_it(segmenter: BurstSegmenter) -> None:
    segmenter.copy(Copy(90.0, 1, 7, to_device=True))
    assert not segmenter.active
    segmenter.launch(Launch(100.0, 1, 7))
    segmenter.copy(Copy(110.0, 1, 9))
    assert sync(segmenter, 200.0, SyncScope.STREAM, 7) is None
    assert sync(segmenter, 300.0, SyncScope.STREAM, 9) is not None


def test_a_synchronous_copy_ends_the_burst(segmenter: BurstSegmenter) -> None:
    segmenter.launch(Launch(100.0, 1, 7))
    segmenter.copy(Copy(110.0, 1, 0))
    assert sync(segmenter, 200.0, SyncScope.COPY) == Burst(100.0, 200.0, 1, "sync")


def test_a_stream_that_others_wait_for_stops_holding_bursts_open(segmenter: BurstSegmenter) -> None:
    """A side stream joined by an event on the GPU is never synchronised itself."""
    ends = []
    for i in range(8):
        start = 1e6 + i * 100_000.0
        if burst := segmenter.advance(start):
            ends.append(burst.closed_by)
        segmenter.launch(Launch(start, 1, 7))
        segmenter.launch(Launch(start + 5.0, 1, 8))
        if burst := sync(segmenter, start + 500.0, SyncScope.STREAM, 7):
            ends.append(burst.closed_by)
    assert ends[:3] == ["quiet"] * 3
    assert ends[3:] == ["sync"] * 5


def test_what_is_never_synchronised_is_closed_by_a_quiet_time_between_burst_and_pause(
    segmenter: BurstSegmenter,
) -> None:
    bursts = []
    for i in range(60):
        for j in range(10):
            time = 1e6 + i * 10_000.0 + j * 200.0
            if burst := segmenter.advance(time):
                bursts.append(burst)
            segmenter.launch(Launch(time, 1, 7))
    assert [burst.launches for burst in bursts[-20:]] == [10] * 20
    assert 200.0 < segmenter.open.us < 8_000.0


def test_a_pause_between_launches_ends_no_burst_of_a_program_that_synchronises(segmenter: BurstSegmenter) -> None:
    """An eager program launches at once, but for a rare pause of its interpreter that is longer than all before."""
    bursts = []
    for start in range(1_000, 1_000_000, 10_000):
        time = float(start)
        for launch in range(300):
            bursts.append(segmenter.advance(time))
            segmenter.launch(Launch(time, 1, 7))
            time += 4_000.0 if launch == 150 and start % 70_000 == 11_000 else 5.0
        bursts.append(sync(segmenter, time, SyncScope.STREAM, 7))
    ended = [burst for burst in bursts if burst]
    assert [burst.closed_by for burst in ended] == ["sync"] * 100
    # When it no longer does, the launches alone tell, after a second.
    for start in range(1_010_000, 2_210_000, 10_000):
        for launch in range(300):
            bursts.append(segmenter.advance(start + launch * 5.0))
            segmenter.launch(Launch(start + launch * 5.0, 1, 7))
        bursts.append(segmenter.advance(start + 9_000.0))
    assert [burst.closed_by for burst in bursts[-3000:] if burst] == ["quiet"] * 10


def test_a_lost_return_is_noticed_when_the_thread_goes_on(segmenter: BurstSegmenter) -> None:
    segmenter.launch(Launch(100.0, 1, 7))
    segmenter.sync_enter(SyncEnter(110.0, 1))
    assert segmenter.resume(2) is None
    burst = segmenter.resume(1)
    assert burst is not None
    assert burst.closed_by == "reset"


def test_a_long_synchronisation_keeps_the_burst_open(segmenter: BurstSegmenter) -> None:
    segmenter.launch(Launch(100.0, 1, 7))
    segmenter.sync_enter(SyncEnter(110.0, 1))
    assert segmenter.advance(500_000.0) is None
    burst = segmenter.advance(BurstSegmenter.LIMIT_US + 200.0)
    assert burst is not None
    assert burst.closed_by == "limit"
