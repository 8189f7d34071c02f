"""Whose value a knob has: pins over administrators over the tuner over the configuration, and leases that end."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.config import Config, Reservations
from gpsched.adaptive.errors import GpschedError, UsageError
from gpsched.adaptive.knobs import KNOBS, Knob, KnobValueError, Proposal, TuneParams, UnknownKnobError, knob
from gpsched.adaptive.settings import LiveSettings, PinsNotSavedError


TURN, SHARE, LEVEL = "reservations.turn_us", "reservations.be_share", "reservations.level"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def settings(tmp_path: Path, clock: Clock) -> LiveSettings:
    return LiveSettings(Config(), tmp_path, clock)


def word(lease_s: float = 10.0, gpu: int = 0, note: str | None = None, **values: object) -> TuneParams:
    known = {knob(name).name: value for name, value in values.items()}
    return TuneParams(pid=7, lease_s=lease_s, proposals=[Proposal(gpu=gpu, values=known, note=note)])  # type: ignore[arg-type]


def owner(settings: LiveSettings, name: str, gpu: int = 0) -> str:
    return next(each.owner for each in settings.view([gpu]).gpus[0].knobs if each.name == name)


def test_the_tuners_values_count_on_their_gpu_alone(settings: LiveSettings) -> None:
    settings.tune(word(turn_us=20_000, gpu=1, note="shorter turns"))
    assert settings.of(1).reservations.turn_us == 20_000
    assert settings.of(0) == settings.of(None) == Config()
    assert (settings.note(1), settings.note(0)) == ("shorter turns", None)
    assert (owner(settings, TURN, 1), owner(settings, TURN, 0)) == ("tuner", "default")


def test_without_a_word_the_values_go_back(settings: LiveSettings, clock: Clock) -> None:
    settings.tune(word(turn_us=20_000, lease_s=5.0))
    clock.now += 4.0
    assert not settings.expire()
    settings.tune(word(turn_us=20_000, lease_s=5.0))
    clock.now += 4.0
    assert not settings.expire()
    clock.now += 2.0
    assert settings.expire()
    assert settings.of(0) == Config()
    assert settings.view([0]).tuner_pid is None
    assert not settings.expire()


def test_only_the_tuner_that_is_gone_is_released(settings: LiveSettings) -> None:
    settings.tune(word(turn_us=20_000))
    assert not settings.release(8)
    assert settings.release(7)
    assert settings.of(0) == Config()


def test_a_pin_wins_and_outlives_the_daemon(settings: LiveSettings, tmp_path: Path) -> None:
    settings.tune(word(turn_us=20_000, be_share=0.5))
    settings.pin("turn_us", 100_000)
    assert settings.of(0).reservations.turn_us == 100_000
    settings.tune(word(turn_us=30_000, be_share=0.5))
    assert settings.of(0).reservations.turn_us == 100_000
    assert settings.of(0).reservations.be_share == 0.5
    assert owner(settings, TURN) == "pin"
    later = LiveSettings(Config(), tmp_path)
    assert later.of(3).reservations.turn_us == 100_000
    assert later.unpin(TURN)
    assert not later.unpin(TURN)
    assert LiveSettings(Config(), tmp_path).of(0) == Config()


def test_what_an_administrator_sets_is_closed_until_it_is_unpinned(settings: LiveSettings) -> None:
    settings.tune(word(turn_us=20_000))
    settings.admin_set({"reservations": {"turn_us": 80_000, "limit_us": 5}})
    assert settings.of(0).reservations.turn_us == 80_000
    assert owner(settings, TURN) == "admin"
    settings.tune(word(turn_us=20_000))
    assert settings.of(0).reservations.turn_us == 80_000
    assert settings.unpin(TURN)
    settings.tune(word(turn_us=20_000))
    assert settings.of(0).reservations.turn_us == 20_000


def test_a_reload_closes_what_it_changed_and_opens_the_rest(settings: LiveSettings) -> None:
    settings.admin_set({"timeslice": {"be_us": 50}})
    settings.reload(Config(reservations=Reservations(turn_us=70_000)))
    assert (owner(settings, TURN), owner(settings, "timeslice.be_us")) == ("admin", "admin")  # both have changed
    settings.reload(Config(reservations=Reservations(turn_us=70_000)))
    assert (owner(settings, TURN), owner(settings, "timeslice.be_us")) == ("default", "default")


def test_the_floor_bounds_the_share(settings: LiveSettings) -> None:
    settings.tune(word(be_share=0.05))
    assert settings.of(0).reservations.be_share == Config().reservations.be_floor


def test_reset_drops_the_values_and_is_told(settings: LiveSettings) -> None:
    settings.tune(word(turn_us=20_000))
    settings.reset()
    assert settings.of(0) == Config()
    assert settings.view([]).epoch == 1


@pytest.mark.parametrize(
    ("params", "error"),
    [
        (word(turn_us=1), KnobValueError),
        (TuneParams(pid=1, lease_s=10, proposals=[Proposal(gpu=0, values={"x.y": 1})]), UnknownKnobError),
        (word(lease_s=0.1), UsageError),
        (word(lease_s=1e9), UsageError),
    ],
)
def test_a_wrong_word_changes_nothing(settings: LiveSettings, params: TuneParams, error: type[GpschedError]) -> None:
    settings.tune(word(turn_us=20_000))
    with pytest.raises(error):
        settings.tune(params)
    assert settings.of(0).reservations.turn_us == 20_000


def test_pins_that_cannot_be_kept_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = LiveSettings(Config(), tmp_path / "file")
    with pytest.raises(PinsNotSavedError):
        settings.pin(TURN, 60_000)
    assert settings.of(0) == Config()


@pytest.mark.parametrize("content", ["", "{", '{"a.b": 1}', '{"reservations.turn_us": 1}', '{"reservations.level": 5}'])
def test_pins_that_make_no_sense_are_left_out(tmp_path: Path, content: str) -> None:
    (tmp_path / "pins.json").write_text(content)
    assert LiveSettings(Config(), tmp_path).of(0) == Config()


@pytest.mark.parametrize("known", KNOBS.values(), ids=list(KNOBS))
def test_every_knob_is_a_key_of_the_configuration_within_its_bounds(known: Knob, tmp_path: Path) -> None:
    """Both ends and the gentle value must be accepted by the configuration, and the default by the knob."""
    default = getattr(getattr(Config(), known.section), known.key)
    assert known.checked(default) == default
    for value in known.choices or (known.low, known.high, known.gentle):
        settings = LiveSettings(Config(reservations=Reservations(be_floor=0.0)))
        settings.pin(known.name, value)
        assert getattr(getattr(settings.of(0), known.section), known.key) == value


@given(st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=5)))
def test_no_value_passes_that_the_configuration_refuses(value: object) -> None:
    for name in KNOBS:
        settings = LiveSettings(Config())
        try:
            settings.pin(name, value)  # type: ignore[arg-type]
        except KnobValueError:
            assert settings.of(0) == Config()


def test_a_knob_has_a_short_name() -> None:
    assert knob("turn_us").name == TURN
    with pytest.raises(UnknownKnobError, match="turn_us"):
        knob("turns")
    assert knob(LEVEL).choices[0] == "timeslice"
    assert knob(SHARE).range_ == "0.05 to 1"
