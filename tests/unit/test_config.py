"""The configuration file: every mistake names file, key and remedy."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import msgspec
import pytest

from gpsched.adaptive.config import Config, load, overlay
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
        ("[tenants]\na = 1\nb = -1\n", "tenants.b", "> 0.0"),
        ('[tenants]\na = 1\n"team b.c" = -1\n', 'tenants."team b.c"', "> 0.0"),
        ("[tuner.guarantees]\na = 0.1\nb = 1.5\n", "tuner.guarantees.b", "<= 1.0"),
        ('[[rule]]\nclass = "lc"\nenv = { ROLE = "api", PORT = 80 }\n', "rule[0].env.PORT", "Expected `str`"),
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


def _tables(struct: type[msgspec.Struct], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where the configuration has tables whose keys are names of the user's."""
    for field in msgspec.structs.fields(struct):
        here = (*path, field.encode_name)
        inner = get_args(field.type)[0] if get_origin(field.type) is list else field.type
        if get_origin(field.type) is dict:
            yield here
        elif isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from _tables(inner, here)


@pytest.mark.parametrize("path", list(_tables(Config)), ids=".".join)
def test_a_wrong_entry_of_any_table_is_named(tmp_path: Path, path: tuple[str, ...]) -> None:
    key = ".".join((*path, "somebody"))
    rule = path[0] == "rule"
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, f"[[rule]]\n{key.removeprefix('rule.')} = []\n" if rule else f"{key} = []\n")
    assert caught.value.key == (key.replace("rule.", "rule[0].") if rule else key)


def test_a_wrong_weight_given_for_now_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        overlay(Config(), {"tenants": {"a": 1, "b": 0}})
    assert caught.value.key == "tenants.b"
