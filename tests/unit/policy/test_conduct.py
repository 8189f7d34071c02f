"""Who reserves too much loses its reservations until it behaves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsched.adaptive.config import Reservations
from gpsched.adaptive.policy.conduct import Conduct


SETTINGS = Reservations()


class Trial:
    """One process, second by second."""

    def __init__(self) -> None:
        self.conduct, self.now = Conduct(), 0.0

    def second(self, reserved: float = 0.0, idle: float = 0.0, asked: int = 10, used: float = 0.0) -> bool:
        """Return whether it has lost its reservations then."""
        self.conduct.asked(1, asked)
        if 1 not in self.conduct.suspended:
            self.conduct.reserved(1, reserved * 1e6, idle * 1e6)
        self.now += 1.0
        self.conduct.close(self.now, 1.0, {1: used}, SETTINGS)
        return 1 in self.conduct.suspended

    def seconds(self, count: int, **what: float) -> list[bool]:
        return [self.second(**what) for _ in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"reserved": 0.9, "used": 0.9}, "kept the GPU for 90% of the time, more than reservations.lc_budget = 0.8"),
        ({"asked": 5_000}, "asked for 5000 a second, more than reservations.max_per_second = 2000"),
        ({"reserved": 0.5, "idle": 0.3}, "left the GPU idle for 30% of the time, reserved for nothing"),
    ],
)
def test_too_much_is_too_much_after_two_seconds(what: dict[str, float], message: str) -> None:
    trial = Trial()
    assert trial.seconds(2, **what) == [False, True]
    assert trial.conduct.suspended[1] == f"has no reservations: it {message}; again once it behaves for 10 s"


def test_within_the_bounds_nothing_happens() -> None:
    assert not any(Trial().seconds(100, reserved=0.79, idle=0.05, asked=1_900, used=0.8))


def test_one_bad_second_is_forgiven() -> None:
    trial = Trial()
    assert not any(trial.second(reserved=1.0) or trial.second(reserved=0.1) for _ in range(20))


def test_it_has_to_behave_for_the_whole_probation() -> None:
    trial = Trial()
    trial.seconds(2, asked=5_000)
    trial.seconds(8, asked=10)
    assert trial.second(asked=5_000)  # begins anew
    assert trial.seconds(9, asked=10)[-1]
    assert not trial.seconds(2, asked=10)[-1]


def test_gpus_are_judged_apart() -> None:
    trial = Trial()
    for _ in range(5):
        for gpu in range(3):
            trial.conduct.reserved(1, 0.5e6, 0.0, gpu)
        assert not trial.second()


def test_without_reservations_its_bursts_tell() -> None:
    trial = Trial()
    trial.seconds(2, reserved=0.95, used=0.95)
    assert all(trial.seconds(60, used=0.95))
    assert not trial.seconds(40, used=0.2)[-1]


def test_the_probation_grows_and_is_forgotten_in_time() -> None:
    trial, lengths = Trial(), []
    for _ in range(3):
        trial.seconds(2, asked=5_000)
        count = 1
        while trial.second():
            count += 1
        lengths.append(count)
    assert lengths == [10, 20, 40]
    trial.seconds(200)
    trial.seconds(2, asked=5_000)
    assert "for 10 s" in trial.conduct.suspended[1]


def test_forgotten_is_forgotten() -> None:
    trial = Trial()
    trial.seconds(2, asked=5_000)
    trial.conduct.forget(1)
    assert trial.conduct.suspended == {}


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 50)), max_size=100))
def test_good_conduct_always_ends_it(seconds: list[tuple[float, float, int]]) -> None:
    trial = Trial()
    for reserved, used, asked in seconds:
        trial.second(reserved=reserved, asked=100 * asked, used=used)
    assert not trial.seconds(1_400)[-1]
