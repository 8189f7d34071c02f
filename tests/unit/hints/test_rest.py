"""A learner that is told nothing for a while takes up where it was, as if it had only blinked."""

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsched.adaptive.hints.adapter import EventAdapter
from gpsched.adaptive.hints.aside import SetAside
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Observation, Rest
from gpsched.adaptive.hints.outputs import BurstBegan, BurstEnded, Output, Reserve
from tests.unit.hints.obedient import with_ticks
from tests.unit.hints.streams import Stream, arrivals, plain_loop


LEARNED = 200  # bursts
COUNT = 600
RECORDS_US = 500_000.0  # between looks at the records
REMAINDER_US = 30_000.0  # of events that are read after they are wanted


def service(shape: str, lead_us: float, seed: int = 1) -> Stream:
    rng = random.Random(seed)
    return plain_loop(arrivals(shape, 100, COUNT, rng), rng, prepare=lambda _: lead_us)


@cache
def false_without_rest(seed: int) -> int:
    learner = HintLearner()
    for observation in with_ticks(service("poisson", 1_000.0, seed).sorted(), 5_000.0):
        learner.observe(observation)
    return learner.report().outcome.false


class Blinking:
    """A learner that is told of nothing between two times, but of when bursts began, as records tell."""

    def __init__(self, stream: Stream) -> None:
        self.learner = HintLearner()
        self.stream = stream
        self.after: list[Output] = []

    def run(self, begin_us: float, end_us: float) -> None:
        launches = iter([burst.launch_us for burst in self.stream.bursts])
        launch = next(launches)
        state = "before"
        for observation in with_ticks(self.stream.sorted(), 5_000.0):
            now = observation.time_us
            if state == "before" and now >= begin_us:
                state = "away"
                self.learner.observe(Rest(now))
            if state == "away" and now >= end_us:
                state = "back"
                self.learner.observe(Rest(now, over=True))
            while launch <= now - now % RECORDS_US:
                if self.learner.missed(launch):
                    self.learner.keep_time(launch)
                launch = next(launches, float("inf"))
            if state != "away" or now < begin_us + REMAINDER_US:
                self._tell(observation, state == "back")

    def _tell(self, observation: Observation, back: bool) -> None:
        outputs = self.learner.observe(observation)
        if back:
            self.after += outputs


@settings(max_examples=25, deadline=None)
@given(st.floats(0.0, 20_000.0), st.floats(0.0, 1.0), st.integers(0, 3))
def test_every_burst_it_tells_of_is_a_whole_one(begin: float, end: float, seed: int) -> None:
    stream = service("poisson", 1_000.0, seed)
    blinking = Blinking(stream)
    start = stream.bursts[LEARNED].launch_us
    length = stream.bursts[-100].launch_us - start
    blinking.run(start + begin, start + length * end + begin)
    truths = {burst.launch_us: burst.end_us for burst in stream.bursts}
    ended = [output.burst for output in blinking.after if isinstance(output, BurstEnded)]
    assert len(ended) >= 90
    assert all(truths[burst.start_us] == pytest.approx(burst.end_us) for burst in ended)
    report = blinking.learner.report()
    assert report.state == "sure"
    assert report.outcome.false <= false_without_rest(seed) + 2  # a lead is the longest yet now and then
    assert report.lost_events == 0


def test_what_was_learned_serves_the_first_burst_again() -> None:
    stream = service("poisson", 1_000.0)
    blinking = Blinking(stream)
    blinking.run(stream.bursts[LEARNED].launch_us, stream.bursts[LEARNED + 200].launch_us)
    began = [output for output in blinking.after if isinstance(output, BurstBegan)]
    assert all(output.reserved_us is not None for output in began)


def test_time_in_which_nothing_was_told_dilutes_no_waste() -> None:
    shares = []
    for away in (0, 300):
        stream = service("constant", 1_000.0)
        blinking = Blinking(stream)
        blinking.run(stream.bursts[LEARNED].launch_us, stream.bursts[LEARNED + away].launch_us)
        shares.append(blinking.learner.report().outcome.waste_share)
    assert shares[1] == pytest.approx(shares[0], rel=0.15)


def test_the_rhythm_goes_on() -> None:
    """Its lead is too short for anything but the clock; it is not learned anew."""
    rng = random.Random(3)
    times = [1e6 + number * 10_000 + rng.uniform(0, 60) for number in range(COUNT)]
    stream = plain_loop(times, rng, prepare=lambda _: 0.0)
    blinking = Blinking(stream)
    blinking.run(stream.bursts[LEARNED].launch_us, stream.bursts[LEARNED + 333].launch_us)
    reserves = [output for output in blinking.after if isinstance(output, Reserve)]
    assert str(reserves[0].trigger) == "clock"
    assert reserves[0].start_us < stream.bursts[LEARNED + 336].launch_us
    began = [output for output in blinking.after if isinstance(output, BurstBegan)]
    assert sum(output.reserved_us is not None for output in began) >= 0.97 * len(began)
    clock = next(each for each in blinking.learner.report().candidates if each.trigger == "clock")
    assert clock.precision == 1.0  # nothing was expected while nothing was told
    rhythm = blinking.learner.rhythm
    assert rhythm is not None
    assert rhythm.every_us == pytest.approx(10_000.0, rel=0.01)
    assert rhythm.start_us + rhythm.lead_us == pytest.approx(stream.bursts[-1].launch_us + rhythm.every_us, abs=500.0)
    assert rhythm.shifted(20.0).start_us + rhythm.shifted(20.0).lead_us == rhythm.start_us + rhythm.lead_us


def test_one_that_rested_when_its_process_was_left_alone_learns_again_when_it_is_managed() -> None:
    stream = service("poisson", 1_000.0)
    learner, aside = HintLearner(pid=1), SetAside()
    before, after = stream.sorted()[: 8 * LEARNED], stream.sorted()[8 * LEARNED :]
    for observation in before:
        learner.observe(observation)
    learner.observe(Rest(before[-1].time_us))
    aside.put(1, 7, (learner, EventAdapter()))
    again = aside.take(1, 7)
    assert again is not None
    bursts = learner.bursts
    for observation in after:
        again[0].observe(observation)
    assert learner.bursts > bursts + 100
