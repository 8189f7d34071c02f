"""Services of other kinds: what is chosen for each, and what it costs."""

import random

import msgspec
import pytest

from gpsched.adaptive.hints import choose
from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.model import Trigger
from gpsched.adaptive.hints.observations import Wake, WakeKind
from tests.unit.hints.obedient import run
from tests.unit.hints.streams import Stream, arrivals, decode_loop, noise, plain_loop, timer_loop


def rng(seed: int = 2) -> random.Random:
    return random.Random(seed)


def believed(learner: HintLearner) -> list[Trigger]:
    return [trigger for trigger in learner.chosen().triggers if trigger.recall]


def test_a_timer_announces_a_camera_loop() -> None:
    learner = HintLearner()
    quality = run(learner, timer_loop(300, rng()))
    assert quality.in_time_share >= 0.99
    assert [trigger.matcher.kind for trigger in believed(learner)] == [WakeKind.TIMER]


def test_a_decode_loop_is_one_reservation_across_tokens() -> None:
    learner = HintLearner()
    stream = decode_loop(200, rng())
    quality = run(learner, stream)
    assert quality.in_time_share >= 0.99
    assert quality.waste_share < 0.01
    # The quiet time bridges the gaps between tokens (120 µs) and not those between requests (100 ms).
    assert 120 <= learner.chosen().quiet_us <= 1_000
    assert learner.report().outcome.bursts <= 225  # not 24 times 200
    assert learner.report().burst_us["p50"] > 20_000


def test_gaps_within_a_burst_speak_for_a_level_that_keeps_the_gpu() -> None:
    learner = HintLearner(costs=LEVELS["reserve"])
    assert learner.gaps == 0
    run(learner, decode_loop(200, rng()))
    assert learner.gaps in (8, 16)  # of 12 to 24 tokens
    hold, reserve = (learner.expected(LEVELS[level])[0] for level in ("hold", "reserve"))
    assert hold < LEVELS["hold"].switch_us
    assert reserve > 8 * LEVELS["reserve"].switch_us


def test_gaps_that_cost_more_than_a_switch_are_not_bridged() -> None:
    learner = HintLearner()
    run(learner, decode_loop(200, rng(), gap=2_000.0))
    assert learner.chosen().quiet_us == 0.0
    assert learner.gaps == 0


def test_bursts_without_any_lead_are_reserved_by_the_clock_when_they_are_regular() -> None:
    jitter = rng(3)
    times = [1e6 + i * 10_000 + jitter.uniform(0, 60) for i in range(600)]
    learner = HintLearner()
    quality = run(learner, plain_loop(times, rng(), prepare=lambda _: 0.0))
    assert [trigger.matcher.kind for trigger in believed(learner)] == [WakeKind.CLOCK]
    assert sum(margin >= 200 for margin in quality.margins) >= 0.9 * quality.bursts
    assert quality.waste_share < 0.01


def test_the_clock_survives_skipped_requests_within_its_budget() -> None:
    jitter = rng(4)
    times = [1e6 + i * 10_000 + jitter.uniform(0, 60) for i in range(800) if jitter.random() > 0.05]
    learner = HintLearner()
    quality = run(learner, plain_loop(times, rng(), prepare=lambda _: 0.0))
    assert quality.reserved >= 0.95 * quality.bursts
    assert quality.waste_share < 0.01
    outcome = learner.report().outcome
    assert outcome.hidden_us > 0.6 * (outcome.hidden_us + outcome.unhidden_us)


def test_bursts_without_any_lead_nor_rhythm_waste_nothing() -> None:
    learner = HintLearner()
    quality = run(learner, plain_loop(arrivals("poisson", 100, 400, rng()), rng(), prepare=lambda _: 0.0))
    assert quality.waste_share < 0.001
    assert quality.false_share < 0.01


def test_endpoints_with_different_leads_are_told_apart_by_payload_size() -> None:
    stream = plain_loop(
        arrivals("poisson", 100, 600, rng()),
        rng(),
        prepare=lambda i: 800.0 if i % 2 else 2500.0,
        size=lambda i: 20_000.0 if i % 2 else 300_000.0,
    )
    learner = HintLearner()
    quality = run(learner, stream)
    assert quality.in_time_share >= 0.99
    assert quality.waste_share < 0.01
    offsets = sorted(trigger.offset_us for trigger in believed(learner))
    assert offsets == pytest.approx([600.0, 2300.0], abs=30.0)


def test_connections_that_never_use_the_gpu_are_told_apart_by_descriptor() -> None:
    """Same thread, same size: only the descriptor differs."""
    stream = plain_loop(arrivals("poisson", 50, 500, rng()), rng(), size=lambda _: 100.0)
    source = rng(5)
    last = stream.bursts[-1].end_us
    busy = [(burst.launch_us - burst.lead_us, burst.end_us) for burst in stream.bursts]
    checks = (source.uniform(1e6, last) for _ in range(400))
    free = [at for at in checks if not any(start - 50 <= at <= end + 50 for start, end in busy)]
    stream.extend(Stream([Wake(at, 10, WakeKind.SOCKET_READ, 6, 7) for at in free]))
    learner = HintLearner()
    quality = run(learner, stream)
    assert [trigger.matcher.descriptor for trigger in believed(learner)] == [5]
    assert quality.in_time_share >= 0.99
    assert quality.false_share < 0.01


def test_the_slow_mechanism_starts_earlier_and_is_not_used_when_the_lead_is_too_short() -> None:
    long = HintLearner(LEVELS["reserve"])
    quality = run(long, plain_loop(arrivals("poisson", 100, 400, rng()), rng()), need=700.0)
    assert quality.in_time_share >= 0.99
    assert believed(long)[0].offset_us == pytest.approx(300.0, abs=20.0)
    short = HintLearner(LEVELS["reserve"])
    run(short, plain_loop(arrivals("poisson", 100, 400, rng()), rng(), prepare=lambda _: 300.0), need=700.0)
    assert short.chosen().triggers == ()
    assert "lead too short" in short.chosen().why


def test_levels_can_be_compared() -> None:
    learner = HintLearner()
    run(learner, plain_loop(arrivals("poisson", 100, 300, rng()), rng(), prepare=lambda _: 400.0))
    hold, hold_waste = learner.expected(LEVELS["hold"])
    reserve, _ = learner.expected(LEVELS["reserve"])
    assert hold > 150 > reserve
    assert hold_waste < 0.01


def test_other_costs_change_the_choice() -> None:
    learner = HintLearner()
    run(learner, plain_loop(arrivals("poisson", 100, 200, rng()), rng()))
    before = believed(learner)[0].offset_us
    learner.set_costs(Costs(need_us=500.0))
    run(learner, plain_loop(arrivals("poisson", 100, 50, rng(), start=10e6), rng()))
    assert believed(learner)[0].offset_us == pytest.approx(before - 300.0, abs=30.0)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that all candidates are looked at."""
    counted: list[int] = []
    select = choose.select
    monkeypatch.setattr(choose, "select", lambda *known: counted.append(1) or select(*known))
    return counted


def test_costs_that_hardly_differ_are_no_reason_to_look_at_all_candidates(looks: list[int]) -> None:
    """Levels are weighed now and then, mostly with the same outcome, and reactions are measured all the time."""
    learner = HintLearner()
    stream = plain_loop(arrivals("poisson", 100, 400, rng()), rng()).sorted()
    settled = len(stream) // 2
    for observation in stream[:settled]:
        learner.observe(observation)
    before = len(looks)
    for index, observation in enumerate(stream[settled:]):
        need_us = LEVELS["hold"].need_us + index % 2 * 10.0
        learner.set_costs(msgspec.structs.replace(LEVELS["hold"], need_us=need_us))
        learner.observe(observation)
    assert len(looks) - before <= 4  # of 200 bursts


def test_costs_that_grow_step_by_step_are_a_reason_once_they_differ_much(looks: list[int]) -> None:
    """A trigger whose reaction got slower was kept for hundreds of bursts, with an earlier one at hand."""
    learner = HintLearner()
    stream = plain_loop(arrivals("poisson", 100, 500, rng()), rng()).sorted()
    for observation in stream[: len(stream) * 4 // 5]:
        learner.observe(observation)
    before, costs = len(looks), LEVELS["hold"]
    for step, observation in enumerate(stream[len(stream) * 4 // 5 :][:60]):
        learner.set_costs(msgspec.structs.replace(costs, wake_most_us=min(2.0 * step, 60.0)))
        learner.observe(observation)
    assert len(looks) - before >= 1


def test_a_noisy_process_without_bursts_is_left_alone() -> None:
    learner = HintLearner()
    quality = run(learner, noise(1e6, 20e6, 200.0, rng()))
    assert learner.chosen().state == "learning"
    assert quality.false == quality.bursts == 0
