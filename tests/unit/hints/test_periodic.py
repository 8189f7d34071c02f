"""The rhythm of constant arrivals: found, kept over pauses and changes, and not seen where there is none."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpsched.adaptive.hints.periodic import PeriodicPredictor


PERIOD_US = 10_000.0
BURSTS = 60
_NEAR_US = 0.01 * PERIOD_US  # without jitter; a phase that is less off is followed, not found anew


class Requests:
    """Bursts at a constant rate with jitter; ``predicted`` counts those that were expected nearly when they came."""

    def __init__(self, seed: int, jitter_us: float) -> None:
        self.predictor = PeriodicPredictor()
        self.random = random.Random(seed)
        self.jitter_us = jitter_us
        self.now_us = 0.0
        self.false = 0

    def pause(self, duration_us: float) -> None:
        """No requests; predictions that come due meanwhile are false."""
        self._until(self.now_us + duration_us)

    def stream(self, bursts: int, period_us: float = PERIOD_US) -> int:
        """Return how many of the bursts were predicted within the jitter."""
        predicted = 0
        start = self.now_us
        for number in range(bursts):
            time_us = start + number * period_us + self.random.uniform(-self.jitter_us, self.jitter_us)
            self._until(time_us)
            expected = self.predictor.next_us
            predicted += expected is not None and abs(expected - time_us) <= 3 * self.jitter_us + _NEAR_US
            self.predictor.burst(time_us)
        self.now_us += period_us
        return predicted

    def _until(self, time_us: float) -> None:
        while self.predictor.next_us is not None and self.predictor.next_us + PERIOD_US / 2 < time_us:
            self.false += 1
            self.predictor.miss()
        self.now_us = time_us


seeds = st.integers(0, 1_000)
jitters = st.floats(0.0, 0.01 * PERIOD_US)


@given(seeds, jitters)
def test_a_rhythm_is_found_after_a_dozen_bursts(seed: int, jitter_us: float) -> None:
    assert Requests(seed, jitter_us).stream(BURSTS) >= BURSTS - PeriodicPredictor.MINIMUM - 1


@given(seeds, jitters, st.lists(st.floats(0.5 * PERIOD_US, 20 * PERIOD_US), min_size=1, max_size=4))
@example(0, 0.0, [1.005 * PERIOD_US])
@example(0, 0.0, [1.0133 * PERIOD_US])
def test_it_is_found_again_at_once_when_requests_pause_and_come_back(
    seed: int, jitter_us: float, pauses: list[float]
) -> None:
    requests = Requests(seed, jitter_us)
    requests.stream(BURSTS)
    for pause in pauses:
        requests.pause(pause)
        assert requests.stream(BURSTS) >= BURSTS - 8
    assert requests.false <= 4 * len(pauses)


@given(seeds, jitters, st.floats(0.85, 1.15))
def test_another_rate_is_followed(seed: int, jitter_us: float, change: float) -> None:
    requests = Requests(seed, jitter_us)
    requests.stream(BURSTS)
    requests.stream(BURSTS, PERIOD_US * change)
    assert requests.stream(BURSTS, PERIOD_US * change) >= 0.9 * BURSTS


@given(seeds)
def test_requests_that_are_held_up_move_no_rhythm(seed: int) -> None:
    """Each of them made the predictions of the next ten late by a tenth of its delay and more."""
    predictor, source = PeriodicPredictor(), random.Random(seed)
    errors = []
    for number in range(400):
        late_us = source.uniform(200.0, 600.0) if number > 50 and source.random() < 0.04 else 0.0
        time_us = number * PERIOD_US + source.gauss(0.0, 15.0) + late_us
        if number > 50 and not late_us:
            assert predictor.next_us is not None
            errors.append(predictor.next_us - time_us)
        predictor.burst(time_us)
    errors.sort()
    assert errors[int(0.95 * len(errors))] < 45.0


@pytest.mark.parametrize("seed", range(5))
def test_random_arrivals_have_none(seed: int) -> None:
    predictor, source = PeriodicPredictor(), random.Random(seed)
    now = expecting = 0.0
    for _ in range(2_000):
        now += source.expovariate(1 / PERIOD_US)
        expecting += predictor.next_us is not None
        predictor.burst(now)
    assert expecting < 0.02 * 2_000
