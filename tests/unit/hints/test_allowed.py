"""Whether a burst's own lead allowed a reservation in time: by what tells of it first, chosen or not."""

import random

import pytest

from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Matcher, Wake, WakeKind
from gpsched.adaptive.hints.outputs import BurstBegan
from tests.unit.hints.obedient import with_ticks
from tests.unit.hints.streams import Stream, arrivals, batching_server, plain_loop


COSTS = Costs(need_us=300.0, spread_us=60.0)


def verdicts(learner: HintLearner, stream: Stream, warm_up: int = 50) -> list[tuple[bool, bool]]:
    """Of each burst: what the learner says, and whether its true lead was long enough."""
    leads = {truth.launch_us: truth.lead_us for truth in stream.bursts}
    outputs = (output for each in with_ticks(stream.sorted(), 4_000.0) for output in learner.observe(each))
    began = [output for output in outputs if isinstance(output, BurstBegan)]
    return [(one.allowed, leads[one.time_us] >= COSTS.lead_us) for one in began][warm_up:]


@pytest.mark.parametrize(("prepare", "share"), [(1_000.0, 1.0), (345.0, 0.5), (150.0, 0.0)])
def test_the_lead_decides(prepare: float, share: float) -> None:
    rng = random.Random(1)
    found = verdicts(HintLearner(COSTS), plain_loop(arrivals("poisson", 100, 400, rng), rng, prepare=lambda _: prepare))
    assert sum(said for said, _ in found) / len(found) == pytest.approx(share, abs=0.2)
    assert sum(said == true for said, true in found) >= 0.99 * len(found)


def test_wakes_that_come_long_before_some_bursts_do_not_decide() -> None:
    """An event loop wakes before it reads, but also once the answer is sent: that long before, all seemed allowed."""
    rng = random.Random(5)
    stream = plain_loop(arrivals("constant", 100, 400, rng), rng, prepare=lambda _: 150.0)
    for truth in stream.bursts:
        read_us = truth.launch_us - truth.lead_us
        stream.observations += [
            Wake(read_us - 45.0, 10, WakeKind.EPOLL, 4),
            Wake(read_us - 6.0, 10, WakeKind.EPOLL),
            Wake(truth.end_us + 60.0, 10, WakeKind.EPOLL),
        ]
    learner = HintLearner(COSTS)
    found = verdicts(learner, stream)
    assert learner._chooser.earliest == Matcher(WakeKind.EPOLL, descriptor=4)
    assert sum(said for said, _ in found) <= 0.2 * len(found)  # now and then it is chosen, in place of the clock


def test_requests_that_waited_have_their_lead_from_the_end_of_the_burst_before() -> None:
    rng = random.Random(2)
    found = verdicts(HintLearner(COSTS), batching_server(arrivals("poisson", 150, 400, rng), rng))
    assert sum(said for said, _ in found) >= 0.99 * len(found)


def test_the_clock_is_no_lead() -> None:
    rng = random.Random(3)
    learner = HintLearner(COSTS)
    found = verdicts(learner, plain_loop(arrivals("constant", 20, 200, rng), rng, prepare=lambda _: 0.0))
    assert not any(said for said, _ in found)


def test_a_trigger_that_is_not_chosen_tells_too() -> None:
    """A choice of the copy just before the launch must not hide that the socket told of the burst in time."""
    rng = random.Random(4)
    learner = HintLearner(COSTS)
    stream = plain_loop(arrivals("poisson", 100, 200, rng), rng)
    verdicts(learner, stream, 0)
    assert learner.chosen().triggers[0].matcher.kind == WakeKind.SOCKET_READ
    chooser = learner._chooser
    copies = [item for item in chooser.rate(COSTS) if item[0].kind == WakeKind.COPY_H2D]
    chooser.decide = lambda: False  # type: ignore[method-assign]
    chooser._set(chooser._from_rated(copies))
    learner._matching.clear()
    later = plain_loop(arrivals("poisson", 100, 100, rng, stream.bursts[-1].end_us + 10_000), rng)
    assert all(said for said, _ in verdicts(learner, later, 2))
