"""Whose events go the fast way: those with a plan, jobs in turns; who is watched wakes the daemon."""

import pytest

from gpsched.adaptive.actuator.plans import GpuPlan, Mechanism, Member, Plan, PlanSet, Role, Trigger
from gpsched.adaptive.driver.types import Channel, ChannelGroup
from gpsched.adaptive.fastway import FastWay
from gpsched.adaptive.probes.events import Kind


GROUP = ChannelGroup(fd=7, client=1, handle=2, channels=(Channel(1, 3),), engine="compute", gpu_id=0)
PLAN = Plan(1, (Trigger(kind=Kind.HINT),), Mechanism.DISABLE, 1_000)
NOBODY: frozenset[int] = frozenset()


class _Kernel:
    def __init__(self) -> None:
        self.told: list[tuple[int, bool, str]] = []
        self.way = FastWay(lambda *what: self.told.append(what))

    def follow(self, *plans: Plan, watched: frozenset[int] = NOBODY, predicts: bool = False) -> list[tuple]:
        """What is asked of the kernel."""
        before = len(self.told)
        self.way.follow(PlanSet((GpuPlan(),), (), plans), watched, lambda _plan: predicts)
        return sorted(self.told[before:])


@pytest.mark.parametrize(("predicts", "at_once"), [(False, "nothing"), (True, "bursts")])
def test_a_plan_is_followed_once_and_given_up_with_it(predicts: bool, at_once: str) -> None:
    kernel = _Kernel()
    assert kernel.follow(PLAN, predicts=predicts) == [(1, True, at_once)]
    assert kernel.follow(PLAN, predicts=predicts) == []
    assert kernel.way.wakes is predicts
    assert kernel.follow() == [(1, False, "nothing")]
    assert not kernel.way.wakes


def test_who_is_watched_wakes_us_with_or_without_a_plan() -> None:
    kernel = _Kernel()
    watched = frozenset({1, 2})
    assert kernel.way.is_behind(watched)
    assert kernel.follow(PLAN, watched=watched) == [(1, True, "all"), (2, False, "all")]
    assert not kernel.way.is_behind(watched)
    assert kernel.follow(PLAN) == [(1, True, "nothing"), (2, False, "nothing")]


def test_jobs_in_turns_send_their_pauses() -> None:
    kernel = _Kernel()
    members = tuple(Member(pid, GROUP, Role.BE, turn=turn) for turn, pid in enumerate((5, 6)))
    kernel.way.follow(PlanSet((GpuPlan((10_000, 10_000)),), members, ()), NOBODY, lambda _plan: False)
    assert sorted(kernel.told) == [(5, True, "nothing"), (6, True, "nothing")]


def test_a_process_that_ended_is_not_spoken_of() -> None:
    kernel = _Kernel()
    kernel.follow(PLAN)
    kernel.way.forget(1)
    assert kernel.follow() == []
