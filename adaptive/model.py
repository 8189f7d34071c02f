"""The one model behind ``list``, ``--json``, ``top``, records and metrics.

Times are µs unless the name says otherwise. The JSON schema is stable within its major version.
"""

from typing import Literal

import msgspec


SCHEMA = "gpsched.snapshot/1"

Class = Literal["lc", "be", "unmanaged"]
Level = Literal["observe", "freeze", "timeslice", "reserve", "hold", "module"]
Health = Literal["ok", "degraded", "missing"]
ATTACHABLE: tuple[Class, ...] = ("lc", "be")


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """One channel group: its handles, engine, and the timeslice it has, should have, and had."""

    client: int
    handle: int
    engine: str
    gpu: int | None
    channels: int
    timeslice_us: int | None = None
    intended_us: int | None = None
    original_us: int | None = None


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of durations: ``counts[i]`` up to ``bounds_us[i]`` and above the bound before; the last has no bound."""

    bounds_us: list[float]
    counts: list[int]
    sum_us: float


class HintsView(msgspec.Struct, frozen=True, kw_only=True):
    """What was learnt about a latency-critical process's bursts, and what the reservations did since the start.

    ``margin``: how long before its first launch each burst was reserved; ``unreserved`` bursts were not. ``allowed``,
    ``allowed_unreserved``: the same of the bursts whose lead allowed a reservation in time. ``in_vain``:
    reservations that no launch followed. ``reacted_us``: p50 and p99 of the last times from when a reservation was due
    to its first control.
    """

    state: str
    trigger: str | None = None
    lead_us: float | None = None
    bursts: int = 0
    reservations: int = 0
    hidden_us: float = 0.0
    wasted_us: float = 0.0
    margin: Histogram | None = None
    unreserved: int = 0
    allowed: Histogram | None = None
    allowed_unreserved: int = 0
    in_vain: int = 0
    reacted_us: dict[str, float] = {}


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the timeline: an LC's burst, a reservation, a BE's turn. Seconds since the epoch."""

    kind: Literal["burst", "reservation", "turn"]
    start_s: float
    end_s: float


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU process that gpsched knows."""

    pid: int
    name: str
    command: str
    user: str
    cgroup: str
    container: str | None
    slurm_job: int | None = None
    pod: str | None = None
    container_name: str | None = None
    class_: Class = msgspec.field(name="class")
    source: str
    tenant: str
    slo_us: float | None
    priority: int = 0
    weight: float = 1.0
    level: Level
    reason: str
    gpus: list[int]
    groups: list[GroupView]
    calls: dict[str, int]
    latency: Histogram | None = None
    recent_us: dict[str, float] = {}
    hidden: Histogram | None = None
    hints: HintsView | None = None
    gpu_share: float | None = None
    last_tuning: str | None = None
    spans: list[Span] = []

    @property
    def place(self) -> str:
        """The Slurm job, the pod or the container, as people name it; empty for none."""
        if self.slurm_job is not None:
            return f"Slurm job {self.slurm_job}"
        if self.pod:
            return f"pod {self.pod}"
        named = f"{self.container_name} ({self.container})" if self.container_name else self.container
        return f"container {named}" if named else ""


class GpuView(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML describes it; None where NVML does not say (the embedded GPU has no NVML)."""

    gpu: int
    name: str | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    busy_share: float | None = None
    engine_pid: int | None = None


class DaemonView(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon itself: what it watches and what it lost; ``order`` of several latency-critical ones on a GPU."""

    pid: int
    version: str
    uptime_s: float
    libraries: list[str]
    lost_events: int
    failed_controls: int
    last_failure: str | None
    health: Health = "ok"
    findings: list[str] = []
    config_error: str | None = None
    order: str = "deadline"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known at one moment."""

    schema: str = SCHEMA
    time_s: float
    daemon: DaemonView
    processes: list[ProcessView]
    gpus: list[GpuView] = []


class SettingCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A channel group's slice as intended and as the driver has it now; ``problem`` says why it could not be asked."""

    pid: int
    client: int
    handle: int
    intended_us: int | None
    live_us: int | None
    problem: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the driver has what was intended; without an intention any value is the program's own."""
        return self.problem is None and self.intended_us in (None, self.live_us)
