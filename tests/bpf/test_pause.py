"""The actuator hears when a best-effort job that takes turns has nothing to do, and when it works again."""

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.probes.events import HEAD, Flag, Kind, Pause
from tests.bpf import fake_cuda
from tests.bpf.conftest import Recorder, Victim


pytestmark = [pytest.mark.root, pytest.mark.bpf]

CALLS = ("cuGraphLaunch", "cuStreamSynchronize", "cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuEventQuery")
PAUSE_S = 0.01
BEGUN, OVER = True, False


class Job:
    """A best-effort process, and what the actuator's ring has of it: whether a pause begins, for each that is told."""

    def __init__(self, victim: Victim, directory: Path) -> None:
        self.victim, self.own, self.told = victim, Recorder(), list[tuple[Pause, Flag]]()
        victim.do(f"load {fake_cuda.build(directory, CALLS)}")
        self.own.probes.manage(victim.pid, "be")
        assert self.own.probes.wait_attached(30)
        self.own.probes._map("fast").open_ring_buffer(self._take)
        self.own.probes.send_fast(victim.pid, True)

    def _take(self, _context: object, data: int, _size: int) -> int:
        _, pid, _, kind, call, result, flags, _ = HEAD.unpack_from(ctypes.string_at(data, HEAD.size))
        assert (pid, kind, call) == (self.victim.pid, Kind.PAUSE, 0)
        self.told.append((Pause(result), Flag(flags)))
        return 0

    def unit(self, *calls: str) -> list[bool]:
        """Work, pause, and return what was told of it."""
        for call in calls or ("cuGraphLaunch", "cuStreamSynchronize"):
            self.victim.do(f"call {call}")
        time.sleep(PAUSE_S)
        return self.heard()

    def work(self, seconds: float) -> list[tuple[Pause, Flag]]:
        """A unit that takes so long; return what was told of it, and of the pause after it."""
        self.victim.do("call cuGraphLaunch")
        time.sleep(seconds)
        self.victim.do("call cuStreamSynchronize")
        time.sleep(PAUSE_S)
        return self.listen()

    def listen(self) -> list[tuple[Pause, Flag]]:
        self.own.probes.poll(0)
        told, self.told = self.told, []
        return told

    def heard(self) -> list[bool]:
        return [pause != Pause.OVER for pause, _ in self.listen()]


@pytest.fixture
def job(victim: Victim, tmp_path: Path) -> Iterator[Job]:
    job = Job(victim, tmp_path)
    yield job
    job.own.probes.close()


def test_long_pauses_are_told_once_they_are_known_to_be_long(job: Job) -> None:
    assert job.unit() == []
    heard = [told for _ in range(5) for told in job.unit()]
    assert heard in ([BEGUN, *([OVER, BEGUN] * 4)], [BEGUN, *([OVER, BEGUN] * 3)])


def test_any_work_ends_a_pause_and_a_record_is_none(job: Job) -> None:
    for _ in range(4):
        job.unit()
    assert job.unit("cuEventRecord") == []
    assert job.unit("cuGraphLaunch") == [OVER]
    assert job.unit("cuGraphLaunch") == []
    assert job.unit("cuStreamSynchronize") == [BEGUN]
    assert job.unit("cuMemcpyDtoHAsync_v2") == [OVER]


def test_a_query_that_finds_the_work_done_begins_a_pause(job: Job) -> None:
    for _ in range(4):
        job.unit("cuGraphLaunch", "cuEventQuery")
    assert job.unit("cuGraphLaunch", "cuEventQuery") == [OVER, BEGUN]


def test_short_pauses_are_not_told(job: Job) -> None:
    """A loop of small units would flood the ring, and its turn is not to be passed on."""
    for _ in range(3):
        job.victim.do("repeat 500 cuStreamSynchronize")
    assert len(job.heard()) <= 4  # between the commands


def test_a_pause_after_longer_work_than_ever_before_one_is_in_doubt(job: Job) -> None:
    """A job at a rhythm that waited for its turn is behind, and goes on at once."""
    for _ in range(3):
        job.work(0.02)
    assert job.work(0.005)[-1][0] == Pause.SURE
    assert job.work(0.2)[-1][0] == Pause.IN_DOUBT
    assert job.work(0.1)[-1][0] == Pause.SURE, "one has followed more"


def test_after_a_short_pause_one_that_follows_as_much_work_is_in_doubt(job: Job) -> None:
    for _ in range(4):
        job.work(0.05)
    job.victim.do("repeat 2 cuStreamSynchronize")  # a short pause after hardly any work
    job.listen()
    assert job.work(0.02)[-1][0] == Pause.IN_DOUBT


def test_after_long_work_a_short_pause_is_told_too_and_whether_all_of_the_work_was(job: Job) -> None:
    job.victim.do("repeat 200 cuStreamSynchronize")
    job.listen()
    assert [flags for pause, flags in job.work(0.02) if pause != Pause.OVER] == [Flag(0)]
    assert [flags for pause, flags in job.work(0.02) if pause != Pause.OVER] == [Flag.WHOLE]


def test_who_takes_no_turns_is_not_told_of(job: Job) -> None:
    for _ in range(4):
        job.unit()
    job.own.probes.send_fast(job.victim.pid, False)
    assert [told for _ in range(4) for told in job.unit()] == []


def test_a_wait_that_was_not_seen_to_end_is_forgotten(job: Job) -> None:
    """The job was in a synchronisation when it was the only one again, and nobody was told of its pauses any more."""
    for _ in range(4):
        job.unit()
    pauses = job.own.probes._map("pauses")
    key = pauses.Key(job.victim.pid)
    state = pauses[key]
    state.waiting = 1
    pauses[key] = state
    assert job.unit() == [OVER], "it is believed to wait"
    job.own.probes.send_fast(job.victim.pid, False)
    job.own.probes.send_fast(job.victim.pid, True)
    assert BEGUN in [told for _ in range(4) for told in job.unit()]


def test_one_long_night_does_not_hide_short_days(job: Job) -> None:
    """The mean counts 50 ms of it: after 20 short pauses it tells nothing any more."""
    for _ in range(4):
        job.unit()
    time.sleep(0.3)
    job.victim.do("repeat 1000 cuStreamSynchronize")
    job.heard()
    job.victim.do("repeat 1000 cuStreamSynchronize")
    assert len(job.heard()) <= 10
