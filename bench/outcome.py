"""The result of a benchmark as JSON: schema ``gpsched.bench/1``. Times are µs on the GPU's clock."""

from pathlib import Path

import msgspec

from gpsched.adaptive.calibration.model import Calibration
from gpsched.adaptive.errors import ConfigError
from gpsched.bench.messages import End
from gpsched.bench.result import Host
from gpsched.bench.scenario import Scenario
from gpsched.bench.stats import Interval, Ratio, Summary


SCHEMA = "gpsched.bench/1"


class LcRun(msgspec.Struct, frozen=True, kw_only=True):
    """What each request to one service took in one block, in the order they were sent.

    ``latency_us`` counts from sending, ``scheduled_us`` from when the request was due.
    """

    latency_us: list[float]
    scheduled_us: list[float]


class BeRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one job completed in one block."""

    units: int
    time_us: float
    largest_gap_us: float


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of one arm; an element a service or job, in the scenario's order.

    ``daemon_cpu``: share of one core that the daemon and the actuator used; ``switches``: of the GPU between programs.
    """

    lc: list[LcRun]
    be: list[BeRun]
    real_s: float
    daemon_cpu: float | None = None
    switches: int | None = None


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """What the reservations for one service did during an arm.

    ``early`` of ``bursts`` were reserved at least 200 µs before their first launch (a count, interpolated where time is
    stretched); ``allowed_early`` of the ``allowed`` bursts, whose lead was long enough for that; ``in_vain``:
    reservations that no launch followed.
    """

    reservations: int
    hidden_us: float
    wasted_us: float
    bursts: int = 0
    early: float = 0.0
    allowed: int = 0
    allowed_early: float = 0.0
    in_vain: int = 0


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """How well the bursts of one service were foreseen in an arm; shares are None where nothing was reserved.

    ``trigger`` is the best in force at the end, ``lead_us`` (p1, p50, p99) the time from it to the first launch,
    ``learned_after`` the bursts until there was one. The shares: of bursts that were reserved at least 200 µs before
    their first launch (a hold from its own launch on), of the bursts whose lead allowed that, of those that were among
    these, of reservations that no launch followed, of GPU time that was
    reserved and idle. ``reacted_us`` (p50, p99): from when a reservation was due, which is its trigger's event where it
    is to begin at once, to the actuator's first control; real µs, of the last 1,000.
    """

    trigger: str | None
    lead_us: dict[str, float]
    learned_after: int | None
    early_share: float | None
    in_vain_share: float | None
    wasted_share: float | None
    allowed_share: float | None = None
    allowed_early_share: float | None = None
    reacted_us: dict[str, float] = {}


class LcFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One service in one arm. ``mean_over_alone``, ``p99_over_alone``: against the arm ``resident``.

    ``kept_up``: share of the asked rate at which requests were answered.
    """

    name: str
    latency: Summary
    scheduled: Summary
    slo_us: float | None = None
    slo_misses: int | None = None
    mean_over_alone: Ratio | None = None
    p99_over_alone: Ratio | None = None
    reserved: Reserved | None = None
    kept_up: float = 1.0
    hints: Hints | None = None


class BeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One job in one arm. ``over_native``: rate against the driver's default, ``over_alone``: against itself alone.

    ``share``: of the GPU that it should get, where the scenario is about shares.
    """

    name: str
    per_s: float
    per_s_interval: Interval
    largest_gap_us: float
    over_native: float | None = None
    over_alone: float | None = None
    share: float | None = None


class ArmResult(msgspec.Struct, frozen=True, kw_only=True):
    """All blocks of one arm at one point, and their figures. ``levels``: what the daemon said of each program."""

    arm: str
    title: str
    lc: list[LcFigures]
    be: list[BeFigures]
    blocks: list[Block]
    daemon_cpu: float | None = None
    switches_per_s: float | None = None
    levels: dict[str, str] = {}
    lost_events: int = 0
    failed_controls: int = 0


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """An arm that was asked for and did not run, and why."""

    arm: str
    reason: str


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the sweep (None without one). ``rates``: requests a second of each service."""

    value: float | None
    rates: list[float]
    arms: list[ArmResult]
    skipped: list[Skipped]
    checks: dict[str, End]

    @property
    def ok(self) -> bool:
        """True when the state of every program was what its kernels make of it."""
        return all(check.ok for check in self.checks.values())

    def arm(self, name: str) -> ArmResult | None:
        """The arm of this name, if it ran."""
        return next((arm for arm in self.arms if arm.arm == name), None)


class ScenarioResult(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario. ``commands``: of each program as it was started at the first point; ``scale``: real µs per µs.

    ``error``: what ended it early; the points before are there.
    """

    name: str
    scenario: Scenario
    scale: float
    seconds: float
    commands: dict[str, list[str]]
    notes: list[str]
    points: list[Point]
    error: str | None = None


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the benchmark, with every latency. ``calibration``: what the daemons reckoned with."""

    schema: str = SCHEMA
    host: Host
    command: list[str]
    rounds: int
    scenarios: list[ScenarioResult]
    calibration: Calibration | None = None

    @property
    def ok(self) -> bool:
        """True when every scenario ran to its end and no program's state was corrupted."""
        return all(scenario.error is None for scenario in self.scenarios) and all(
            point.ok for scenario in self.scenarios for point in scenario.points
        )


def write(result: BenchResult, path: Path) -> None:
    """Write a result as JSON."""
    path.write_bytes(msgspec.json.encode(result) + b"\n")


def read(path: Path) -> BenchResult:
    """Read a result; raises ``ConfigError`` for a file that is none, or of another version."""
    try:
        data = path.read_bytes()
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != SCHEMA:
            raise ConfigError(str(path), "schema", f"is {schema!r}, this gpsched reads {SCHEMA!r}")
        return msgspec.json.decode(data, type=BenchResult)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(str(path), "", f"not a result of gpsched bench run: {error}") from error


class _Head(msgspec.Struct):
    schema: str
