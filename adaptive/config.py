"""The configuration file: TOML, every key known, every value checked.

Precedence: ``config.d/*.toml`` in name order over ``config.toml`` over the defaults below. Rules of all files add up.
"""

import difflib
import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from gpsched.adaptive.errors import ConfigError, UsageError
from gpsched.adaptive.units import parse_duration


_BARE = re.compile(r"[\w-]+", re.ASCII)  # a key that TOML needs no quotes for
_LISTEN = re.compile(r"|(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}")
_PATTERNS = ("exe", "command", "user", "cgroup", "container", "slurm_qos", "pod", "pod_labels", "env")
Microseconds = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Weight = Annotated[float, msgspec.Meta(gt=0.0, le=1000.0)]
Priority = Annotated[int, msgspec.Meta(ge=-1000, le=1000)]
Order = Literal["deadline", "laxity", "priority", "share"]
ORDERS: tuple[Order, ...] = ("deadline", "laxity", "priority", "share")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Classifies a process that opens the driver; all given patterns must match.

    ``exe``, ``cgroup``, ``slurm_qos`` and ``pod`` (NAMESPACE/NAME) are shell patterns, ``command`` a regular expression
    searched in the command line, ``user`` a name, ``container`` an id or a shell pattern of its name; ``pod_labels``
    and ``env`` map labels of the pod and variables of the process to shell patterns. ``priority`` (higher goes first)
    and ``weight`` count among several of a class on one GPU.
    """

    name: str = ""
    class_: Literal["lc", "be", "unmanaged"] = msgspec.field(name="class")
    exe: str | None = None
    command: str | None = None
    user: str | None = None
    cgroup: str | None = None
    container: str | None = None
    slurm_qos: str | None = None
    pod: str | None = None
    pod_labels: dict[str, str] = {}
    env: dict[str, str] = {}
    tenant: str | None = None
    slo: str | None = None
    priority: Priority = 0
    weight: Weight = 1.0

    @property
    def slo_us(self) -> float | None:
        """The latency objective in µs."""
        return parse_duration(self.slo) if self.slo else None


class Timeslice(msgspec.Struct, frozen=True, kw_only=True):
    """Slices at level ``timeslice`` (facts: 1 µs for BE and 1 s for LC cost the LC 190 µs a switch)."""

    lc_us: Microseconds = 1_000_000
    be_us: Microseconds = 1


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """Taking the GPU from best-effort work for a burst, and turns of several best-effort processes.

    ``level``           the highest level to use; ``auto`` takes what serves each process best. ``freeze`` asks nothing
                        of the driver: all best-effort processes are stopped during bursts
    ``limit_us``        no reservation lasts longer
    ``be_floor``        share of the time that best-effort work keeps, whatever latency-critical processes ask for
    ``break_us``        how long a service that never rests is kept off at a time, for that share
    ``turn_us``         how long each of two best-effort processes of equal weight has the GPU in turn; more of them
                        have shorter turns
    ``turns``           whether several best-effort processes take turns, or (``never``) run together in short slices;
                        those of different weights always take turns
    ``alone_turn_us``   the same while no latency-critical process is there: each change of turns costs about 0.5 ms
    ``offset_shift_us``  how much later than learned a reservation begins; negative: earlier
    ``quiet_extra_us``  how much longer than learned the GPU is kept after a burst, for the next
    ``be_share``        share of the time outside reservations that is open to best-effort work
    ``waste_budget``    largest share of GPU time that may be reserved and idle
    ``lc_budget``       largest share of the time that one process may keep reserved, or else it loses its reservations
    ``max_per_second``  reservations of one process; more are ignored and counted, and it loses its reservations
    """

    level: Literal["auto", "freeze", "timeslice", "reserve", "hold"] = "auto"
    limit_us: Microseconds = 100_000
    be_floor: Share = 0.1
    break_us: Annotated[int, msgspec.Meta(ge=2_000, le=1_000_000)] = 10_000
    turn_us: Annotated[int, msgspec.Meta(ge=5_000, le=1_000_000)] = 50_000
    turns: Literal["always", "never"] = "always"
    alone_turn_us: Annotated[int, msgspec.Meta(ge=5_000, le=1_000_000)] = 100_000
    offset_shift_us: Annotated[int, msgspec.Meta(ge=-100_000, le=100_000)] = 0
    quiet_extra_us: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    be_share: Annotated[float, msgspec.Meta(ge=0.05, le=1.0)] = 1.0
    waste_budget: Share = 0.01
    lc_budget: Share = 0.8
    max_per_second: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Several latency-critical processes on one GPU.

    ``order``      who goes first: ``deadline`` the earliest (arrival plus objective), ``laxity`` the least to spare
                   (the same less the length of its bursts), ``priority`` the highest; or ``share``: time by weight
    ``behind_us``  slice of those that are not first: how long the driver lets one hold up who goes before it
    ``period_us``  with ``share``: the slices of all together
    """

    order: Order = "deadline"
    behind_us: Microseconds = 1_000
    period_us: Microseconds = 8_000


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """When the latency-critical processes of one GPU need more of it than there is.

    ``action``    what the last in order becomes: ``observe`` (watched, with its own slices), ``be`` (best-effort for
                  the time being), or ``off`` to let all in
    ``capacity``  share of the GPU that they may need together
    ``quantile``  of each one's GPU time per second that counts as its need
    ``retry_s``   how long it stays out at least; doubles each time, up to 32 times
    """

    action: Literal["observe", "be", "off"] = "observe"
    capacity: Share = 0.9
    quantile: Share = 0.9
    retry_s: Annotated[float, msgspec.Meta(ge=1.0, le=3600.0)] = 30.0


class Tuner(msgspec.Struct, frozen=True, kw_only=True):
    """The process that tunes the settings while work runs (docs/tuner.md).

    ``enabled``     whether the daemon starts it
    ``window_s``    how long settings are measured
    ``guarantees``  tenants whose best-effort work keeps this share of the time, whatever is forecast
    """

    enabled: bool = False
    window_s: Annotated[float, msgspec.Meta(ge=1.0, le=5.0)] = 2.0
    guarantees: dict[str, Share] = {}


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Where metrics go: ``listen`` is ADDRESS:PORT for Prometheus, ``textfile`` for node_exporter; both off."""

    listen: str = ""
    textfile: str = ""
    textfile_every_s: Annotated[float, msgspec.Meta(ge=1.0, le=3600.0)] = 15.0

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of ``listen``; None when off."""
        host, _, port = self.listen.rpartition(":")
        return (host.strip("[]"), int(port)) if self.listen else None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings: sections, whose keys later files override one by one, and lists, which add up.

    ``tenants`` maps tenants to their weights; best-effort processes get GPU time in proportion, 1 where none is named.
    """

    timeslice: Timeslice = Timeslice()
    reservations: Reservations = Reservations()
    policy: Policy = Policy()
    admission: Admission = Admission()
    tenants: dict[str, Weight] = {}
    metrics: Metrics = Metrics()
    tuner: Tuner = Tuner()
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


def overlay(config: Config, changes: dict[str, dict[str, Any]]) -> Config:
    """Return the settings with some keys of some sections changed; raise ``ConfigError`` as ``load`` does."""
    for section, value in changes.items():
        if section in Config.__struct_fields__ and isinstance(getattr(config, section), list):
            raise ConfigError("policy", section, "is a list; change it in the configuration file, and reload")
        if not isinstance(value, dict):
            raise ConfigError("policy", section, "is a section; give SECTION.KEY")
    merged = {name: value for name, value in msgspec.to_builtins(config).items() if name in changes}
    for section, keys in changes.items():
        merged[section] = merged.get(section, {}) | keys
    checked = _checked(Path("policy"), merged)
    return msgspec.structs.replace(config, **{section: getattr(checked, section) for section in changes})


def _read(path: Path) -> tuple[dict[str, Any], Config]:
    try:
        raw = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(str(path), "", str(error)) from error
    return raw, _checked(path, raw)


def _checked(path: Path, raw: dict[str, Any]) -> Config:
    _check_keys(path, raw, Config, "")
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at ")
        raise ConfigError(str(path), where.strip("`$."), reason) from error
    if not _LISTEN.fullmatch(config.metrics.listen):
        raise ConfigError(str(path), "metrics.listen", f"{config.metrics.listen!r} is not ADDRESS:PORT")
    for number, rule in enumerate(config.rule):
        _check_rule(path, f"rule[{number}]", rule)
    return config


def _merge(base: Config, read: tuple[dict[str, Any], Config]) -> Config:
    raw, new = read
    merged: dict[str, Any] = {}
    for name in Config.__struct_fields__:
        old, given = getattr(base, name), getattr(new, name)
        if isinstance(old, list):
            merged[name] = old + given
        elif isinstance(old, dict):
            merged[name] = old | given
        else:
            changes = {key: getattr(given, key) for key in raw.get(name, {})}
            merged[name] = msgspec.structs.replace(old, **changes)
    return Config(**merged)


def _check_rule(path: Path, key: str, rule: Rule) -> None:
    if not any(getattr(rule, pattern) for pattern in _PATTERNS):
        raise ConfigError(str(path), key, f"matches every process; give one of {', '.join(_PATTERNS)}")
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
        section = fields[key]
        if isinstance(section, type) and issubclass(section, msgspec.Struct) and isinstance(value, dict):
            _check_keys(path, value, section, f"{prefix}{key}.")
        if get_origin(section) is dict and isinstance(value, dict):
            _check_entries(path, value, get_args(section)[1], f"{prefix}{key}.")
        if key == "rule" and isinstance(value, list):
            for number, rule in enumerate(value):
                if isinstance(rule, dict):
                    _check_keys(path, rule, Rule, f"rule[{number}].")


def _check_entries(path: Path, table: dict[str, Any], type_: Any, prefix: str) -> None:
    """A table whose keys are names of the user's: msgspec says that an entry is wrong, but not which."""
    for name, value in table.items():
        try:
            msgspec.convert(value, type_)
        except msgspec.ValidationError as error:
            key = name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
            raise ConfigError(str(path), prefix + key, str(error)) from error
