"""The quality of hints with events, reactions and delays as a daemon has them (issue: HINTS).

Learned within 50 requests; from then on at least 99 % of the bursts whose natural lead allows it (docs/hints.md) are
reserved 0.2 ms before their first launch, under 1 % of reservations are in vain, under 1 % of GPU time is wasted. Where
keeping the last costs more of the first, waste is what counts. The bounds here leave room for what is rolled.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gpsched.adaptive import trace
from gpsched.adaptive.hints import choose
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Launch, Observation, Wake, WakeKind
from gpsched.adaptive.hints.outputs import BurstBegan
from tests.unit.hints import judge
from tests.unit.hints.streams import (
    Stream,
    arrivals,
    asyncio_server,
    batching_server,
    concurrent_server,
    noise,
    plain_loop,
)


COSTS = judge.COSTS
H200 = {
    part.header.about: judge.observations(part)
    for part in trace.read(Path(__file__).parent / "traces" / "h200-2026-11-30.gz")
}


def read_to_launch(observed: list[Observation], launches: list[float]) -> dict[float, float]:
    """The natural lead of services that read one request, then launch."""
    first, read, found = set(launches), 0.0, {}
    for observation in observed:
        if isinstance(observation, Wake) and observation.kind == WakeKind.SOCKET_READ:
            read = read or observation.time_us
        elif isinstance(observation, Launch) and observation.time_us in first:
            found[observation.time_us], read = observation.time_us - read if read else 0.0, 0.0
    return found


@pytest.mark.parametrize("about", ["A", "B", "Z", "lead"])
def test_events_read_in_batches_teach_what_single_ones_do(about: str) -> None:
    """They did not: time ran ahead of what was yet to be read, and leads were 0."""
    observed = H200[about]
    single, batches = HintLearner(COSTS), HintLearner(COSTS)
    began = [
        [output.time_us for output in outputs if isinstance(output, BurstBegan)]
        for outputs in (
            [output for each in observed for output in single.observe(each)],
            [output for _, output in judge.in_batches(batches, observed, 60.0)],
        )
    ]
    assert began[0] == began[1]
    kinds = [[trigger.matcher for trigger in learner.chosen().triggers] for learner in (single, batches)]
    assert kinds[0] == kinds[1]
    offsets = [[trigger.offset_us for trigger in learner.chosen().triggers] for learner in (single, batches)]
    assert offsets[0] == pytest.approx(offsets[1], abs=0.1 * COSTS.need_us)


@pytest.mark.parametrize(
    ("about", "lead_us", "all_", "allowed_"),
    [("A", 387.0, 0.95, 0.98), ("B", 345.0, 0.7, 0.0), ("Z", 528.0, 0.94, 0.94)],
)
def test_services_on_an_h200_are_foreseen_as_far_as_their_leads_allow(
    about: str, lead_us: float, all_: float, allowed_: float
) -> None:
    """As late as holds began in the run that the traces of A and Z are of, 79 % of all were early.

    Of B (at 220/s) and Z the budget is the limit; of B no lead allows more.
    """
    observed = H200[about]
    launches = judge.first_launches(observed)
    leads = read_to_launch(observed, launches)
    assert sorted(leads.values())[len(leads) // 2] == pytest.approx(lead_us, abs=5.0)
    allowed = {launch for launch, lead in leads.items() if lead >= judge.ALLOWED_US}
    early: list[bool] = []
    early_allowed: list[bool] = []
    for seed in range(5):
        learner = HintLearner(COSTS)
        judged = judge.judge(learner, observed, launches, seed=seed)
        assert (learner.report().learned_after or 1e9) <= 50
        assert judged.vain <= 0.01 * judged.reservations
        assert judged.waste_us <= 0.01 * judged.counted_us
        early += judged.early(set(launches))
        early_allowed += judged.early(allowed)
    print(f"{about}: {sum(early) / len(early):.2%} of all, {sum(early_allowed)} of {len(early_allowed)} allowed")
    assert sum(early) >= all_ * len(early) > 1000
    assert sum(early_allowed) >= allowed_ * len(early_allowed)


def test_requests_that_an_h200s_service_reads_together_are_foreseen() -> None:
    """An asyncio server at 100/s (Poisson): 49 of 450 bursts had no reservation, 77 % were early."""
    (part,) = trace.read(Path(__file__).parent / "traces" / "h200-2026-11-30-together.gz")
    observed = judge.observations(part)
    launches = judge.first_launches(observed)
    judged = judge.judge(HintLearner(COSTS), observed, launches)
    margins, early = judged.margins[judge.WARM_UP :], judged.early(set(launches))
    assert len(margins) == 450
    assert sum(margin < 0.0 for margin in margins) <= 10
    assert sum(early) >= 0.84 * len(early)
    assert judged.vain <= 0.01 * judged.reservations
    assert judged.waste_us <= 0.01 * judged.counted_us


SERVERS: dict[str, Callable[[list[float], random.Random], Stream]] = {
    "plain": plain_loop,
    "asyncio": asyncio_server,
    "batching": batching_server,
}


class Sum:
    """Several runs of one service: one has too few bursts to tell 99 % from 98 %."""

    def __init__(self, server: str, shape: str, rate: float) -> None:
        self.early: list[bool] = []
        self.reservations = self.vain = 0
        self.waste_us = self.counted_us = 0.0
        for seed in range(4):
            rng = random.Random(seed)
            stream = SERVERS[server](arrivals(shape, rate, 600, rng), rng)
            stream.extend(noise(1e6, stream.bursts[-1].end_us, 50.0, rng))
            launches = [truth.launch_us for truth in stream.bursts]
            allowed = {truth.launch_us for truth in stream.bursts if truth.lead_us >= judge.ALLOWED_US}
            judged = judge.judge(HintLearner(COSTS), stream.sorted(), launches, seed=seed)
            self.early += judged.early(allowed)
            self.reservations, self.vain = self.reservations + judged.reservations, self.vain + judged.vain
            self.waste_us, self.counted_us = self.waste_us + judged.waste_us, self.counted_us + judged.counted_us

    def __str__(self) -> str:
        return (
            f"early {sum(self.early) / len(self.early):.2%} of {len(self.early)}, "
            f"in vain {self.vain / self.reservations:.2%}, waste {self.waste_us / self.counted_us:.2%}"
        )


@pytest.mark.parametrize(("rate", "least"), [(20.0, 0.983), (100.0, 0.98), (200.0, 0.93)])
@pytest.mark.parametrize("shape", ["constant", "poisson", "bursty"])
@pytest.mark.parametrize("server", SERVERS)
def test_services_under_load(server: str, shape: str, rate: float, least: float) -> None:
    """At 200/s the budget is 50 µs a burst, hardly more than what the reactions of this actuator spread by."""
    found = Sum(server, shape, rate)
    print(f"{server} {shape} {rate:.0f}/s: {found}")
    assert sum(found.early) >= least * len(found.early) > 300
    assert found.vain <= 0.01 * found.reservations
    assert found.waste_us <= 0.01 * found.counted_us


def test_a_service_of_many_threads_has_no_more_triggers_than_an_actuator_takes() -> None:
    """A thread for each connection: the read of any of them, not of each."""
    rng = random.Random(2)
    learner = HintLearner(COSTS)
    stream = concurrent_server(arrivals("poisson", 200.0, 600, rng), rng)
    judged = judge.judge(learner, stream.sorted(), [truth.launch_us for truth in stream.bursts])
    assert 1 <= len(learner.chosen().triggers) <= choose.MOST
    margins = judged.margins[judge.WARM_UP :]
    assert sum(margin >= 0.0 for margin in margins) > 0.7 * len(margins)  # it was 0.6, with eight triggers
