"""Scenarios as data: which services and jobs share the GPU, at which load. One TOML file each in ``scenarios/``.

Times are µs unless the name says otherwise, rates per second, all on the GPU's clock.
"""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gpsched.adaptive.errors import ConfigError, UsageError
from gpsched.adaptive.units import DurationError, parse_duration
from gpsched.bench import toml


FOLDER = Path(__file__).parent / "scenarios"

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1, le=64)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Arrival = Literal["constant", "poisson", "bursty", "jitter"]


class Lc(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A latency-critical service. Its load: ``rate``, ``load`` (share of its measured peak) or ``trace`` (a service's
    name in the scenario's trace file). Its work: a ``model``, or ``kernels`` of ``kernel_us``.

    ``steps`` > 1: that many bursts a request, ``step_gap_us`` of host work apart (token by token decoding).
    """

    name: str | None = None
    model: str | None = None
    kernels: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 20
    kernel_us: Positive = 8.0
    count: Count = 1
    rate: Positive | None = None
    load: Share | None = None
    trace: str | None = None
    arrival: Arrival = "constant"
    prep_us: NotNegative = 200.0
    mode: Literal["graph", "eager"] = "graph"
    gap_us: NotNegative = 0.0
    steps: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    step_gap_us: NotNegative = 0.0
    protocol: Literal["tcp", "http"] = "tcp"
    connections: Count = 1
    slo: str | None = None

    def __post_init__(self) -> None:
        if sum(load is not None for load in (self.rate, self.load, self.trace)) != 1:
            raise ValueError("give exactly one of rate, load and trace")
        try:
            _ = self.slo_us
        except DurationError as error:
            raise ValueError(str(error)) from error

    @property
    def slo_us(self) -> float | None:
        """The latency objective."""
        return parse_duration(self.slo) if self.slo else None


class Be(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A best-effort job: units of a ``model``, or kernels of ``kernel_us``, at ``rate`` or as fast as they go.

    ``share``: of the GPU that it should get, where the scenario is about shares.
    """

    name: str | None = None
    model: str | None = None
    kernel_us: Positive = 400.0
    queue: Count = 8
    count: Count = 1
    rate: Positive | None = None
    share: Share | None = None


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """Repeat the scenario with ``field`` (``lc.KEY`` or ``be.KEY``) of every entry set to each value in turn."""

    field: str
    values: list[float | int]

    def __post_init__(self) -> None:
        side, _, key = self.field.partition(".")
        known = [*(f"lc.{name}" for name in Lc.__struct_fields__), *(f"be.{name}" for name in Be.__struct_fields__)]
        if side not in ("lc", "be") or self.field not in known:
            nearest = difflib.get_close_matches(self.field, known, n=1, cutoff=0.0)[0]
            raise ValueError(f"no field {self.field!r} to sweep; did you mean {nearest!r}?")
        if not self.values or not key:
            raise ValueError("no values to sweep over")


class Scenario(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file. ``seconds`` of each arm and point on the GPU's clock; ``trace``: CSV of service,arrival_ms."""

    title: str
    source: str = ""
    note: str = ""
    seconds: Positive = 60.0
    trace: str | None = None
    lc: list[Lc] = []
    be: list[Be] = []
    sweep: Sweep | None = None

    def __post_init__(self) -> None:
        if not self.lc and not self.be:
            raise ValueError("no [[lc]] and no [[be]]: nothing to run")
        if self.trace is None and any(lc.trace for lc in self.lc):
            raise ValueError("lc.trace needs the scenario's trace = FILE")

    def entries(self) -> list[Lc | Be]:
        """All services and jobs."""
        return [*self.lc, *self.be]

    def points(self) -> Iterator[tuple[float | None, "Scenario"]]:
        """Return each value of the sweep with the scenario it stands for; without a sweep (None, itself)."""
        if self.sweep is None:
            yield None, self
            return
        side, _, key = self.sweep.field.partition(".")
        for value in self.sweep.values:
            entries = [_with(entry, key, value) for entry in getattr(self, side)]
            yield float(value), msgspec.structs.replace(self, sweep=None, **{side: entries})


def _with(entry: msgspec.Struct, key: str, value: float) -> msgspec.Struct:
    """Change one value and have the result checked as if it had been in the file; loads exclude each other."""
    raw = msgspec.to_builtins(entry)
    if key in ("rate", "load"):
        raw = {name: kept for name, kept in raw.items() if name not in ("rate", "load", "trace")}
    return msgspec.convert({**raw, key: value}, type(entry))


def names() -> list[str]:
    """Return the scenarios that come with gpsched."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name: str) -> tuple[str, Path]:
    """Return the name and file of a scenario: one that comes with gpsched, or a path of the user's own.

    Raises ``UsageError`` naming the nearest one.
    """
    path = Path(name)
    if path.suffix == ".toml":
        return path.stem, path
    if name in names():
        return name, FOLDER / f"{name}.toml"
    nearest = difflib.get_close_matches(name, names(), n=1, cutoff=0.0)
    raise UsageError(f"no scenario {name!r}; did you mean {nearest[0]!r}? See: gpsched bench list")


def load(name: str) -> Scenario:
    """Read a scenario; its trace is found beside the file.

    Raises ``UsageError`` (no such scenario) and ``ConfigError`` (a wrong key or value).
    """
    _, path = find(name)
    scenario = toml.load(path, Scenario)
    if scenario.trace is not None:
        scenario = msgspec.structs.replace(scenario, trace=str(path.parent / scenario.trace))
    try:
        list(scenario.points())
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(str(path), "sweep.values", str(error)) from error
    return scenario
