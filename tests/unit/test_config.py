"""The configuration file: every mistake names file, key and remedy."""

from pathlib import Path

import pytest

from gpsched.adaptive.config import Config, load
from gpsched.adaptive.errors import ConfigError


def _load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return load(path)


def test_a_missing_file_means_defaults_unless_it_was_asked_for(tmp_path: Path) -> None:
    assert load(tmp_path / "none.toml") == Config()
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "none.toml", required=True)


def test_reads_rules_and_slices(tmp_path: Path) -> None:
    config = _load(
        tmp_path,
        """
        [timeslice]
        be_us = 50
        [[rule]]
        name = "api"
        class = "lc"
        exe = "*/serve"
        env = { ROLE = "api*" }
        slo = "5ms"
        """,
    )
    assert config.timeslice.be_us == 50
    assert config.timeslice.lc_us == 1_000_000
    assert config.rule[0].class_ == "lc"
    assert config.rule[0].slo_us == 5000


def test_later_files_override_keys_and_add_rules(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "10.toml").write_text('[timeslice]\nlc_us = 7\n[[rule]]\nclass = "be"\nuser = "b"\n')
    (tmp_path / "d" / "20.toml").write_text('[[rule]]\nclass = "be"\nuser = "c"\n')
    (tmp_path / "config.toml").write_text('[timeslice]\nbe_us = 9\n[[rule]]\nclass = "lc"\nuser = "a"\n')
    config = load(tmp_path / "config.toml", tmp_path / "d")
    assert (config.timeslice.lc_us, config.timeslice.be_us) == (7, 9)
    assert [rule.user for rule in config.rule] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("[timeslise]\n", "timeslise", "did you mean 'timeslice'"),
        ("[timeslice]\nbe = 1\n", "timeslice.be", "did you mean 'be_us'"),
        ("[timeslice]\nbe_us = 0\n", "timeslice.be_us", ">= 1"),
        ('[timeslice]\nbe_us = "1"\n', "timeslice.be_us", "Expected `int`"),
        ('[[rule]]\nclass = "LC"\nuser = "a"\n', "rule[0].class", "Invalid enum value"),
        ('[[rule]]\nclass = "lc"\nusr = "a"\n', "rule[0].usr", "did you mean 'user'"),
        ('[[rule]]\nclass = "lc"\n', "rule[0]", "matches every process"),
        ('[[rule]]\nuser = "a"\n', "rule[0]", "missing required field `class`"),
        ('[[rule]]\nclass = "lc"\nuser = "a"\nslo = "5"\n', "rule[0].slo", "not a duration"),
        ('[[rule]]\nclass = "lc"\ncommand = "("\n', "rule[0].command", "not a regular expression"),
        ("[reservations]\nlevel = 'holds'\n", "reservations.level", "Invalid enum value"),
        ("[reservations]\nbe_flor = 1\n", "reservations.be_flor", "did you mean 'be_floor'"),
        ("[reservations]\nbe_floor = 1.5\n", "reservations.be_floor", "<= 1.0"),
        ("timeslice = 3\n", "timeslice", "Expected `object`"),
        ("[[[", "", "config.toml"),
        ("\x00", "", "config.toml"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, key: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    assert caught.value.key == key
    assert message in str(caught.value)
    assert caught.value.exit_code == 2
