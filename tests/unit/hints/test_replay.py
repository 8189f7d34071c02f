"""Traces of real runs, replayed: the same events give the same choices, and policy turns those into plans."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpsched.adaptive import trace
from gpsched.adaptive.hints.costs import LEVELS
from gpsched.adaptive.hints.observations import WakeKind
from gpsched.adaptive.hints.replay import replay
from gpsched.adaptive.policy.levels import Prospect, choose_level
from gpsched.adaptive.trace import Trace
from gpsched.cli.replay import learned


FILES = sorted((Path(__file__).parent / "traces").glob("*.gz"))
PARTS = [pytest.param(part, id=f"{file.stem}: {part.header.about}") for file in FILES for part in trace.read(file)]
EMBEDDED, H200, WAKINGS = (
    {part.header.about: part for part in trace.read(FILES[0].with_name(f"{name}.gz"))}
    for name in ("embedded-gpu", "h200-2026-11-30", "h200-2026-11-30-wakings")
)


@pytest.mark.parametrize("part", PARTS)
def test_bursts_are_found_and_the_choice_is_the_same_each_time(part: Trace) -> None:
    first, second = ({pid: learner.report() for pid, learner in replay(part).items()} for _ in range(2))
    assert first
    assert first == second
    for report in first.values():
        assert report.outcome.bursts >= 10
        assert report.lost_events == 0
        assert report.outcome.waste_share < 2 * LEVELS["hold"].waste_budget


def level(part: Trace) -> str:
    """The level that the node would choose at an H200's costs."""
    (learner,) = replay(part).values()
    prospects = {name: Prospect(*learner.expected(LEVELS[name])) for name in ("reserve", "hold")}
    return choose_level(prospects, "timeslice", LEVELS["hold"].waste_budget)[0]


def test_a_plain_service_is_announced() -> None:
    (learner,) = replay(EMBEDDED["default"]).values()
    report = learner.report()
    assert report.state == "sure", report.why
    assert report.outcome.in_time > 0.5 * report.outcome.bursts
    assert level(EMBEDDED["default"]) == "hold"


def test_decoding_keeps_the_gpu_from_token_to_token() -> None:
    (learner,) = replay(EMBEDDED["llm-decode"], LEVELS["reserve"]).values()
    assert learner.gaps >= 8
    assert learner.chosen().quiet_us > 150
    assert level(EMBEDDED["llm-decode"]) == "reserve"


@pytest.mark.parametrize("about", ["A", "B"])
def test_a_pytorch_service_on_an_h200_is_announced_by_its_socket(about: str) -> None:
    (learner,) = replay(H200[about]).values()
    report = learner.report()
    assert report.state == "sure", report.why
    assert report.learned_after is not None
    assert report.learned_after <= 50
    assert report.outcome.false <= 0.01 * report.outcome.reservations
    assert level(H200[about]) == "hold"


@pytest.mark.parametrize("about", ["A", "C"])
def test_a_service_on_an_h200_is_announced_by_being_woken(about: str) -> None:
    """Its thread comes back from epoll 20 to 150 µs later, and reads its socket 30 µs after that."""
    costs = replace(LEVELS["hold"], need_us=310.0, spread_us=90.0, wake_us=45.0, wake_most_us=140.0)
    (learner,) = replay(WAKINGS[about], costs).values()
    report = learner.report()
    (trigger,) = report.choice.triggers
    assert trigger.matcher.kind == WakeKind.EPOLL_WAKING, report.why
    socket = next(each for each in report.candidates if each.kind == "socket_read")
    assert trigger.lead_us["p50"] > socket.lead_us["p50"] + 60.0
    assert trigger.lead_us["p1"] > socket.lead_us["p1"] + 40.0
    assert report.outcome.false <= 0.01 * report.outcome.reservations


def test_without_preparation_a_constant_rate_is_foreseen_by_the_clock() -> None:
    (learner,) = replay(H200["lead"]).values()
    (trigger,) = learner.chosen().triggers
    assert trigger.matcher.kind == WakeKind.CLOCK


def test_replay_is_shown() -> None:
    lines = learned(FILES[0])
    assert any(line.endswith(" s") and "default" in line for line in lines)
    assert any("bursts, sure: " in line for line in lines)
