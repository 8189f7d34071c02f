"""Who is let in when latency-critical processes need more of a GPU than there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.config import Admission
from gpsched.adaptive.policy.admission import Admissions, Claim


SETTINGS = Admission(retry_s=30.0)


def _feed(
    admissions: Admissions, claims: list[Claim], start: float = 0.0, seconds: int = 10, settings: Admission = SETTINGS
) -> float:
    for second in range(seconds):
        admissions.feed(start + second, {0: claims}, settings)
    return start + seconds


def _claim(pid: int, need: float | None, priority: int = 0) -> Claim:
    """A claim of bursts of 5 ms; higher pids came later."""
    return Claim(str(pid), need, round((need or 0) * 200), 5_000.0, priority, since=float(pid))


def test_what_fits_is_let_in() -> None:
    admissions = Admissions()
    _feed(admissions, [_claim(1, 0.5), _claim(2, 0.4)])
    assert admissions.refused == {}


def test_the_youngest_is_left_out_with_the_figures() -> None:
    admissions = Admissions()
    _feed(admissions, [_claim(1, 0.5), _claim(2, 0.3), _claim(3, 0.3)])
    assert list(admissions.refused) == ["3"]
    assert admissions.refused["3"] == (
        "not admitted: needs 30% of the GPU, the other latency-critical 80%, and admission.capacity is 90%"
    )


def test_the_lowest_priority_goes_before_the_youngest() -> None:
    admissions = Admissions()
    _feed(admissions, [_claim(1, 0.5, priority=-1), _claim(2, 0.5)])
    assert list(admissions.refused) == ["1"]


def test_several_are_left_out_one_after_another_until_the_rest_fits() -> None:
    admissions = Admissions()
    _feed(admissions, [_claim(1, 0.8), _claim(2, 0.6), _claim(3, 0.3)])
    assert set(admissions.refused) == {"2", "3"}


def test_a_short_excess_and_a_need_that_is_not_known_leave_nobody_out() -> None:
    admissions = Admissions()
    over, under = [_claim(1, 0.5), _claim(2, 0.5)], [_claim(1, 0.5), _claim(2, 0.2)]
    for second in range(20):
        admissions.feed(float(second), {0: over if second % 3 else under}, SETTINGS)
    _feed(admissions, [_claim(1, 1.0), _claim(2, None)])
    _feed(admissions, [_claim(1, 0.95), _claim(2, 0.02)])
    assert admissions.refused == {}


def test_a_process_alone_is_never_left_out() -> None:
    admissions = Admissions()
    _feed(admissions, [_claim(1, 1.0)])
    assert admissions.refused == {}


def test_off_lets_all_in_at_once() -> None:
    admissions = Admissions()
    claims = [_claim(1, 0.6), _claim(2, 0.6)]
    now = _feed(admissions, claims)
    admissions.feed(now, {0: claims}, Admission(action="off"))
    assert admissions.refused == {}


def test_let_in_again_once_it_fits_with_room_and_its_time_is_over() -> None:
    admissions = Admissions()
    now = _feed(admissions, [_claim(1, 0.6), _claim(2, 0.6)])
    lighter = [_claim(1, 0.3), _claim(2, 0.5)]
    _feed(admissions, lighter, now, 5)
    assert list(admissions.refused) == ["2"]  # too early
    _feed(admissions, [_claim(1, 0.38), _claim(2, 0.5)], now + 40, 5)
    assert list(admissions.refused) == ["2"]  # 88 %: no room to spare
    _feed(admissions, lighter, now + 50, 1)
    assert admissions.refused == {}


def test_each_refusal_lasts_twice_as_long() -> None:
    admissions, now, lengths = Admissions(), 0.0, []
    heavy, light = [_claim(1, 0.6), _claim(2, 0.6)], [_claim(1, 0.1), _claim(2, 0.1)]
    for _ in range(8):
        now = _feed(admissions, heavy, now, 4)
        began = now
        while admissions.refused:
            admissions.feed(now, {0: light}, SETTINGS)
            now += 1.0
        lengths.append(now - began)
    assert lengths == sorted(lengths)
    assert lengths[1] == pytest.approx(2 * lengths[0], rel=0.1)
    assert lengths[-1] == pytest.approx(32 * 30, rel=0.1)


def test_while_it_is_out_its_need_is_what_its_bursts_were() -> None:
    """Without the GPU its bursts take longer: it would never fit by their present length."""
    admissions = Admissions()
    now = _feed(admissions, [_claim(1, 0.6), _claim(2, 0.6)])
    slow = Claim("2", need=1.0, bursts=20, burst_us=50_000.0, since=2.0)
    _feed(admissions, [_claim(1, 0.6), slow], now + 60, 1)
    assert admissions.refused == {}


def test_a_burst_without_end_is_not_nothing() -> None:
    admissions = Admissions()
    now = _feed(admissions, [_claim(1, 0.6), _claim(2, 0.6)])
    endless = Claim("2", need=0.6, bursts=0, burst_us=5_000.0, since=2.0)
    _feed(admissions, [_claim(1, 0.6), endless], now + 60, 3)
    assert list(admissions.refused) == ["2"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_in_the_end_those_inside_fit_or_one_is_alone(needs: list[float]) -> None:
    admissions = Admissions()
    claims = [_claim(pid, need) for pid, need in enumerate(needs, 1)]
    _feed(admissions, claims, seconds=25, settings=Admission(retry_s=3600.0))
    inside = [claim for claim in claims if claim.service not in admissions.refused]
    assert inside
    heavy = [claim for claim in inside if (claim.need or 0) > 0.05]
    assert len(heavy) <= 1 or sum(claim.need or 0 for claim in inside) <= SETTINGS.capacity
