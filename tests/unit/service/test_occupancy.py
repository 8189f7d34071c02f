"""Whose the GPU was: shares, and the stretches that top draws for best-effort work."""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.actuator.plans import GpuPlan, Member, PlanSet, Role
from gpsched.adaptive.driver.types import ChannelGroup
from gpsched.adaptive.model import ProcessView
from gpsched.adaptive.occupancy import KEPT_US, Course, Occupancy
from tests.tui import scene


NOW = 5e9


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: NOW / 1e6)


def _views(*classes: str) -> list[ProcessView]:
    views = [scene.process(number, "x", class_) for number, class_ in enumerate(classes, 1)]
    return [msgspec.structs.replace(view, gpus=[0], spans=[], gpu_share=None) for view in views]


def _plans(*pids: int) -> PlanSet:
    group = ChannelGroup(client=1, handle=2, channels=(), subdevice=None, fd=3)
    members = [Member(pid, group, Role.BE, 0, turn) for turn, pid in enumerate(pids)]
    return PlanSet((GpuPlan((50_000,) * len(pids)),), tuple(members), ())


@given(st.lists(st.floats(0, KEPT_US * 2), min_size=2, max_size=40, unique=True))
def test_a_course_holds_what_lasted(times: list[float]) -> None:
    ordered = sorted(times)
    course = Course()
    stretches = list(zip(ordered[::2], ordered[1::2], strict=False))
    for start, end in stretches:
        course.add(start, end)
    now = ordered[-1] + 100_000.0
    last = now // 100_000 * 100_000
    first = last - KEPT_US + 100_000
    inside = sum(max(0.0, min(end, last) - max(start, first)) for start, end in stretches)
    assert sum(course.shares(now)) * 100_000 == pytest.approx(inside, abs=1.0)


def test_what_is_long_ago_is_forgotten() -> None:
    course = Course()
    course.add(NOW - 2 * KEPT_US, NOW - 1.5 * KEPT_US)
    assert sum(course.shares(NOW)) == 0


def test_best_effort_work_has_what_bursts_and_reservations_leave() -> None:
    occupancy = Occupancy()
    for second in range(10):
        end = NOW - second * 1e6
        occupancy.burst(1, end - 0.3e6, end)
        occupancy.reserved(1, end - 0.5e6, end)
    service, job = occupancy.fill(_views("lc", "be"))
    assert service.gpu_share == pytest.approx(0.3, abs=0.02)
    assert job.gpu_share == pytest.approx(0.5, abs=0.02)
    lengths = [round(span.end_s - span.start_s, 3) for span in job.spans]
    assert {span.kind for span in job.spans} == {"turn"}
    assert lengths.count(0.5) >= 8
    assert max(span.end_s for span in job.spans) <= time.time()


def test_alone_it_has_everything_and_unmanaged_work_is_not_judged() -> None:
    job, other = Occupancy().fill(_views("be", "unmanaged"))
    assert job.gpu_share == 1.0
    assert [round(span.end_s - span.start_s, 1) for span in job.spans] == [9.9]
    assert other.gpu_share is None


def test_turns_are_shared_as_the_actuator_tells() -> None:
    occupancy, plans = Occupancy(), _plans(1, 2)
    had = [0, 0]
    begin = NOW - KEPT_US
    for number in range(200):  # every 50 ms one look, three of four turns are the first one's
        occupancy.turns(plans, [had], begin + number * 50_000)
        had[0 if number % 4 else 1] += 50_000_000
    first, second = occupancy.fill(_views("be", "be"))
    assert first.gpu_share == pytest.approx(0.75, abs=0.05)
    assert second.gpu_share == pytest.approx(0.25, abs=0.05)
    assert len(second.spans) > 30


def test_a_new_actuator_counts_from_zero_again() -> None:
    occupancy, plans = Occupancy(), _plans(1, 2)
    occupancy.turns(plans, [[9_000_000_000, 0]], NOW - 2e6)
    occupancy.turns(plans, [[100_000_000, 0]], NOW - 1e6)
    occupancy.turns(plans, [[600_000_000, 0]], NOW - 0.5e6)
    first, second = occupancy.fill(_views("be", "be"))
    assert first.gpu_share == pytest.approx(0.05, abs=0.01)
    assert second.gpu_share == 0.0  # it waits for its first turn


def test_when_turns_end_best_effort_work_has_what_is_left() -> None:
    occupancy = Occupancy()
    occupancy.turns(_plans(1, 2), [[0, 0]], NOW - 4e6)
    assert [view.gpu_share for view in occupancy.fill(_views("be", "be"))] == [1.0, 1.0]
    occupancy.forget(1)
    assert occupancy.fill(_views("be"))[0].gpu_share == 1.0
