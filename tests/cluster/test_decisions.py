"""Quota, victims and placement: properties that hold for any cluster."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsched.tuner.cluster.model import HOUR_S, Job, JobClass
from gpsched.tuner.cluster.placement import best_fit, fgd_fit, first_fit, fragmentation
from gpsched.tuner.cluster.pool import Pool, Run
from gpsched.tuner.cluster.quota import QuotaSettings, adjust_eta, admits, class_limits, grant, spot_quota
from gpsched.tuner.cluster.reserve import ArrivalRates, leaves, slots_to_keep
from gpsched.tuner.cluster.victims import CostModel, cheapest, gfs, youngest_first


NOW_S = 50_000.0
demands = st.dictionaries(st.sampled_from([1, 2, 4]), st.floats(-50, 500), min_size=1)


def job(cls: JobClass, workers: int, gpus: int, spread: bool = False, name: str = "j") -> Job:
    return Job(name, "t", "m", cls, workers, gpus, 0.0, 100.0, spread)


@given(st.integers(0, 300), demands, st.floats(0.25, 1.25))
def test_quota_is_bounded_and_never_grows_with_the_guarantee(
    capacity: int, demand: dict[int, float], eta: float
) -> None:
    quota = spot_quota(capacity, demand, eta)
    assert all(0 <= one <= capacity for one in quota.values())
    assert [quota[h] for h in sorted(quota)] == sorted(quota.values(), reverse=True)


def test_quota_is_what_demand_leaves() -> None:
    assert spot_quota(100, {1: 30.7, 2: 60.0, 4: 50.0}, 1.0) == {1: 70, 2: 40, 4: 40}
    assert spot_quota(100, {1: 20.0}, 0.5) == {1: 40}


@given(st.floats(0.25, 1.25), st.integers(0, 100), st.integers(0, 100), st.floats(0, 1e5))
def test_eta_moves_by_bounded_steps_in_the_right_direction(eta: float, failed: int, kept: int, wait_s: float) -> None:
    bounds = QuotaSettings()
    new = adjust_eta(eta, failed, kept, wait_s, bounds)
    assert bounds.eta_min <= new <= bounds.eta_max
    assert eta / bounds.step - 1e-9 <= new <= eta * bounds.step + 1e-9
    rate = failed / (failed + kept) if failed + kept else 0.0
    if rate >= bounds.high * bounds.target:
        assert new <= eta
    elif rate > bounds.low * bounds.target or wait_s <= bounds.patience_s:
        assert new == eta
    else:
        assert new >= eta


def test_grant_is_the_shortest_that_covers_and_has_room() -> None:
    quota = {1: 50, 2: 30, 4: 10}
    assert grant(quota, 0, 8, 600.0) == 1
    assert grant(quota, 0, 8, 1.5 * HOUR_S) == 2
    assert grant(quota, 0, 8, 100 * HOUR_S) == 4
    assert grant(quota, 10, 8, 100 * HOUR_S) == 2
    assert grant(quota, 45, 8, 600.0) == 0


held = st.fixed_dictionaries({1: st.integers(0, 60), 2: st.integers(0, 60), 4: st.integers(0, 60)})


@given(st.lists(st.integers(0, 100), min_size=3, max_size=3), held, held)
def test_class_limits_never_evict_and_never_exceed(
    sizes: list[int], holds: dict[int, int], wanted: dict[int, int]
) -> None:
    quota = dict(zip((1, 2, 4), sorted(sizes, reverse=True), strict=True))
    limits = class_limits(quota, holds, wanted)
    assert all(limits[h] >= holds[h] for h in quota)
    if sum(limits.values()) > sum(holds.values()):
        assert sum(limits.values()) <= quota[1]


@st.composite
def pools(draw: st.DrawFn, spread: bool = False) -> Pool:
    """A pool with HP and spot gangs on it, some of them guaranteed."""
    pool = Pool("m", draw(st.lists(st.sampled_from([1, 4, 8]), min_size=1, max_size=8)))
    for index in range(draw(st.integers(0, 14))):
        cls = draw(st.sampled_from([JobClass.SPOT, JobClass.SPOT, JobClass.HP]))
        run = Run(job(cls, draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4, 8])), spread, f"r{index}"))
        nodes = first_fit(pool, run.job, 0.0)
        if nodes is None:
            continue
        run.start_s = draw(st.floats(0, NOW_S))
        run.evictions = draw(st.integers(0, 3))
        run.guarantee_until_s = draw(st.sampled_from([0.0, 0.0, NOW_S + 1.0]))
        pool.take(run, nodes)
    return pool


gangs = st.builds(job, st.just(JobClass.HP), st.integers(1, 5), st.sampled_from([1, 2, 3, 4, 8]), st.booleans())


@given(pools(), gangs, st.sampled_from([first_fit, best_fit, fgd_fit]))
def test_a_gang_is_placed_whole_or_not_at_all(pool: Pool, gang: Job, place: object) -> None:
    nodes = place(pool, gang, NOW_S)  # type: ignore[operator]
    room = sum(gang.fits(free) for free in pool.free)
    assert (nodes is not None) == (room >= gang.workers)
    if nodes is not None:
        run = Run(gang)
        pool.take(run, nodes)
        pool.check()
        assert len(nodes) == gang.workers
        assert not gang.spread or len(set(nodes)) == len(nodes)
        pool.release(run)
        pool.check()


def evict_all(pool: Pool, gang: Job, victims: list[Run]) -> bool:
    """Whether the gang fits once the victims are gone; leaves the pool as it was."""
    places = {run: run.nodes for run in victims}
    for run in victims:
        pool.release(run)
    fits = pool.slots(gang) >= gang.workers
    for run, nodes in places.items():
        pool.take(run, nodes)
    return fits


rules = st.sampled_from(["cheapest", "youngest", "gfs-paper", "gfs-code"])


def choose(rule: str, pool: Pool, gang: Job) -> list[Run] | None:
    if rule == "cheapest":
        return cheapest(pool, gang, NOW_S, CostModel())
    if rule == "youngest":
        return youngest_first(pool, gang, NOW_S)
    return gfs(pool, gang, NOW_S, 1, 9, as_coded=rule == "gfs-code")


@settings(max_examples=300)
@given(pools(), gangs.filter(lambda one: not one.spread), rules)
def test_victims_make_room_and_guarantees_hold(pool: Pool, gang: Job, rule: str) -> None:
    before = list(pool.free)
    victims = choose(rule, pool, gang)
    assert pool.free == before, "a decision changed the pool"
    free_ones = [run for run in pool.spot_runs if run.guarantee_until_s <= NOW_S]
    if victims is not None:
        assert len(set(victims)) == len(victims)
        assert all(run in free_ones for run in victims) or rule.startswith("gfs")
        assert evict_all(pool, gang, victims)
    elif not rule.startswith("gfs"):
        assert not evict_all(pool, gang, free_ones), "a possible eviction was not found"


@settings(max_examples=300)
@given(pools(spread=True), gangs)
def test_cheapest_needs_every_victim(pool: Pool, gang: Job) -> None:
    victims = cheapest(pool, gang, NOW_S, CostModel())
    for run in victims or []:
        assert not evict_all(pool, gang, [one for one in victims or [] if one is not run])


@settings(max_examples=200)
@given(pools(), st.sampled_from([1, 2, 4, 8]))
def test_cheapest_is_optimal_for_one_worker(pool: Pool, gpus: int) -> None:
    """Against all subsets of the evictable runs (gangs of one node only, where the greedy step is exact)."""
    gang, cost = job(JobClass.HP, 1, gpus), CostModel()
    free_ones = [run for run in pool.spot_runs if run.guarantee_until_s <= NOW_S]
    if len(free_ones) > 9 or any(run.job.workers > 1 for run in free_ones):
        return
    found = cheapest(pool, gang, NOW_S, cost)
    sets = [
        subset
        for count in range(len(free_ones) + 1)
        for subset in itertools.combinations(free_ones, count)
        if evict_all(pool, gang, list(subset))
    ]
    best = min((sum(cost.cost(run, NOW_S) for run in subset) for subset in sets), default=None)
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert sum(cost.cost(run, NOW_S) for run in found) == pytest.approx(best)


def test_a_costly_job_is_spared_for_a_cheap_one_elsewhere() -> None:
    pool = Pool("m", [8, 8])
    costly, cheap = Run(job(JobClass.SPOT, 1, 8, name="costly")), Run(job(JobClass.SPOT, 1, 8, name="cheap"))
    costly.start_s, cheap.start_s = NOW_S - 3500, NOW_S - 3700  # 3500 s lost against 100 s after the checkpoint
    pool.take(costly, (0,))
    pool.take(cheap, (1,))
    assert cheapest(pool, job(JobClass.HP, 1, 8), NOW_S, CostModel()) == [cheap]


def test_fragmentation_is_what_typical_jobs_cannot_use() -> None:
    assert fragmentation(8) == 0
    assert fragmentation(4) == pytest.approx(0.5 * 4)
    assert fragmentation(7) > fragmentation(8)


def test_admits_counts_what_runs() -> None:
    assert admits(10, 6, 4)
    assert not admits(10, 7, 4)


def test_free_gpus_that_are_scattered_are_no_room() -> None:
    pool = Pool("m", [8, 8, 8])
    pool.take(Run(job(JobClass.SPOT, 2, 4)), (0, 1))
    assert leaves(pool, (0,), 4, [(8, 1)]), "a fragment is no slot of eight"
    assert not leaves(pool, (2,), 1, [(8, 1)]), "one GPU of the last empty node costs the slot"
    assert leaves(pool, (2,), 1, []), "nothing is to be kept"
    assert leaves(pool, (2,), 4, [(4, 3)]), "four slots of four are free, three are left"
    assert not leaves(pool, (2, 2), 4, [(4, 3)])


@given(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=30), st.floats(60.0, HOUR_S), st.floats(0.0, 3.0))
def test_slots_are_kept_by_the_size_of_the_jobs_that_come(sizes: list[int], span_s: float, deviations: float) -> None:
    rates = ArrivalRates()
    for index, size in enumerate(sizes):
        rates.add(size, 60.0 * index)
    expected = rates.expected(60.0 * len(sizes), span_s)
    assert [size for size, _ in expected] == sorted(set(sizes), reverse=True)
    assert sum(jobs for _, jobs in expected) == 0 or max(jobs for _, jobs in expected) <= len(sizes) * span_s / HOUR_S
    kept = slots_to_keep(expected, deviations)
    assert all(slots > 0 for _, slots in kept)
    assert [slots for _, slots in kept] == sorted(slots for _, slots in kept), "a job of eight fits no slot of four"


def test_arrivals_are_forgotten_with_their_half_life() -> None:
    rates = ArrivalRates(prior_s=0.0)
    for hour in range(240):
        rates.add(8, hour * HOUR_S)
    ((_, steady),) = rates.expected(240 * HOUR_S, HOUR_S)
    assert steady == pytest.approx(1.0, abs=0.06), "one an hour"
    ((_, later),) = rates.expected(252 * HOUR_S, HOUR_S)
    assert later == pytest.approx(steady / 2, rel=0.01)
