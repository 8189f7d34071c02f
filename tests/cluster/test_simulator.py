"""The simulator: no GPU, job or guarantee is lost under any policy, and what it measures is right."""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpsched.tuner.cluster.arms import ARMS, Policy, make_arm
from gpsched.tuner.cluster.engine import Simulation
from gpsched.tuner.cluster.errors import JobError, StarvedError, UnknownNameError
from gpsched.tuner.cluster.generate import MODELS, GeneratorSettings, alibaba_cluster, generate
from gpsched.tuner.cluster.model import HOUR_S, Cluster, Job, JobClass, Workload
from gpsched.tuner.cluster.pool import Run


CLUSTER = Cluster("small", {"m": [8, 8, 4, 1]})


def job(name: str, cls: JobClass, submit_s: float, duration_s: float, workers: int = 1, gpus: int = 8) -> Job:
    return Job(name, "t", "m", cls, workers, gpus, submit_s, duration_s)


def workload(*jobs: Job, nodes: tuple[int, ...] = (8,)) -> Workload:
    return Workload("test", Cluster("c", {"m": list(nodes)}), sorted(jobs, key=lambda one: one.submit_s), 24 * HOUR_S)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    jobs = []
    for index in range(draw(st.integers(1, 25))):
        gpus = draw(st.sampled_from([1, 2, 4, 8]))
        workers = draw(st.integers(1, {1: 5, 2: 5, 4: 3, 8: 2}[gpus]))
        cls = draw(st.sampled_from(list(JobClass)))
        times = draw(st.integers(0, 20_000)), draw(st.integers(1, 20_000))
        jobs.append(Job(f"j{index}", f"t{index % 3}", "m", cls, workers, gpus, float(times[0]), float(times[1])))
    return Workload("random", CLUSTER, sorted(jobs, key=lambda one: one.submit_s), 40_000.0)


class Watch:
    """Follows one policy object: every job must finish once, after running exactly as long as it has to."""

    def __init__(self, policy: Policy) -> None:
        self.finished: dict[str, int] = {}
        self.ran_s: dict[str, float] = {}
        evicted, finished = policy.evicted, policy.finished

        def on_evicted(run: Run, ran_s: float, now_s: float) -> None:
            self.ran_s[run.job.id] = self.ran_s.get(run.job.id, 0.0) + ran_s
            evicted(run, ran_s, now_s)

        def on_finished(run: Run, now_s: float) -> None:
            self.finished[run.job.id] = self.finished.get(run.job.id, 0) + 1
            whole_s = self.ran_s.get(run.job.id, 0.0) + now_s - run.start_s
            assert whole_s == pytest.approx(run.job.duration_s + run.lost_s)
            finished(run, now_s)

        policy.evicted, policy.finished = on_evicted, on_finished  # type: ignore[method-assign]


@pytest.mark.parametrize("arm", ARMS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads())
def test_nothing_is_lost(arm: str, some: Workload) -> None:
    policy = make_arm(arm)
    watch = Watch(policy)
    result = Simulation(some, policy, audit=True).run()
    assert watch.finished == {one.id: 1 for one in some.jobs}
    assert result.figures["guarantees_broken"] == 0
    assert 0 <= result.figures["useful_allocation"] <= result.figures["allocation"] <= 1


def test_hp_evicts_and_the_spot_job_pays_from_its_last_checkpoint() -> None:
    spot = job("spot", JobClass.SPOT, 0.0, 10_000.0)
    hp = job("hp", JobClass.HP, 5_000.0, 1_000.0)
    result = Simulation(workload(spot, hp), make_arm("fifo"), audit=True).run()
    figures = result.figures
    assert figures["evictions"] == 1
    assert figures["hp_wait_mean_s"] == 0
    assert figures["lp_wait_mean_s"] == 1_000.0, "it waits while HP runs"
    assert figures["lost_gpu_h"] * 3600 == pytest.approx(8 * (5_000 - 3_600 + 60))
    assert figures["lp_turnaround_mean_s"] == 10_000 + 1_000 + 1_400 + 60


def test_a_guarantee_makes_hp_wait_and_is_kept() -> None:
    class Guaranteed(Policy):
        def admit(self, pool: object, run: object, nodes: object, now_s: float) -> float:
            return 2_000.0

    spot = job("spot", JobClass.SPOT, 0.0, 10_000.0)
    hp = job("hp", JobClass.HP, 500.0, 1_000.0)

    class Victims(Guaranteed):
        tick_s = 100_000.0  # only the end of the guarantee can wake the waiting HP job

    result = Simulation(workload(spot, hp), Victims(), audit=True).run()
    assert result.figures["hp_wait_mean_s"] == 1_500.0
    assert result.figures["guarantees_broken"] == 0


def test_allocation_is_the_share_of_gpu_time() -> None:
    some = workload(job("a", JobClass.HP, 0.0, 12 * HOUR_S, gpus=4))
    assert Simulation(some, make_arm("fifo")).run().figures["allocation"] == pytest.approx(0.25)


def test_strict_fifo_holds_up_what_skip_lets_pass() -> None:
    first = job("first", JobClass.SPOT, 0.0, 1_000.0, gpus=4)
    large = job("large", JobClass.SPOT, 1.0, 1_000.0, gpus=8)
    small = job("small", JobClass.SPOT, 2.0, 1_000.0, gpus=4)
    strict = Simulation(workload(first, large, small), make_arm("fifo")).run().figures
    skip = Simulation(workload(first, large, small), make_arm("fifo-skip")).run().figures
    assert strict["lp_wait_mean_s"] == pytest.approx((0 + 999 + 1_998) / 3)
    assert skip["lp_wait_mean_s"] == pytest.approx((0 + 1_001 + 0) / 3, abs=2)


def test_a_policy_that_starts_nothing_is_an_error() -> None:
    class Never(Policy):
        def admit(self, pool: object, run: object, nodes: object, now_s: float) -> None:
            return None

    with pytest.raises(StarvedError, match="1 jobs"):
        Simulation(workload(job("a", JobClass.SPOT, 0.0, 1.0)), Never()).run()


def test_same_seed_same_result() -> None:
    some = GeneratorSettings(days=1, scale=0.05, seed=3)
    first = Simulation(generate(some), make_arm("ours")).run()
    second = Simulation(generate(some), make_arm("ours")).run()
    assert first == second


def test_unknown_arm() -> None:
    with pytest.raises(UnknownNameError, match="fifo"):
        make_arm("nope")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu_model": "x"}, "not in cluster"),
        ({"workers": 3, "gpus": 8}, "2 at most"),
        ({"gpus": 16}, "0 at most"),
        ({"submit_s": -1.0}, "submitted at -1"),
        ({"duration_s": 0.0}, "for 0.0 s"),
        ({"workers": 0}, "0 workers"),
    ],
)
def test_jobs_that_can_never_run_are_refused(change: dict[str, object], reason: str) -> None:
    good = job("a", JobClass.HP, 0.0, 1.0)
    CLUSTER.check(good)
    with pytest.raises(JobError, match=reason):
        CLUSTER.check(dataclasses.replace(good, **change))  # type: ignore[arg-type]


def test_generator_meets_its_calibration() -> None:
    some = GeneratorSettings(days=10, spot_load=0.15, seed=2)
    found = generate(some)
    cluster = alibaba_cluster()
    assert cluster.total_gpus == 10_412
    assert sum(map(len, cluster.nodes.values())) == 4_278
    spot_gpu_s = hp_gpu_s = 0.0
    for model in MODELS:
        capacity = cluster.capacity(model)
        spot = [one for one in found.jobs if one.gpu_model == model and one.cls is JobClass.SPOT]
        asked = sum(one.total_gpus * one.duration_s for one in spot) / capacity / found.horizon_s
        assert 0.06 < asked < 0.20, "heavy tails: a small model may miss the load, the cluster must not"
        spot_gpu_s += asked * capacity
        hp = [one for one in found.jobs if one.gpu_model == model and one.cls is JobClass.HP]
        held = sum(one.total_gpus * min(one.duration_s, found.horizon_s - one.submit_s) for one in hp)
        assert 0.4 < held / capacity / found.horizon_s < 1.0
        hp_gpu_s += held / found.horizon_s
    assert 0.13 < spot_gpu_s / cluster.total_gpus < 0.17
    assert 0.65 < hp_gpu_s / cluster.total_gpus < 0.85
    arrivals = [one for one in found.jobs if one.cls is JobClass.HP and one.submit_s > 0]
    assert 0.75 < len(arrivals) / (466_867 / 184 * 0.89 * 10) < 1.25, "HP arrivals a day"
    night = sum(1 for one in arrivals if 1 <= one.submit_s / HOUR_S % 24 < 7)
    assert night / len(arrivals) < 0.23, "fewer jobs by night"


def test_cost_grows_no_worse_than_n_log_n_in_steps() -> None:
    """Counts what the engine does, not the time it takes: events and scheduling offers per job stay flat."""
    per_job = []
    for days in (2, 8):
        some = generate(GeneratorSettings(days=days, scale=0.1, seed=1))
        simulation = Simulation(some, make_arm("fifo-skip"))
        simulation.run()
        per_job.append(simulation._sequence / len(some.jobs))
    assert per_job[1] < 1.3 * per_job[0]
