"""What does not fit is counted, never hidden."""

import os
from pathlib import Path

import pytest

from gpsched.adaptive.probes.events import CudaEvent
from tests.bpf import fake_cuda
from tests.bpf.conftest import Recorder, Victim


pytestmark = [pytest.mark.root, pytest.mark.bpf]


def test_every_event_is_seen_or_counted_as_lost(victim: Victim, tmp_path: Path) -> None:
    recorder = Recorder(ring_pages=1)
    try:
        victim.do(f"load {fake_cuda.build(tmp_path, ('cuStreamSynchronize',))}")
        recorder.probes.manage(victim.pid, "lc")
        assert recorder.probes.wait_attached(30)
        recorder.of(victim.pid)
        # Nobody reads meanwhile: 4 KiB hold 56 events, 27 of them the wakes of reading this command letter by letter.
        victim.do("repeat 1000 cuStreamSynchronize")
        seen = len(recorder.of(victim.pid, CudaEvent))
        assert 0 < seen < 100
        assert seen + recorder.probes.lost() == 2000
        victim.do("call cuStreamSynchronize")
        assert len(recorder.of(victim.pid, CudaEvent)) == seen + 2, "it goes on once there is room"
        assert recorder.probes.counters(victim.pid)["stream_sync"] == 1001
    finally:
        recorder.probes.close()


def test_processes_that_do_not_fit_are_counted(victim: Victim) -> None:
    recorder = Recorder(max_processes=4)
    try:
        recorder.probes.manage(victim.pid, "be")
        children = [victim.do("hold") for _ in range(8)]
        followed = set(recorder.probes.managed()) & set(children)
        assert len(followed) < 8
        assert len(followed) + recorder.probes.lost_processes() == 8
    finally:
        recorder.probes.close()


def test_storm_does_not_hold_the_loop(victim: Victim, tmp_path: Path, recorder: Recorder) -> None:
    """One poll takes a bounded number of events, and the next goes on where it stopped."""
    victim.do(f"load {fake_cuda.build(tmp_path, ('cuStreamSynchronize',))}")
    recorder.probes.manage(victim.pid, "lc")
    assert recorder.probes.wait_attached(30)
    recorder.of(os.getpid())
    victim.do("repeat 5000 cuStreamSynchronize")
    first = recorder.probes.poll(100)
    assert first == 4096
    assert len(recorder.of(victim.pid, CudaEvent)) == 10000
