"""What a check says, shown by ``gpsched doctor`` and logged at the daemon's start."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gpsched.adaptive.doctor.host import Host
from gpsched.adaptive.model import Health, Level


SCHEMA = "gpsched.doctor/1"
SEVERITY: dict[Health, int] = {"ok": 0, "degraded": 1, "missing": 2}


class Finding(msgspec.Struct, frozen=True):
    """What one rule found: ``detail`` is what there is, ``fix`` replaces the rule's own where it can be said better."""

    state: Health
    detail: str
    fix: str = ""


def ok(detail: str) -> Finding:
    """All is there."""
    return Finding("ok", detail)


def degraded(detail: str, fix: str = "") -> Finding:
    """Works with less."""
    return Finding("degraded", detail, fix)


def missing(detail: str, fix: str = "") -> Finding:
    """Does not work at all."""
    return Finding("missing", detail, fix)


@dataclass(frozen=True)
class Rule:
    """One question about this machine.

    ``levels`` are impossible when it is missing (empty: none is), ``otherwise`` says what is lost, ``fix`` what to do,
    ``tried`` on which machines the answer "ok" was really run with.
    """

    name: str
    title: str
    levels: tuple[Level, ...]
    otherwise: str
    fix: str
    tried: str
    check: Callable[[Host], Finding]
    optional: bool = False  # its absence is no defect

    def apply(self, host: Host) -> "Result":
        """Ask; a question that fails is an answer too."""
        try:
            found = self.check(host)
        except OSError as error:
            found = degraded(f"cannot be found out: {error.strerror or error}")
        fix = "" if found.state == "ok" else found.fix or self.fix
        reason = "" if found.state == "ok" else self.otherwise
        return Result(self.name, self.title, found.state, found.detail, reason, fix, list(self.levels))


class Result(msgspec.Struct, frozen=True):
    """One answer: ``reason`` says what does not work therefore."""

    name: str
    title: str
    state: Health
    detail: str
    reason: str
    fix: str
    levels: list[Level]


class LevelAnswer(msgspec.Struct, frozen=True):
    """Whether a level can be had on this machine; ``blocked_by`` names the rules that are missing."""

    level: Level
    possible: bool
    blocked_by: list[str]


class ProcessAnswer(msgspec.Struct, frozen=True):
    """Which level a managed process has, why, and what the next one on the ladder lacks (empty: nothing)."""

    pid: int
    name: str
    gpus: list[int]
    level: Level
    reason: str
    next_level: Level | None
    next_lacks: str


class GpuAnswer(msgspec.Struct, frozen=True):
    """The lowest level among the managed processes of a GPU: what its latency-critical work can rely on."""

    gpu: int
    name: str | None
    level: Level
    processes: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``gpsched doctor --json`` prints."""

    schema: str = SCHEMA
    health: Health
    checks: list[Result]
    levels: list[LevelAnswer]
    gpus: list[GpuAnswer] = []
    processes: list[ProcessAnswer] = []
