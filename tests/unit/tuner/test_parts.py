"""Objective, space, prior, memory and forecast as properties."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsched.adaptive.knobs import KNOBS
from gpsched.tuner import objective, prior
from gpsched.tuner.crowds import Crowds
from gpsched.tuner.forecast import Forecast
from gpsched.tuner.memory import MOST, Memory
from gpsched.tuner.model import BeWindow, Point
from gpsched.tuner.prior import Demand
from gpsched.tuner.space import BE_SLICE, LEVEL, QUIET, SHARE, SHIFT, TURN, Space, relevant
from gpsched.tuner.surrogate import Noise, Surrogate
from gpsched.tuner.watch import Watch
from tests.unit.tuner.surfaces import DEFAULTS, LEVELS, window, work


LATENCIES = st.floats(1.0, 1e6)


def job(progress: float | None, tenant: str = "b", weight: float = 1.0) -> BeWindow:
    return BeWindow(pid=1, name="j", program="j", tenant=tenant, rate_hz=1.0, progress=progress, weight=weight)


# ---- objective


@given(LATENCIES, LATENCIES)
def test_the_verdict_is_the_sign_of_the_margin(latency: float, limit: float) -> None:
    (lc,) = window(DEFAULTS, latency, 0.5, limit).lc
    margin = objective.lc_margin(lc)
    assert margin is not None
    assert (margin >= 0.0) == (lc.verdict == "kept")
    if not math.isclose(latency, limit):
        assert (lc.verdict == "kept") == (latency < limit)


@given(st.lists(LATENCIES, min_size=1, max_size=5))
def test_the_least_margin_counts(latencies: list[float]) -> None:
    services = [window(DEFAULTS, latency, 0.5, 500.0).lc[0] for latency in latencies]
    margins = [objective.lc_margin(each) for each in services]
    assert objective.margin(services, [], {}) == min(each for each in margins if each is not None)


def test_too_few_bursts_say_nothing_and_none_ask_for_nothing() -> None:
    few, idle = window(DEFAULTS, 400, 0.5, 500, bursts=5).lc[0], window(DEFAULTS, 0, 0.5, 500, bursts=0).lc[0]
    enough = window(DEFAULTS, 400, 0.5, 500).lc[0]
    assert objective.margin([enough, few], [], {}) is None
    assert objective.margin([enough, idle], [], {}) == objective.lc_margin(enough)
    assert objective.margin([idle], [], {}) is None
    assert objective.verdict([enough, idle]) == "kept"


def test_without_a_limit_the_mean_may_be_five_percent_over_alone() -> None:
    found = objective.objective(None, 200.0)
    assert (found.kind, found.statistic, found.limit_us) == ("alone", "mean", 210.0)
    assert objective.objective(None, None).limit_us is None
    assert objective.objective(5000.0, 200.0).limit_us == 5000.0


def test_floors_are_constraints() -> None:
    even = [job(0.5), job(0.5)]
    starved = [job(0.9), job(0.01)]
    assert objective.floor_margin(even, {"": 0.1}) > 0.0
    assert objective.floor_margin(starved, {"": 0.1}) < 0.0
    assert objective.floor_margin([job(0.25, "paid"), job(0.7)], {"": 0.1, "paid": 0.3}) < 0.0
    assert objective.floor_margin(even, {}) > 0.0


@given(st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.1, 10.0)), min_size=1, max_size=5))
def test_progress_is_a_weighted_mean(jobs: list[tuple[float, float]]) -> None:
    found = objective.progress([job(progress, weight=weight) for progress, weight in jobs] + [job(None)])
    assert found is not None
    assert min(p for p, _ in jobs) - 1e-9 <= found <= max(p for p, _ in jobs) + 1e-9


@given(st.integers(50, 3000), st.floats(1.0, 8.0))
def test_a_tail_is_as_uncertain_as_its_samples_are_few(bursts: int, dispersion: float) -> None:
    lc = window(DEFAULTS, 500.0, 0.5, 650.0, bursts=bursts).lc[0]
    wide, narrow = (msgspec.structs.replace(lc, p90_us=each) for each in (300.0, 490.0))
    error = objective.sampling_error(wide, dispersion)
    assert error > objective.sampling_error(narrow, dispersion) > 0.0
    assert error > objective.sampling_error(msgspec.structs.replace(wide, bursts=2 * bursts), dispersion)
    assert objective.sampling_error(wide, 4 * dispersion) == pytest.approx(2 * error)
    assert objective.sampling_error(lc, dispersion) == 0.0  # without p90 nothing is known of the tail


def test_the_sampling_error_is_what_exponential_tails_show() -> None:
    random = np.random.default_rng(0)
    samples = np.quantile(200.0 + random.exponential(100.0, size=(4000, 400)), (0.9, 0.99), axis=1)
    lc = window(DEFAULTS, 500.0, 0.5, 650.0, bursts=400).lc[0]
    p90, p99 = samples.mean(axis=1)
    lc = msgspec.structs.replace(lc, p90_us=float(p90), p99_us=float(p99))
    assert objective.sampling_error(lc, 1.0) == pytest.approx(np.log(samples[1]).std(), rel=0.15)


# ---- watch


POINT = Point(settings=DEFAULTS, margin=0.5, progress=0.9, load=100.0, windows=10, time_s=0.0)


@pytest.mark.parametrize("margins", [[0.2, 0.2, 0.2], [-0.4, -0.4]])
def test_what_differs_again_and_again_is_drift_and_no_noise(margins: list[float]) -> None:
    watch = Watch(Noise(0.05, 0.01))
    for margin in (0.45, 0.55) * 8:
        watch.repeated(POINT, margin, 0.9)
        assert watch.drifted() == 0.0
    before = watch.noise
    found = []
    for margin in margins:
        watch.repeated(POINT, margin, 0.9)
        found.append(watch.drifted())
    assert found[:-1] == [0.0] * (len(margins) - 1)
    assert found[-1] > 2.5
    assert watch.noise == before


@given(st.floats(-1.5, 1.5))
def test_one_window_alone_is_never_drift(margin: float) -> None:
    watch = Watch(Noise(0.05, 0.01))
    for each in (0.5, margin, 0.5):
        watch.repeated(POINT, each, 0.9)
        assert watch.drifted() == 0.0


# ---- space


SPACES = [work(), work(2), work(2, busy=True, need_share=True), work(levels=("timeslice",)), work(closed={BE_SLICE: 5})]


@pytest.mark.parametrize("present", SPACES)
def test_settings_are_their_own_neighbours(present: object) -> None:
    space = Space(present)  # type: ignore[arg-type]
    for each in space.sample(80, np.random.default_rng(0)):
        assert space.decode(space.encode(each)) == each
        assert space.holds(each)
        for name, knob in KNOBS.items():
            assert knob.checked(each[name]) == each[name]
    assert space.complete(DEFAULTS | {LEVEL: "hold"})[BE_SLICE] in (1, 5)


def test_only_what_matters_is_searched() -> None:
    assert TURN not in relevant(work())
    assert TURN in relevant(work(2))
    assert LEVEL not in relevant(work(levels=("timeslice",)))
    assert SHARE not in relevant(work())
    assert relevant(work(jobs=0)) == ()
    assert BE_SLICE not in relevant(work(closed={BE_SLICE: 3}))


def test_knobs_that_do_nothing_at_a_level_make_no_other_setting_of_it() -> None:
    space = Space(work(2))
    moved = {SHIFT: 400, QUIET: 2000}
    same = {
        level: [name for name in moved if space.complete(DEFAULTS | moved | {LEVEL: level})[name] == DEFAULTS[name]]
        for level in LEVELS
    }
    assert same == {"timeslice": [SHIFT, QUIET], "reserve": [], "hold": [QUIET]}


def test_what_is_closed_stays() -> None:
    space = Space(work(closed={BE_SLICE: 7}))
    assert all(each[BE_SLICE] == 7 for each in space.sample(20, np.random.default_rng(0)))


@given(st.floats(0, 1), st.floats(0, 1))
def test_longer_slices_are_gentler(one: float, other: float) -> None:
    space = Space(work(levels=("timeslice",)))
    low, high = sorted((one, other))
    at = [space.gentleness(space.decode([min(place, 0.8)])) for place in (low, high)]
    assert at[1] <= at[0] + 1e-9


# ---- prior


DEMANDS = st.builds(
    Demand,
    rate_hz=st.floats(0.1, 2000),
    alone_us=st.floats(50, 1e5),
    busy_share=st.floats(0, 0.9),
    limit_us=st.floats(50, 1e6),
    jobs=st.integers(1, 8),
)


@given(DEMANDS, st.sampled_from(LEVELS), st.integers(0, 80))
def test_costs_predict_something_for_everything(demand: Demand, level: str, seed: int) -> None:
    (each, *_) = Space(work(2, busy=True)).sample(1, np.random.default_rng(seed))
    each = each | {LEVEL: level}
    assert math.isfinite(prior.margin(each, demand))
    assert prior.progress(each, demand) > 0.0


@given(DEMANDS)
def test_stronger_levels_wait_less_and_later_reservations_wait_more(demand: Demand) -> None:
    at = lambda **changes: prior.margin(DEFAULTS | changes, demand)  # noqa: E731
    levels = [at(**{LEVEL: level}) for level in LEVELS]
    assert levels == sorted(levels)
    assert at(**{LEVEL: "hold", SHIFT: 300}) <= at(**{LEVEL: "hold"})
    assert at(**{LEVEL: "timeslice", BE_SLICE: 500}) <= at(**{LEVEL: "timeslice"})
    assert prior.progress(DEFAULTS | {SHARE: 0.5}, demand) <= prior.progress(DEFAULTS, demand)


def test_who_waits_in_a_crowd_waits_for_what_delays_the_others() -> None:
    alone = Demand(400.0, 2000.0, 0.25, 4000.0, 1)
    slices = DEFAULTS | {LEVEL: "timeslice", BE_SLICE: 500}
    added_us = prior.added_us(slices, 1)
    crowded = math.exp(-prior.margin(slices, replace(alone, crowd=3.0))) * 4000.0
    assert crowded == pytest.approx(2000.0 + 3.0 * added_us)


def test_a_hold_keeps_nobody_off_after_its_burst() -> None:
    alone = Demand(400.0, 600.0, 0.25, 4000.0, 1)
    progress = {quiet: prior.progress(DEFAULTS | {LEVEL: "hold", QUIET: quiet}, alone) for quiet in (0, 5000)}
    assert progress[0] == progress[5000]


def test_costs_that_are_wrong_by_far_make_no_wonders_of_their_neighbours() -> None:
    """The job has 0.85 where costs say 0.45: what lies between that and the base cannot have more than all."""
    space, memory = Space(work(levels=("timeslice", "reserve"))), Memory()
    demand = Demand(120.0, 700.0, 0.06, 4000.0, 1)
    reserve = DEFAULTS | {LEVEL: "reserve"}
    for quiet in (0, 5000, 4000, 4500, 3000):
        for _ in range(3):
            memory.add(reserve | {QUIET: quiet}, 0.5, 0.9 - quiet / 1e5, 120.0, crowd=0.0, missed=False, time_s=0.0)
    surrogate = Surrogate(space)
    surrogate.fit(memory, demand, Noise(), Crowds())
    anything = space.sample(200, np.random.default_rng(0))
    assert surrogate.predict(anything, 120.0).progress.max() < 1.1
    known = surrogate.predict([reserve | {QUIET: 5000}], 120.0)
    assert float(known.progress[0]) == pytest.approx(0.85, abs=0.03)


def test_time_kept_after_a_burst_costs_less_where_bursts_come_in_bunches() -> None:
    """Four at once share what is kept behind the last; alone, each pays the shorter of that and the gap."""
    quiet, alone = DEFAULTS | {LEVEL: "reserve", QUIET: 5000}, Demand(120.0, 600.0, 0.06, 4000.0, 1)
    single = prior.progress(quiet, alone)
    bunches = prior.progress(quiet, replace(alone, bunch=4.0))
    none = prior.progress(DEFAULTS | {LEVEL: "reserve"}, alone)
    assert single < bunches < none
    assert none - bunches < 0.4 * (none - single)
    assert none - single < 120.0 * 5000 / 1e6  # random gaps are often shorter than what would be kept


# ---- memory


@given(st.lists(st.tuples(st.integers(1, 10_000), st.floats(-1, 1), st.floats(0.1, 1)), max_size=100))
@settings(max_examples=30)
def test_memory_is_bounded_and_keeps_the_newest(windows: list[tuple[int, float, float]]) -> None:
    memory = Memory()
    for number, (slice_us, margin, progress) in enumerate(windows):
        each = DEFAULTS | {BE_SLICE: slice_us}
        entry = memory.add(each, margin, progress, 100.0, crowd=0.0, missed=margin < 0, time_s=number)
        assert entry in memory.entries
        assert len(memory.entries) <= MOST
    assert sum(point.windows for point in memory.points()) <= len(windows)


def test_points_are_means_that_forget_slowly() -> None:
    memory = Memory()
    for value in [0.4] * 30:
        memory.add(DEFAULTS, value, 0.5, 100.0, crowd=0.0, missed=False, time_s=0.0)
    entry = memory.find(DEFAULTS, 105.0)
    assert entry is not None
    assert entry.point.margin == pytest.approx(0.4)
    assert memory.find(DEFAULTS, 200.0) is None
    for _ in range(30):
        memory.add(DEFAULTS, 0.1, 0.5, 100.0, crowd=0.0, missed=False, time_s=0.0)
    assert entry.point.margin < 0.15
    memory.doubt(0.2)
    memory.add(DEFAULTS, 0.9, 0.5, 100.0, crowd=0.0, missed=False, time_s=0.0)
    assert entry.point.margin > 0.2


def test_what_is_doubted_weighs_less() -> None:
    memory = Memory([Point(settings=DEFAULTS, margin=0.1, progress=0.5, load=1.0, windows=5, time_s=0.0)])
    before = memory.noise_factor(memory.entries[0])
    memory.doubt(0.2)
    assert memory.noise_factor(memory.entries[0]) == pytest.approx(5 * before)


# ---- forecast


def test_a_rhythm_is_foretold() -> None:
    """Five quiet minutes, one busy: told half a minute before, and not in the middle of the quiet phase."""
    random = np.random.default_rng(0)
    load = lambda number: (900.0 if number % 180 >= 150 else 100.0) * random.normal(1.0, 0.05)  # noqa: E731
    forecast = Forecast(horizon=30)
    told: list[tuple[int, float]] = []
    for number in range(900):
        forecast.add(load(number))
        if number > 720 and (found := forecast.predict()) is not None:
            told.append((number % 180, found))
    assert forecast.period is not None
    assert abs(forecast.period - 180) <= 2
    before = [found for phase, found in told if 125 <= phase < 149]
    quiet = [found for phase, found in told if 40 <= phase < 110]
    assert np.mean([found > 500.0 for found in before]) > 0.8
    assert np.mean([found < 300.0 for found in quiet]) > 0.8


def test_steady_load_is_foretold_as_it_is() -> None:
    random = np.random.default_rng(0)
    forecast = Forecast(horizon=10)
    assert forecast.predict() is None
    for _ in range(200):
        forecast.add(float(random.poisson(200)) / 2)
    found = forecast.predict()
    assert found is not None
    assert 100.0 < found < 140.0


@given(st.lists(st.sampled_from([0.0, 1.0, 50.0, 1e6]), min_size=130, max_size=160))
@settings(max_examples=8, deadline=None)
def test_no_load_breaks_it(loads: list[float]) -> None:
    forecast = Forecast(horizon=10)
    for load in loads:
        forecast.add(load)
        found = forecast.predict()
        assert found is None or (math.isfinite(found) and found >= 0.0)


def test_structures_are_json() -> None:
    seen = window(DEFAULTS, 400.0, 0.5, 500.0)
    assert msgspec.json.decode(msgspec.json.encode(seen), type=type(seen)) == seen
