"""Programs change while they run: the learner notices, falls back to the first launch, and is soon sure again."""

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from gpsched.adaptive.hints.chooser import Chooser
from gpsched.adaptive.hints.costs import LEVELS
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Copy, Launch, SyncEnter, SyncReturn, SyncScope, Tick, Wake, WakeKind
from gpsched.adaptive.hints.outputs import ChoiceChanged
from tests.unit.hints.obedient import Quality, run, with_ticks
from tests.unit.hints.streams import Stream, arrivals, asyncio_server, plain_loop


def change(before: Callable[[], Stream], after: Callable[[], Stream], settle: int = 50) -> tuple[HintLearner, Quality]:
    """Run one behaviour, then the other; measure the other after ``settle`` of its bursts."""
    learner = HintLearner()
    assert run(learner, before()).in_time_share >= 0.99
    return learner, run(learner, after(), warm_up=settle)


def loop(prepare: float, work: float = 300.0, start: float = 1e6, tid: int = 10, descriptor: int = 5) -> Stream:
    rng = random.Random(int(prepare + work))
    return plain_loop(
        arrivals("poisson", 100, 300, rng, start),
        rng,
        prepare=lambda _: prepare,
        work=lambda _: work,
        tid=tid,
        descriptor=descriptor,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((1000.0, 300.0), (3000.0, 300.0), id="lead grows"),
        pytest.param((3000.0, 300.0), (800.0, 300.0), id="lead shrinks"),
        pytest.param((1000.0, 300.0), (1900.0, 600.0), id="batch doubles"),
        pytest.param((1000.0, 300.0), (1080.0, 300.0), id="lead grows a little"),
        pytest.param((1000.0, 300.0), (1600.0, 300.0), id="lead grows by more"),
    ],
)
def test_a_changed_lead_is_learned_within_fifty_bursts(before: tuple[float, float], after: tuple[float, float]) -> None:
    _, quality = change(lambda: loop(*before), lambda: loop(*after, start=6e6))
    assert quality.in_time_share >= 0.99
    assert quality.false_share < 0.01
    assert quality.waste_share < 0.01


@pytest.mark.parametrize("grows_us", [120.0, 250.0])
def test_a_service_that_takes_longer_after_a_pause_is_reserved_for_all_the_same(grows_us: float) -> None:
    """Its caches are cold. Five such bursts had everything learned anew, some 30 bursts without a hold."""
    learner = HintLearner()
    run(learner, loop(350.0))
    stream = loop(350.0 + grows_us, start=20e6)
    for observation in with_ticks(stream.sorted(), 4_000.0):
        for output in learner.observe(observation):
            assert not isinstance(output, ChoiceChanged) or output.choice.triggers
    assert learner.report().drifts == 0


def test_leads_of_all_wakes_that_grow_a_little_leave_them_usable() -> None:
    """They were forgotten but for twelve, too few to be believed, and the copy was chosen, tens of µs ahead."""
    learner = HintLearner()
    run(learner, loop(330.0))
    kinds = set()
    for observation in with_ticks(loop(400.0, start=6e6).sorted(), 4_000.0):
        for output in learner.observe(observation):
            if isinstance(output, ChoiceChanged):
                kinds |= {trigger.matcher.kind for trigger in output.choice.triggers} or {None}
    assert kinds.isdisjoint({WakeKind.COPY_H2D, None})


@pytest.mark.parametrize("seed", [*range(8), 26, 39])
def test_a_clock_that_stops_and_starts_again_is_trusted_as_before(seed: int) -> None:
    """Three reservations in vain when requests stop, and two late when they came back, had everything learned anew.

    Late ones came from a first burst that was held up, by which the rhythm's phase was set.
    """
    rng, learner, start = random.Random(seed), HintLearner(), 1e6
    for _ in range(2):
        phase = rng.uniform(0.0, 10_000.0)
        stream = plain_loop(
            [start + phase + i * 10_000.0 for i in range(200)], rng, prepare=lambda _: 0.0, work=lambda _: 2_400.0
        )
        run(learner, stream)
        assert WakeKind.CLOCK in {trigger.matcher.kind for trigger in learner.chosen().triggers}
        start = stream.bursts[-1].launch_us + 20e6
        run(learner, Stream([Tick(at) for at in range(int(start - 20e6), int(start), 4_000)]))
    assert learner.report().drifts == 0


@pytest.mark.parametrize("seed", range(6))
def test_first_requests_that_are_held_up_move_no_rhythm_for_long(seed: int) -> None:
    """Caches are cold after a pause. Such bursts set the phase, and those that followed came before their time."""
    rng, learner, start = random.Random(seed), HintLearner(), 1e6
    for held_up_us in (0.0, 400.0):
        start += rng.uniform(0.0, 10_000.0)
        quality = run(
            learner,
            plain_loop(
                [start + i * 10_000.0 for i in range(200)],
                rng,
                prepare=lambda i, held_up_us=held_up_us: held_up_us * math.exp(-i / 3.0),
                work=lambda _: 2_400.0,
            ),
            warm_up=6,
        )
        start += 22e6
        run(learner, Stream([Tick(at) for at in range(int(start - 20e6), int(start), 4_000)]))
    assert learner.report().drifts == 0
    assert quality.reserved >= 0.97 * quality.bursts


def test_leads_that_shrink_are_followed_without_forgetting_what_announces_bursts() -> None:
    """Sixteen bursts of the new ones were awaited, and the level was lost meanwhile."""
    learner = HintLearner()
    run(learner, loop(400.0))
    gain, _ = learner.expected(LEVELS["hold"])
    stream = loop(280.0, start=6e6)
    launches, bursts, without = {truth.launch_us for truth in stream.bursts}, 0, []
    for observation in with_ticks(stream.sorted(), 4_000.0):
        learner.observe(observation)
        if observation.time_us in launches:
            bursts += 1
            without += [bursts] if not learner.chosen().triggers else []
            assert learner.expected(LEVELS["hold"])[0] > 0.5 * gain
    assert learner.report().drifts == 1
    assert len(without) <= 5


def test_requests_that_were_queued_are_no_sign_of_drift() -> None:
    """An event loop that reads two requests at once serves the second right behind the first: nothing woke it again."""
    learner = HintLearner()
    run(learner, loop(1000.0))
    stream = loop(1000.0, start=6e6)
    for truth, following in pairwise(stream.bursts):
        again = truth.end_us + 600.0
        if following.launch_us - following.lead_us > again + 400.0:
            stream.observations += [
                Launch(again, 10, stream=1),
                SyncEnter(again + 20.0, 10),
                SyncReturn(again + 300.0, 10, SyncScope.STREAM, 1),
            ]
    run(learner, stream)
    assert learner.report().drifts == 0


def test_a_lead_that_shrinks_falls_back_to_the_first_launch_at_once() -> None:
    learner = HintLearner()
    run(learner, loop(3000.0))
    states, bursts = [], 0
    stream = loop(800.0, start=6e6)
    launches = {truth.launch_us for truth in stream.bursts}
    for observation in with_ticks(stream.sorted(), 4_000.0):
        bursts += observation.time_us in launches
        for output in learner.observe(observation):
            if isinstance(output, ChoiceChanged) and output.choice.state not in states:
                states.append(output.choice.state)
                if output.choice.state == "drift":
                    assert bursts <= 16
                    assert output.choice.triggers == ()
                    assert "no longer announces" in output.choice.why
    assert states[:2] == ["drift", "sure"]
    assert learner.report().drifts >= 1


def test_a_new_code_path_is_learned() -> None:
    """The socket loop gives way to an event loop of another thread with other descriptors."""
    rng = random.Random(8)
    _, quality = change(lambda: loop(1000.0), lambda: asyncio_server(arrivals("poisson", 100, 300, rng, 6e6), rng))
    assert quality.in_time_share >= 0.99
    assert quality.false_share < 0.01


def test_a_trigger_that_goes_wrong_stops_reserving() -> None:
    """Requests are answered from a cache: reads as before, and hardly any burst."""
    learner = HintLearner()
    run(learner, loop(1000.0))
    rng = random.Random(9)
    stream = loop(1000.0, start=6e6)
    times = [rng.uniform(6e6, stream.bursts[-1].end_us) for _ in range(900)]
    stream.extend(Stream([Wake(time, 10, WakeKind.SOCKET_READ, 5, 15) for time in times]))
    quality = run(learner, stream, warm_up=20)
    assert quality.false <= 20
    assert learner.report().drifts >= 1


def test_a_program_that_nothing_announces_is_looked_at_rarely_and_still_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = []
    renew = Chooser._renew
    monkeypatch.setattr(Chooser, "_renew", lambda chooser: looks.append(1) or renew(chooser))
    rng, learner = random.Random(5), HintLearner()
    unannounced = plain_loop(arrivals("poisson", 100, 1_000, rng), rng)
    unannounced.observations = [each for each in unannounced.observations if not isinstance(each, Wake | Copy)]
    run(learner, unannounced)
    assert not learner.chosen().triggers
    assert len(looks) < 1_000 / 20
    start = unannounced.bursts[-1].end_us + 10_000
    quality = run(learner, loop(1000.0, start=start), warm_up=150)
    assert quality.in_time_share >= 0.99
