"""The one model behind ``list``, ``--json``, ``top``, records and metrics.

Times are µs unless the name says otherwise. The JSON schema is stable within its major version.
"""

from typing import Literal

import msgspec


SCHEMA = "gpsched.snapshot/1"

Class = Literal["lc", "be", "unmanaged"]
Level = Literal["observe", "freeze", "timeslice", "reserve", "hold", "module"]
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


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU process that gpsched knows."""

    pid: int
    name: str
    command: str
    user: str
    cgroup: str
    container: str | None
    class_: Class = msgspec.field(name="class")
    source: str
    tenant: str
    slo_us: float | None
    level: Level
    reason: str
    gpus: list[int]
    groups: list[GroupView]
    calls: dict[str, int]


class DaemonView(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon itself: what it watches and what it lost."""

    pid: int
    version: str
    uptime_s: float
    libraries: list[str]
    lost_events: int
    failed_controls: int
    last_failure: str | None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known at one moment."""

    schema: str = SCHEMA
    time_s: float
    daemon: DaemonView
    processes: list[ProcessView]
