"""Whose events go the fast way: those with a plan, jobs in turns; who is watched wakes the daemon, who rests never."""

import pytest

from gpsched.adaptive.actuator.plans import GpuPlan, Mechanism, Member, Plan, PlanSet, Role, Trigger
from gpsched.adaptive.driver.types import Channel, ChannelGroup
from gpsched.adaptive.fastway import FastWay, Needs, Way
from gpsched.adaptive.probes.events import ALL_WAKES, ALL_WAKINGS, Call, Kind, Wake


GROUP = ChannelGroup(fd=7, client=1, handle=2, channels=(Channel(1, 3),), engine="compute", gpu_id=0)
PLAN = Plan(1, (Trigger(kind=Kind.HINT),), Mechanism.DISABLE, 1_000)
NOBODY: frozenset[int] = frozenset()


class _Kernel:
    def __init__(self) -> None:
        self.told: list[tuple[int, Way]] = []
        self.way = FastWay(lambda *what: self.told.append(what))
        self.agents: dict[int, int] = {}

    def follow(
        self,
        *plans: Plan,
        watched: frozenset[int] = NOBODY,
        predicts: bool = False,
        resting: frozenset[int] = NOBODY,
        members: tuple[Member, ...] = (),
    ) -> list[tuple[int, Way]]:
        """What is asked of the kernel."""
        before = len(self.told)
        gpu = GpuPlan((10_000,) * len(members))
        needs = Needs(watched, lambda _plan: predicts, resting, self.agents.get)
        self.way.follow(PlanSet((gpu,), members, plans), needs)
        return sorted(self.told[before:])


@pytest.mark.parametrize(("predicts", "at_once"), [(False, "nothing"), (True, "bursts")])
def test_a_plan_is_followed_once_and_given_up_with_it(predicts: bool, at_once: str) -> None:
    kernel = _Kernel()
    assert kernel.follow(PLAN, predicts=predicts) == [(1, (True, at_once, 0, 0))]
    assert kernel.follow(PLAN, predicts=predicts) == []
    assert kernel.way.wakes is predicts
    assert kernel.follow() == [(1, (False, "nothing", 0, 0))]
    assert not kernel.way.wakes


def test_who_is_watched_wakes_us_with_or_without_a_plan() -> None:
    kernel = _Kernel()
    watched = frozenset({1, 2})
    assert kernel.way.is_behind(watched, NOBODY)
    assert kernel.follow(PLAN, watched=watched) == [(1, (True, "all", 0, 0)), (2, (False, "all", 0, 0))]
    assert not kernel.way.is_behind(watched, NOBODY)
    assert kernel.follow(PLAN) == [(1, (True, "nothing", 0, 0)), (2, (False, "nothing", 0, 0))]


@pytest.mark.parametrize("predicts", [False, True])
def test_who_rests_is_the_actuator_s_alone_unless_it_is_watched(predicts: bool) -> None:
    kernel, resting = _Kernel(), frozenset({1})
    kernel.follow(PLAN, predicts=predicts)
    assert kernel.way.is_behind(NOBODY, resting)
    assert kernel.follow(PLAN, predicts=predicts, resting=resting) == [(1, (True, "never", 0, 0))]
    assert not kernel.way.wakes
    assert kernel.follow(PLAN, resting=resting, watched=resting) == [(1, (True, "all", 0, 0))]


def test_the_agent_s_thread_is_told() -> None:
    kernel = _Kernel()
    kernel.follow(PLAN)
    kernel.agents[1] = 99
    assert kernel.follow(PLAN) == [(1, (True, "nothing", 99, 0))]


def test_jobs_in_turns_send_their_pauses() -> None:
    kernel = _Kernel()
    members = tuple(Member(pid, GROUP, Role.BE, turn=turn) for turn, pid in enumerate((5, 6)))
    assert kernel.follow(members=members) == [(5, (True, "nothing", 0, 0)), (6, (True, "nothing", 0, 0))]


def test_a_process_that_ended_is_not_spoken_of() -> None:
    kernel = _Kernel()
    kernel.follow(PLAN)
    kernel.way.forget(1)
    assert kernel.follow() == []


def test_only_wakes_that_trigger_go_the_fast_way() -> None:
    kernel = _Kernel()
    wakes = Trigger(Kind.WAKE, Wake.EPOLL, offset_us=300), Trigger(Kind.WAKE, Wake.SOCKET_READ, offset_us=300)
    plan = Plan(1, (*wakes, Trigger(kind=Kind.CUDA_ENTER, call=Call.COPY_H2D)), Mechanism.DISABLE, 1_000)
    assert kernel.follow(plan) == [(1, (True, "nothing", 0, 1 << Wake.EPOLL | 1 << Wake.SOCKET_READ))]
    any_wake = Plan(1, (Trigger(kind=Kind.WAKE),), Mechanism.DISABLE, 1_000)
    assert kernel.follow(any_wake) == [(1, (True, "nothing", 0, ALL_WAKES))]


@pytest.mark.parametrize(("offset_us", "alerted"), [(0, True), (150, True), (400, False)])
def test_who_is_to_answer_at_once_is_told_that_the_thread_is_being_woken(offset_us: int, alerted: bool) -> None:
    """An actuator that sleeps takes 40 to 300 us to answer; awake, 15 to 50."""
    plan = Plan(1, (Trigger(Kind.WAKE, Wake.SOCKET_READ, offset_us=offset_us),), Mechanism.HOLD, 1_000)
    ((_, way),) = _Kernel().follow(plan)
    assert way.wakes == 1 << Wake.SOCKET_READ | (ALL_WAKINGS if alerted else 0)
    assert bool(way.wakes & 1 << Wake.EPOLL_WAKING) is alerted
    assert not way.wakes & 1 << Wake.EPOLL
