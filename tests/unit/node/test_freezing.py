"""Level ``freeze``: whom, when and for how long. The clock is the test's."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.config import Reservations
from gpsched.adaptive.driver.types import ChannelGroup
from gpsched.adaptive.freezing import Freezing, victims
from gpsched.adaptive.undo import UndoLogError
from gpsched.adaptive.workloads import procinfo
from gpsched.adaptive.workloads.registry import Group, Process


LC, OTHER_LC, BE, OTHER_BE = 10, 11, 20, 21
SETTINGS = Reservations(limit_us=10_000, be_floor=0.25)
OWN = procinfo.read(os.getpid())


def process(pid: int, class_: str, *gpus: int | None, out_of_control: bool = False) -> Process:
    info = procinfo.msgspec.structs.replace(OWN, pid=pid)
    groups = [ChannelGroup(client=1, handle=number, engine="compute", gpu_id=gpu) for number, gpu in enumerate(gpus)]
    known = {(1, group.handle): Group(group) for group in groups}
    return Process(info, class_, "attach", "t", out_of_control=out_of_control, groups=known)  # type: ignore[arg-type]


class Recorder:
    """Freezes nothing, and remembers. ``refused``: processes that cannot be frozen."""

    def __init__(self) -> None:
        self.never: set[int] = set()
        self.stopped: set[int] = set()
        self.refused: set[int] = set()
        self.asked = 0
        self.error: UndoLogError | None = None

    def freeze(self, pids: Iterable[int], holder: int = 0) -> dict[int, str]:
        self.asked += 1
        if self.error:
            raise self.error
        self.stopped |= set(pids) - self.refused
        return {}

    def thaw(self, pids: Iterable[int], holder: int | None = None) -> None:
        self.stopped -= set(pids)

    def thaw_all(self) -> int:
        self.stopped.clear()
        return 0

    def frozen(self) -> frozenset[int]:
        return frozenset(self.stopped)


class Bed:
    """One best-effort process out of control beside a latency-critical one, for a second already."""

    def __init__(self, settings: Reservations = SETTINGS) -> None:
        self.now, self.freezer = 0.0, Recorder()
        self.freezing = Freezing(self.freezer, settings, lambda: self.now)
        self.lc, self.be = process(LC, "lc", 0), process(BE, "be", 0, out_of_control=True)
        self.processes = [self.lc, self.be]
        self.freezing.follow(self.processes)
        self.at(1e6)

    def at(self, now: float) -> bool:
        """Let time pass as the daemon's loop does, and return whether the process is stopped then."""
        for _ in range(1000):
            due = self.now + self.freezing.wait_s() * 1e6
            if due >= now:
                break
            self.now = due
            self.freezing.update()
        self.now = now
        self.freezing.update()
        return BE in self.freezer.stopped


@pytest.mark.parametrize(
    ("lc", "be", "found"),
    [
        (process(LC, "lc", 0), process(BE, "be", 0, out_of_control=True), True),
        (process(LC, "lc", 0), process(BE, "be", 0), False),
        (process(LC, "lc", 0), process(BE, "be", 1, out_of_control=True), False),
        (process(LC, "lc", 0, 1), process(BE, "be", 1, out_of_control=True), True),
        (process(LC, "lc", 0), process(BE, "be", out_of_control=True), True),
        (process(LC, "lc", 0), process(BE, "be", None, out_of_control=True), True),
        (process(LC, "lc", None), process(BE, "be", 1, out_of_control=True), True),
        (process(LC, "be", 0), process(BE, "be", 0, out_of_control=True), False),
        (process(LC, "lc", 0), process(BE, "lc", 0, out_of_control=True), False),
    ],
)
def test_who_is_a_victim(lc: Process, be: Process, found: bool) -> None:
    assert victims([lc, be]) == ({BE: frozenset({LC})} if found else {})


def test_stopped_during_a_burst_and_shown() -> None:
    bed = Bed()
    assert bed.be.level == "freeze"
    assert f"bursts of {LC}" in bed.be.reason
    assert not bed.at(1.01e6)
    bed.freezing.began(LC)
    assert bed.at(1.012e6)
    bed.freezing.ended(LC)
    assert not bed.freezer.stopped
    assert bed.freezing.watched == {LC}


def test_bursts_of_others_stop_nobody() -> None:
    bed = Bed()
    bed.freezing.began(OTHER_LC)
    assert not bed.freezer.stopped


def test_an_announced_burst_is_awaited_and_dropped_when_it_does_not_come() -> None:
    bed = Bed()
    bed.freezing.announce(LC, 1_002_000, 1_005_000)
    assert not bed.at(1_001_999)
    assert bed.at(1_002_000)
    assert bed.at(1_004_999)
    assert not bed.at(1_005_000)
    bed.freezing.announce(LC, 1_020_000, 1_025_000)
    assert bed.at(1_021_000)
    bed.freezing.released(LC)
    assert not bed.freezer.stopped


def test_what_is_announced_within_a_burst_goes_on_after_it() -> None:
    bed = Bed()
    bed.freezing.began(LC)
    bed.freezing.announce(LC, bed.now + 500, bed.now + 3000)
    bed.at(bed.now + 1000)
    bed.freezing.ended(LC)
    assert bed.freezer.stopped
    assert not bed.at(bed.now + 3000)


def test_no_stop_is_longer_than_the_limit() -> None:
    bed = Bed()
    bed.freezing.began(LC)
    assert bed.at(1_009_999)
    assert not bed.at(1_010_000)
    assert not bed.at(1_100_000)  # the same burst
    bed.freezing.began(LC)
    assert bed.freezer.stopped


def test_bursts_that_overlap_do_not_make_a_stop_longer() -> None:
    bed = Bed()
    bed.processes.append(process(OTHER_LC, "lc", 0))
    bed.freezing.follow(bed.processes)
    bed.freezing.began(LC)
    bed.at(1_006_000)
    bed.freezing.began(OTHER_LC)
    assert bed.at(1_009_999)
    assert not bed.at(1_010_000)


@given(st.lists(st.tuples(st.sampled_from(["began", "ended", "announce"]), st.floats(1, 20_000)), max_size=60))
def test_the_floor_and_the_limit_hold_under_any_load(steps: list[tuple[str, float]]) -> None:
    bed = Bed()
    bed.freezing.forget(BE)  # it comes anew, so that the budget has to be earned
    bed.freezing.follow(bed.processes)
    start, stopped, longest, since = bed.now, 0.0, 0.0, None
    for kind, us in steps:
        match kind:
            case "began":
                bed.freezing.began(LC)
            case "ended":
                bed.freezing.ended(LC)
            case _:
                bed.freezing.announce(LC, bed.now, bed.now + us)
        end = bed.now + us
        while bed.now < end:
            before = bool(bed.freezer.stopped)
            since = (bed.now if since is None else since) if before else None
            wake = min(end, bed.now + bed.freezing.wait_s() * 1e6)
            stopped += before * (wake - bed.now)
            longest = max(longest, wake - since) if since is not None else longest
            bed.now = wake
            bed.freezing.update()
    assert longest <= SETTINGS.limit_us + 1
    assert stopped <= (1 - SETTINGS.be_floor) * (bed.now - start) + 1


def test_a_service_that_is_always_busy_gets_all_but_the_floor() -> None:
    bed = Bed()
    stopped = 0
    for step in range(20_000):
        if step % 50 == 0:  # 5 ms bursts with nothing between them
            bed.freezing.ended(LC)
            bed.freezing.began(LC)
        stopped += bed.at(bed.now + 100)
    assert (
        0.6 < stopped / 20_000 <= 1 - SETTINGS.be_floor
    )  # less than all: a stop that the budget ended waits for a burst


@pytest.mark.parametrize(("floor", "stops"), [(0.0, True), (1.0, False)])
def test_the_ends_of_the_floor(floor: float, stops: bool) -> None:
    bed = Bed(Reservations(limit_us=10_000, be_floor=floor))
    bed.freezing.began(LC)
    assert bool(bed.freezer.stopped) is stops


@pytest.mark.parametrize("gone", [LC, BE])
def test_whoever_leaves_lets_it_run(gone: int) -> None:
    bed = Bed()
    bed.freezing.began(LC)
    bed.freezing.forget(gone)
    assert not bed.freezer.stopped
    assert bed.freezing.wait_s() == float("inf") or gone == LC


def test_control_that_comes_back_lets_it_run() -> None:
    bed = Bed()
    bed.freezing.began(LC)
    bed.be.out_of_control = False
    bed.freezing.follow(bed.processes)
    assert not bed.freezer.stopped


def test_new_settings_end_the_stop_until_the_next_burst() -> None:
    bed = Bed()
    bed.freezing.began(LC)
    bed.freezing.reconfigure(Reservations(limit_us=5_000, be_floor=0.25))
    assert not bed.at(1_001_000)
    bed.freezing.began(LC)
    assert bed.at(1_005_999)
    assert not bed.at(1_006_000)


@pytest.mark.parametrize("error", [None, UndoLogError(Path("undo"), "full")])
def test_what_cannot_be_stopped_is_tried_once_a_burst(error: UndoLogError | None) -> None:
    bed = Bed()
    bed.freezer.refused, bed.freezer.error = {BE}, error
    bed.freezing.began(LC)
    bed.at(1_005_000)
    assert bed.freezer.asked == 1
    bed.freezing.ended(LC)
    bed.freezing.began(LC)
    assert bed.freezer.asked == 2


def test_a_process_that_was_thawed_with_anothers_cgroup_is_stopped_again() -> None:
    bed = Bed()
    bed.freezing.began(LC)
    bed.freezer.stopped.clear()
    assert bed.at(1_000_100)


def test_close_thaws_and_forgets() -> None:
    bed = Bed()
    bed.freezing.began(LC)
    bed.freezing.close()
    assert not bed.at(1_001_000)
    assert bed.freezing.wait_s() == float("inf")


def test_the_actuator_is_spared() -> None:
    bed = Bed()
    bed.freezing.spare(4242)
    assert bed.freezer.never == {4242}
