"""Turns of best-effort processes: by the weight of tenants, the idle get the shortest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.policy.turns import LONGEST_US, SHORTEST_US, Participant, longest_wait, shares, turns


def test_equal_ones_have_equal_turns() -> None:
    assert turns([Participant(1, "a"), Participant(2, "a")], {}, 50_000) == (50_000, 50_000)


def test_a_round_of_many_lasts_no_longer_than_that_of_two() -> None:
    assert turns([Participant(pid, "a") for pid in range(5)], {}, 50_000) == (20_000,) * 5
    assert turns([Participant(pid, "a") for pid in range(50)], {}, 50_000) == (SHORTEST_US,) * 50


def test_three_to_one() -> None:
    pair = [Participant(1, "large"), Participant(2, "small")]
    assert turns(pair, {"large": 3.0}, 50_000) == (75_000, 25_000)


def test_a_tenant_gains_nothing_by_more_processes() -> None:
    many = [Participant(1, "a"), Participant(2, "a"), Participant(3, "a"), Participant(4, "b")]
    assert shares(many, {}) == pytest.approx({1: 1 / 6, 2: 1 / 6, 3: 1 / 6, 4: 1 / 2})


def test_weights_within_a_tenant() -> None:
    found = shares([Participant(1, "a", 2.0), Participant(2, "a"), Participant(3, "b")], {"a": 3.0})
    assert found == pytest.approx({1: 0.5, 2: 0.25, 3: 0.25})


def test_the_idle_get_the_shortest_turn_and_the_others_theirs() -> None:
    three = [Participant(pid, str(pid)) for pid in (1, 2, 3)]
    assert turns(three, {}, 50_000, idle={2}) == (50_000, SHORTEST_US, 50_000)
    assert turns(three, {}, 50_000, idle={1, 2}) == (SHORTEST_US, SHORTEST_US, 50_000)


def test_a_small_share_lengthens_the_others_turns() -> None:
    large, small = turns([Participant(1, "a"), Participant(2, "b")], {"a": 19.0}, 5_000)
    assert (large, small) == (95_000, SHORTEST_US)


def test_nobody_waits_for_longer_than_a_part_of_a_round_that_reservations_would_stretch() -> None:
    assert longest_wait((20_000,) * 5, alone=False) == 65_000
    assert longest_wait((20_000,) * 5, alone=True) == 100_000


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 10)), min_size=1, max_size=8),
    st.dictionaries(st.sampled_from("abc"), st.floats(0.1, 10)),
    st.integers(5_000, 200_000),
)
def test_shares_hold_within_the_bounds(
    members: list[tuple[str, float]], tenants: dict[str, float], turn_us: int
) -> None:
    participants = [Participant(pid, *member) for pid, member in enumerate(members)]
    parts = shares(participants, tenants)
    assert sum(parts.values()) == pytest.approx(1.0)
    lengths = turns(participants, tenants, turn_us)
    assert all(SHORTEST_US <= length <= LONGEST_US for length in lengths)
    if LONGEST_US not in lengths:
        for participant, length in zip(participants, lengths, strict=True):
            assert length / sum(lengths) == pytest.approx(parts[participant.pid], rel=0.01)
