"""The configuration file: TOML, every key known, every value checked.

Precedence: ``config.d/*.toml`` in name order over ``config.toml`` over the defaults below. Rules of all files add up.
"""

import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gpsched.adaptive.errors import ConfigError, UsageError
from gpsched.adaptive.units import parse_duration


Microseconds = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Classifies a process that opens the driver; all given patterns must match.

    ``exe`` and ``cgroup`` are shell patterns, ``command`` a regular expression searched in the command line, ``user``
    and ``container`` names, ``env`` maps variables of the process to shell patterns.
    """

    name: str = ""
    class_: Literal["lc", "be", "unmanaged"] = msgspec.field(name="class")
    exe: str | None = None
    command: str | None = None
    user: str | None = None
    cgroup: str | None = None
    container: str | None = None
    env: dict[str, str] = {}
    tenant: str | None = None
    slo: str | None = None

    @property
    def slo_us(self) -> float | None:
        """The latency objective in µs."""
        return parse_duration(self.slo) if self.slo else None


class Timeslice(msgspec.Struct, frozen=True, kw_only=True):
    """Slices at level ``timeslice`` (facts: 1 µs for BE and 1 s for LC cost the LC 190 µs a switch)."""

    lc_us: Microseconds = 1_000_000
    be_us: Microseconds = 1


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings."""

    timeslice: Timeslice = Timeslice()
    rule: list[Rule] = []


def load(path: Path, directory: Path | None = None, *, required: bool = False) -> Config:
    """Read ``path`` and ``directory/*.toml``; a missing file means defaults unless ``required``.

    Raises ``ConfigError`` naming the file, the key and, for an unknown key, the nearest known one.
    """
    if required and not path.exists():
        raise ConfigError(str(path), "", "no such file")
    files = [path] if path.exists() else []
    files += sorted(directory.glob("*.toml")) if directory and directory.is_dir() else []
    config = Config()
    for file in files:
        config = _merge(config, _read(file))
    return config


def _read(path: Path) -> tuple[dict[str, Any], Config]:
    try:
        raw = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(str(path), "", str(error)) from error
    _check_keys(path, raw, Config, "")
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at ")
        raise ConfigError(str(path), where.strip("`$."), reason) from error
    for number, rule in enumerate(config.rule):
        _check_rule(path, f"rule[{number}]", rule)
    return raw, config


def _merge(base: Config, read: tuple[dict[str, Any], Config]) -> Config:
    raw, new = read
    slices = {key: getattr(new.timeslice, key) for key in raw.get("timeslice", {})}
    return Config(timeslice=msgspec.structs.replace(base.timeslice, **slices), rule=base.rule + new.rule)


def _check_rule(path: Path, key: str, rule: Rule) -> None:
    patterns = (rule.exe, rule.command, rule.user, rule.cgroup, rule.container, rule.env)
    if not any(patterns):
        raise ConfigError(str(path), key, "matches every process; give exe, command, user, cgroup, container or env")
    try:
        _ = rule.slo_us
    except UsageError as error:
        raise ConfigError(str(path), f"{key}.slo", str(error)) from error
    if rule.command is not None:
        try:
            re.compile(rule.command)
        except re.error as error:
            raise ConfigError(str(path), f"{key}.command", f"not a regular expression: {error}") from error


def _check_keys(path: Path, raw: dict[str, Any], struct: type[msgspec.Struct], prefix: str) -> None:
    """Unknown keys are found before types, so that a misspelt key is named with its nearest neighbour."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for key, value in raw.items():
        if key not in fields:
            nearest = difflib.get_close_matches(key, fields, n=1, cutoff=0.0)
            raise ConfigError(str(path), prefix + key, f"unknown key; did you mean {nearest[0]!r}?")
        if fields[key] is Timeslice and isinstance(value, dict):
            _check_keys(path, value, Timeslice, f"{prefix}{key}.")
        if key == "rule" and isinstance(value, list):
            for number, rule in enumerate(value):
                if isinstance(rule, dict):
                    _check_keys(path, rule, Rule, f"rule[{number}].")
