"""Event loops that read several requests at once and serve them one after the other."""

import random

from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Launch, Observation, SyncEnter, SyncReturn, SyncScope, Wake, WakeKind
from gpsched.adaptive.hints.outputs import Reserve
from gpsched.adaptive.hints.unserved import Unserved
from tests.unit.hints import judge


PREPARE_US, WORK_US, LOOP = 600.0, 3_000.0, 10


def served(start: float, rng: random.Random) -> tuple[list[Observation], float]:
    """A request from its preparation on: its launch, and when it is done."""
    launch = start + PREPARE_US + rng.uniform(0.0, 40.0)
    end = launch + WORK_US
    calls = [Launch(launch, LOOP, stream=1), SyncEnter(launch + 20.0, LOOP), SyncReturn(end, LOOP, SyncScope.STREAM, 1)]
    return calls, end


def event_loop(cycles: int, reads: int = 1) -> tuple[list[Observation], list[float]]:
    """One cycle of three reads two requests at once; ``reads`` of each. Returns the second requests' launches, too."""
    rng = random.Random(4)
    observed: list[Observation] = []
    second: list[float] = []
    for cycle in range(cycles):
        now = 1e6 + cycle * 20_000.0 + rng.uniform(0.0, 3_000.0)
        requests = 2 if cycle % 3 == 0 else 1
        observed += [Wake(now - 60.0, LOOP, WakeKind.EPOLL_WAKING, 4), Wake(now, LOOP, WakeKind.EPOLL, 4)]
        observed += [Wake(now + 12.0 * (i + 1), LOOP, WakeKind.SOCKET_READ, 50 + i, 8) for i in range(requests * reads)]
        for request in range(requests):
            calls, now = served(now + 50.0, rng)
            second += [calls[0].time_us] if request else []
            observed += calls
    return observed, second


def reserved_for(learner: HintLearner, observed: list[Observation]) -> dict[WakeKind, list[Reserve]]:
    found: dict[WakeKind, list[Reserve]] = {}
    for observation in observed:
        for output in learner.observe(observation):
            if isinstance(output, Reserve):
                found.setdefault(WakeKind(output.trigger.kind), []).append(output)
    return found


def test_a_request_that_was_read_with_another_is_foreseen() -> None:
    """On an H200 one of nine of an HTTP service at 100/s was not."""
    learner = HintLearner(judge.COSTS)
    observed, second = event_loop(240)
    reserved = reserved_for(learner, observed)[WakeKind.BURST_END]
    assert learner.report().drifts == 0
    late = second[len(second) // 2 :]
    foreseen = [any(r.start_us + judge.EARLY_US <= launch <= r.until_us for r in reserved) for launch in late]
    assert sum(foreseen) >= 0.97 * len(foreseen)
    assert len([r for r in reserved if r.start_us > late[0]]) <= 1.05 * len(late)


def test_requests_that_take_two_reads_are_not_taken_for_two() -> None:
    learner = HintLearner(judge.COSTS)
    observed, _ = event_loop(120, reads=2)
    assert WakeKind.BURST_END not in reserved_for(learner, observed)


def test_where_nobody_sees_threads_sleep_nothing_is_guessed() -> None:
    """A kernel that hides wake-ups: reads that no burst follows would never be forgotten."""
    learner = HintLearner(judge.COSTS)
    observed = [o for o in event_loop(120)[0] if not (isinstance(o, Wake) and o.kind == WakeKind.EPOLL_WAKING)]
    reserved_for(learner, observed)
    assert not any(candidate.kind == "burst_end" for candidate in learner.report().candidates)


Act = tuple[str, int]
ACTS = st.lists(st.tuples(st.sampled_from(["read", "sleep", "launch"]), st.integers(0, 3)), max_size=60)


@given(ACTS)
def test_a_thread_waits_exactly_while_it_has_read_more_than_it_served(acts: list[Act]) -> None:
    unserved, serves = Unserved(), None
    read: dict[int, int] = {}  # of threads that were seen to sleep
    for what, tid in acts:
        if what == "read":
            unserved.wake(WakeKind.SOCKET_READ, tid)
            read |= {tid: read[tid] + 1} if tid in read else {}
        elif what == "sleep":
            unserved.wake(WakeKind.EPOLL_WAKING, tid)
            read[tid] = 0
        else:
            unserved.launch(tid)
            read |= {tid: max(read[tid] - 1, 0)} if tid in read else {}
            serves = tid
        assert unserved.waits == (read.get(serves, 0) > 0)


def test_threads_that_come_and_go_cost_no_memory() -> None:
    unserved = Unserved()
    for tid in range(10 * Unserved.THREADS):
        unserved.wake(WakeKind.EPOLL_WAKING, tid)
    assert len(unserved._read) <= Unserved.THREADS
