"""What a report says, before anybody formats it; also its JSON (schema ``gpsched.report/1``).

Times are seconds since the epoch, durations µs unless the name says otherwise, shares between 0 and 1. Progress is a
best-effort process' rate over its own rate alone on the GPU.
"""

import msgspec

from gpsched.tuner.model import Change, Objective, Point, Settings, Suggestion


SCHEMA = "gpsched.report/1"


class ServiceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One latency-critical program. ``windows`` are ``kept``, ``missed``, or too short of bursts to tell.

    ``value_us``: median over the windows of the statistic that the objective is about, ``worst_us`` its largest;
    ``levels`` and ``triggers``: share of the windows with each.
    """

    name: str
    program: str
    tenant: str
    objective: Objective
    windows: int
    kept: int
    missed: int
    bursts: int
    over: int
    rate_hz: float
    p50_us: float
    value_us: float
    worst_us: float
    alone_us: float | None
    levels: dict[str, float]
    triggers: dict[str, float]
    reservations: int
    hidden_us: float
    wasted_us: float


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """One best-effort program: mean rate (launches a second) and progress."""

    name: str
    program: str
    tenant: str
    weight: float
    windows: int
    rate_hz: float
    solo_hz: float | None
    progress: float | None


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """Mean progress of best-effort work with what the tuner set, and with the default settings, for the same work.

    ``tuned_missed``, ``default_missed``: share of those windows that missed an objective.
    """

    tuned: float
    default: float
    tuned_windows: int
    default_windows: int
    tuned_missed: float
    default_missed: float

    @property
    def ratio(self) -> float | None:
        """How much more best-effort work was done; None when there was none by default."""
        return self.tuned / self.default - 1.0 if self.default else None


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """Where the GPU's time went, as shares of it: to best-effort work, to services, and what neither had.

    ``idle_reserved``: kept for a service that did not compute; ``closed``: not open to best-effort work (be_share);
    ``rest``: switches between programs, and whatever nobody measured.
    """

    best_effort: float
    services: float
    idle_reserved: float
    closed: float
    rest: float


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A time without windows: the tuner did not run, or had nothing to look at."""

    start_s: float
    end_s: float


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """What is plotted over time, thinned out to a few hundred points.

    ``latency``: for each service the median and the largest of latency over limit in each point, None where it had no
    burst. ``settings``: in force at each point.
    """

    time_s: list[float]
    latency: dict[str, list[tuple[float, float] | None]]
    progress: list[float | None]
    settings: list[Settings]


class TradeOff(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned of the work that ran longest, at about its last load, and the settings in force last."""

    key: str
    points: list[Point]
    chosen: Settings | None


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. ``unlearned``: windows that taught the tuner nothing, by reason; ``phases``: seconds in each."""

    gpu: int
    model: str
    windows: int
    seconds: float
    kept: int
    missed: int
    phases: dict[str, float]
    unlearned: dict[str, int]
    services: list[ServiceReport]
    jobs: list[JobReport]
    losses: Losses | None
    gain: Gain | None
    changes: list[Change]
    gaps: list[Gap]
    suggestions: list[Suggestion]
    series: Series
    trade_off: TradeOff | None

    @property
    def judged(self) -> int:
        """Windows in which the objectives could be judged."""
        return self.kept + self.missed


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a stretch of time. ``source``: the history or record that it was made from."""

    schema: str = SCHEMA
    source: str
    made_s: float
    from_s: float
    to_s: float
    notes: list[str]
    gpus: list[GpuReport]
