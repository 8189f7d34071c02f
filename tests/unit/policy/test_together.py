"""Turns or together: tried, chosen by what is launched, tried again when that changes."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.policy.together import TURNS, WAYS, Together


Rates = Callable[[int], dict[int, float]]


class Node:
    """Processes that launch at rates which depend on the way they run."""

    def __init__(self, rates: Rates) -> None:
        self.rates, self.policy, self.now_s, self.way = rates, Together(), 0.0, TURNS
        self.launches = dict.fromkeys(rates(TURNS), 0.0)
        self.ways: list[int] = []

    def seconds(self, count: int) -> "Node":
        for _ in range(count):
            self.now_s += 1.0
            for pid, rate in self.rates(self.way).items():
                self.launches[pid] += rate
            counted = {pid: int(count) for pid, count in self.launches.items()}
            self.way = self.policy.judge(self.now_s, counted, 2.0)
            self.ways.append(self.way)
        return self


def rhythmic(way: int) -> dict[int, float]:
    """At a rhythm of their own: in turns each gets done what falls into its turn."""
    return dict.fromkeys((1, 2, 3, 4), 100.0 if way else 25.0)


def busy(way: int) -> dict[int, float]:
    """Always at work: together they spend half of the time on switches."""
    return dict.fromkeys((1, 2), {200: 540.0, 1000: 1020.0}.get(way, 1150.0))


def test_those_with_a_rhythm_run_together_and_those_at_work_take_turns() -> None:
    assert Node(rhythmic).seconds(30).ways[15:] == [200] * 15
    assert Node(busy).seconds(30).ways[15:] == [TURNS] * 15


def test_slices_are_longer_where_many_have_work_at_a_time() -> None:
    """Five at 100 units a second: two thirds of the GPU, and as much again for switches every 200 µs."""
    rates = {TURNS: 20.0, 200: 70.0, 1000: 95.0}
    assert Node(lambda way: dict.fromkeys(range(5), rates[way])).seconds(30).way == 1000


def test_a_trial_is_short_and_rare() -> None:
    ways = Node(busy).seconds(240).ways
    assert sum(map(bool, ways)) <= 20


def test_equal_ways_mean_turns() -> None:
    assert Node(lambda _way: {1: 100.0, 2: 50.0}).seconds(30).way == TURNS


def test_another_behaviour_is_noticed() -> None:
    node = Node(rhythmic).seconds(30)
    node.rates = lambda way: dict.fromkeys((1, 2, 3, 4), 250.0 if way else 450.0)
    node.seconds(30)
    assert node.way == TURNS


def test_known_processes_are_not_tried_again() -> None:
    node = Node(busy).seconds(30)
    other = {7: 0, 8: 0}
    for second in range(20):
        node.policy.judge(node.now_s + second, other, 2.0)
    node.now_s += 20
    assert node.seconds(20).ways[-20:] == [TURNS] * 20


def test_those_that_launch_nothing_take_turns() -> None:
    assert Node(lambda _way: {1: 0.0, 2: 0.0}).seconds(30).way == TURNS


@given(
    st.lists(st.dictionaries(st.integers(1, 4), st.integers(0, 10**9), min_size=2), max_size=60), st.floats(0.0, 20.0)
)
def test_whatever_is_counted_there_is_an_answer(counts: list[dict[int, int]], window_s: float) -> None:
    policy = Together()
    for second, launches in enumerate(counts):
        assert policy.judge(float(second), launches, window_s) in WAYS
