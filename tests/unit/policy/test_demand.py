"""What latency-critical processes need of the GPU, from their bursts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.policy.demand import Demand, divide


SECOND = 1e6


def _busy(demand: Demand, pid: int, share: float, second: int, bursts: int = 10) -> None:
    for index in range(bursts):
        start = (second + index / bursts) * SECOND
        demand.began(pid, start)
        demand.ended(pid, start, start + share * SECOND / bursts)


def test_the_quantile_of_its_seconds() -> None:
    demand = Demand()
    for second, share in enumerate([0.1] * 9 + [0.5]):
        _busy(demand, 1, share, second)
        assert demand.close((second + 1) * SECOND, [[1]])
    assert demand.need(1, 0.9) == pytest.approx(0.1)
    assert demand.need(1, 1.0) == pytest.approx(0.5)
    assert demand.last(1) == pytest.approx(0.5)
    assert demand.rate(1) == 10
    assert demand.burst_us(1) == pytest.approx(10_000)


def test_too_little_is_no_answer() -> None:
    demand = Demand()
    _busy(demand, 1, 0.5, 0)
    assert not demand.close(0.9 * SECOND, [[1]])
    assert demand.close(SECOND, [[1]])
    assert demand.need(1, 0.9) is None
    assert demand.need(2, 0.9) is None


def test_a_burst_that_goes_on_counts_in_every_second() -> None:
    demand = Demand()
    demand.began(1, 0.5 * SECOND)
    shares = []
    for second in (1, 2, 3, 4):
        demand.close(second * SECOND, [[1]])
        shares.append(demand.last(1))
    assert shares == pytest.approx([0.5, 1.0, 1.0, 1.0])
    demand.ended(1, 0.5 * SECOND, 4.2 * SECOND)
    demand.close(5 * SECOND, [[1]])
    assert demand.last(1) == pytest.approx(0.2)  # the rest was counted before


def test_time_that_two_wait_for_each_other_is_halved() -> None:
    demand = Demand()
    for pid in (1, 2):
        demand.began(pid, 0.0)
        demand.ended(pid, 0.0, 0.8 * SECOND)
    demand.close(SECOND, [[1, 2]])
    assert (demand.last(1), demand.last(2)) == (pytest.approx(0.4), pytest.approx(0.4))


def test_processes_on_other_gpus_do_not_count() -> None:
    demand = Demand()
    for pid in (1, 2):
        demand.ended(pid, 0.0, 0.8 * SECOND)
    demand.close(SECOND, [[1], [2]])
    assert (demand.last(1), demand.last(2)) == (pytest.approx(0.8), pytest.approx(0.8))


def test_forgotten_is_unknown() -> None:
    demand = Demand()
    demand.ended(1, 0.0, 10.0)
    demand.forget(1)
    demand.close(SECOND, [[1]])
    assert (demand.last(1), demand.burst_us(1), demand.need(1, 0.5)) == (0.0, 0.0, None)


SPANS = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)).map(lambda span: (min(span), max(span))), max_size=5)


@given(st.dictionaries(st.integers(1, 4), SPANS))
def test_together_they_never_use_more_than_there_is(spans: dict[int, list[tuple[float, float]]]) -> None:
    used = divide(spans)
    assert set(used) == set(spans)
    assert all(us >= 0 for us in used.values())
    assert sum(used.values()) <= 100 + 1e-6
