"""Requests that crowd: a figure of the arrivals alone, and what the tuner makes of it."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.hints.bursts import Burst
from gpsched.adaptive.knobs import Settings
from gpsched.adaptive.measure import BurstLog, Crowding
from gpsched.tuner.crowds import Crowds
from gpsched.tuner.gpu import GpuTuner
from gpsched.tuner.memory import Memory
from gpsched.tuner.model import Point
from gpsched.tuner.prior import Demand
from gpsched.tuner.search import Search
from gpsched.tuner.space import LEVEL, Space
from gpsched.tuner.step import Observed, Step
from gpsched.tuner.surrogate import Noise
from tests.unit.tuner.surfaces import ALONE_US, DEFAULTS, Run, Surface, window, work


TIMES = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=60).map(sorted)


def learned(least_us: float) -> Crowding:
    crowding = Crowding()
    for number in range(50):
        crowding.served(number * 1e5, number * 1e5 + least_us)
    return crowding


# ---- the figure


def test_requests_that_meet_no_other_are_no_crowd() -> None:
    assert learned(700.0).of([number * 1000.0 for number in range(200)]) == 1.0
    assert learned(700.0).of([]) == 1.0
    assert Crowding().of([0.0, 1.0]) == 1.0  # nothing is known of what a request takes


def test_the_last_of_a_bunch_waits_for_all_others() -> None:
    bunches = [second * 1e6 + place for second in range(20) for place in range(4)]
    assert learned(700.0).of(bunches) == pytest.approx(4.0, abs=0.01)


@given(TIMES, st.floats(0.0, 1e7))
def test_it_depends_on_distances_alone_and_is_never_below_one(arrivals: list[float], later: float) -> None:
    crowding = learned(700.0)
    assert crowding.of(arrivals) >= 1.0
    assert crowding.of([each + later for each in arrivals]) == pytest.approx(crowding.of(arrivals), abs=1e-3)
    assert crowding.of(arrivals) <= len(arrivals) + 1e-3


def test_what_contends_or_waits_does_not_change_it() -> None:
    """The same requests, each of which takes twice as long for half of the time, and those that wait even longer."""
    arrivals = [number * 1e4 + place * 500.0 for number in range(300) for place in range(2)]
    quick, contended = Crowding(), Crowding()
    for crowding, factor in ((quick, 1.0), (contended, 2.0)):
        free = 0.0
        for number, arrival in enumerate(arrivals):
            free = max(free, arrival) + 700.0 * (factor if number % 4 < 2 else 1.0)
            crowding.served(arrival, free)
    assert contended.of(arrivals) == pytest.approx(quick.of(arrivals), rel=0.05)


def test_the_log_of_bursts_tells_it() -> None:
    log = BurstLog()
    for number in range(80):
        start = number * 10_000.0
        for place in range(2):  # two at once: the second is served behind the first
            log.began(7, start, None, 0.0)
            log.ended(7, burst(start, start + 800.0 * (place + 1)))
    assert log.fields(7, 0.0, None)["crowd"] == pytest.approx(2.0, abs=0.05)
    assert log.fields(7, 1e9, None)["crowd"] == 1.0  # no burst at all
    assert log.fields(8, 0.0, None)["crowd"] == 1.0


def burst(start_us: float, end_us: float) -> Burst:
    return Burst(start_us=start_us, end_us=end_us, launches=1, closed_by="sync")


# ---- what margins follow


def known(margin: float, crowd: float = 0.3, windows: int = 20) -> Point:
    return Point(settings=DEFAULTS, margin=margin, progress=0.9, load=100, windows=windows, time_s=0, crowd=crowd)


def taught(slopes: dict[str, float], windows: int = 40, noise: float = 0.01) -> Crowds:
    random, crowds = np.random.default_rng(0), Crowds()
    for number in range(windows):
        level = list(slopes)[number % len(slopes)]
        crowd = float(random.exponential(0.3))
        crowds.follow(crowd, 100.0)
        crowds.learn(level, known(0.6), 0.6 - slopes[level] * (crowd - 0.3) + random.normal(0, noise), crowd)
    return crowds


def test_each_level_has_a_slope_of_its_own() -> None:
    crowds = taught({"hold": 1.1, "reserve": 0.7})
    assert crowds.slope("hold") == pytest.approx(1.1, abs=0.1)
    assert crowds.slope("reserve") == pytest.approx(0.7, abs=0.1)
    assert 0.7 < crowds.slope("timeslice") < 1.1  # never seen: as the others
    assert crowds.unexplained < 0.1


def test_where_margins_do_not_follow_crowds_nothing_is_made_of_them() -> None:
    crowds = taught({"hold": 0.0}, noise=0.1)
    assert crowds.slope("hold") < 0.1
    assert crowds.unexplained > 0.9
    assert crowds.carried("hold", 0.5, 1.0) == pytest.approx(0.5, abs=0.07)
    assert crowds.spread("hold", 0.1, 0.0) == pytest.approx(0.1, rel=0.15)


def test_a_margin_is_carried_to_the_typical_crowd() -> None:
    crowds = taught({"hold": 1.0})
    seen = 0.6 - (0.9 - 0.3)
    assert crowds.carried("hold", seen, 0.9) == pytest.approx(0.6 - (crowds.typical - 0.3), abs=0.06)


def test_a_long_tail_asks_for_more_than_its_deviation() -> None:
    """Two of a hundred windows are far worse: as many may be missed, no more."""
    crowds = taught({"hold": 1.0}, noise=0.001)
    for _ in range(120):
        crowds.follow(0.0, 100.0)
    for number in range(120):
        crowds.follow(2.0 if number % 25 == 0 else 0.0, 100.0)
    needed = 2.0 * crowds.spread("hold", 0.01, 0.0)
    assert needed > 1.7
    assert needed > 3.0 * np.std([2.0] * 4 + [0.0] * 96)


def test_until_crowds_are_known_windows_differ_by_what_they_must() -> None:
    crowds = taught({"hold": 1.0}, windows=10)
    assert crowds.spread("hold", 0.05, 0.4) == 0.4
    assert taught({"hold": 0.0}, windows=60, noise=0.05).spread("hold", 0.05, 0.4) < 0.1


def test_crowds_of_another_load_do_not_count() -> None:
    crowds = taught({"hold": 1.0})
    crowds.follow(1.5, 300.0, stepped=True)
    assert crowds.typical == 1.5
    crowds.follow(0.1, 100.0, stepped=True)
    assert crowds.typical < 0.6  # those from before


def test_what_was_learned_earlier_says_what_is_typical() -> None:
    crowds = Crowds([known(0.6, crowd=0.5, windows=9), known(0.6, crowd=0.2, windows=1)])
    crowds.follow(1.4, 100.0)
    assert crowds.typical == pytest.approx((10 * 0.47 + 1.4) / 11)


# ---- the tuner


def test_levels_are_compared_in_the_same_crowd() -> None:
    """Holds were seen when few came together, reservations when many did."""
    crowds = taught({"hold": 1.0, "reserve": 1.0})
    points = [at("hold", margin=0.6, crowd=0.1), at("reserve", margin=0.45, crowd=0.6)]
    margins = {}
    for told in (True, False):
        seen = points if told else [msgspec.structs.replace(each, crowd=0.3) for each in points]
        search = Search(Space(work()), Memory(seen))
        search.update(Demand(100.0, ALONE_US, 0.04, 650.0, 1), 100.0, Noise(0.02, 0.01), crowds)
        margins[told] = [search.expect(each.settings).margin or 0.0 for each in points]
    assert margins[True] == pytest.approx([0.4, 0.75], abs=0.1)
    assert margins[False] == pytest.approx([0.6, 0.45], abs=0.1)


def at(level: str, margin: float, crowd: float) -> Point:
    return msgspec.structs.replace(known(margin, crowd), settings=DEFAULTS | {LEVEL: level})


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_it_settles_where_crowds_are_kept(seed: int) -> None:
    """Reservations cost the job 1 % more than holds, which wait as long by themselves, but longer in a crowd."""
    surface = Surface(4.5 * (ALONE_US + 170), noise=(0.02, 0.006))
    surface.slower = {"hold": 155.0}
    surface.crowding, surface.steeper = 0.3, {"timeslice": 0.7, "hold": 0.7}
    run = Run(surface, seed)
    run.windows(110)
    assert sum(step.settings[LEVEL] == "reserve" for step in run.steps[40:]) > 60
    assert sum(run.missed[40:]) <= 3  # of 70; holds alone miss 7, none and 6 of these


def test_a_crowd_that_nothing_could_have_kept_is_not_held_against_the_settings() -> None:
    """The same miss is the settings' fault where requests did not crowd."""
    ended = {}
    for crowd in (1.0, 3.5):
        random, tuner, settings = np.random.default_rng(0), GpuTuner(), DEFAULTS
        for _ in range(40):
            usual = math.exp(random.exponential(0.1))
            settings = judged(tuner, settings, 300.0 * usual, usual).settings
        done = judged(tuner, settings, 1050.0, crowd)
        ended[crowd] = (done.window.verdict, sum(point.misses for point in tuner.points()))
    assert ended == {1.0: ("missed", 1), 3.5: ("missed", 0)}


def judged(tuner: GpuTuner, settings: Settings, latency_us: float, crowd: float) -> Step:
    seen = window(settings, latency_us, 0.9, 650.0, crowd=crowd)
    demand = Demand(100.0, ALONE_US, 0.04, 650.0, 1)
    return tuner.step(Observed(seen, work(levels=("timeslice",)), demand))
