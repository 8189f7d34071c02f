"""What the tuner measures, decides and remembers: the structures that its history, its reports and its search share.

Times are seconds since the epoch, durations µs unless the name says otherwise, shares between 0 and 1. The JSON schema
is stable within its major version: fields are added with a default, never renamed.
"""

from typing import Literal

import msgspec

from gpsched.adaptive.knobs import KNOBS, Knob, Settings, Value


__all__ = (
    "KNOBS",
    "SCHEMA",
    "BeWindow",
    "Change",
    "Expectation",
    "Knob",
    "LcWindow",
    "Objective",
    "Point",
    "Settings",
    "Suggestion",
    "Value",
    "Verdict",
    "Window",
)

SCHEMA = "gpsched.tuner/1"
Verdict = Literal["kept", "missed", "unknown"]  # unknown: too few bursts to tell
Phase = Literal["watch", "explore", "hold", "undo", "settle"]


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What a latency-critical process must keep: its ``statistic`` at most ``limit_us``.

    ``slo``    the limit is its objective
    ``alone``  the limit is 5 % over what the same statistic is without contention; None until that is known
    """

    kind: Literal["slo", "alone"]
    statistic: Literal["p99", "mean"]
    limit_us: float | None


class LcWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One latency-critical process in one window.

    A latency goes from the trigger of a burst to its end; ``triggered`` is the share of bursts whose trigger is known
    (for the others it starts at the first launch). ``over``: bursts above the limit. ``alone_us``: the objective's
    statistic of bursts that met no contention, as known so far. ``busy_share``: GPU time in bursts. ``reservations``,
    ``hidden_us`` and ``wasted_us`` happened in this window; ``trigger`` is what announces its bursts; ``crowd`` is how
    its requests crowded, from 1 (not at all), whatever the settings.
    """

    pid: int
    name: str
    program: str
    tenant: str
    objective: Objective
    bursts: int
    rate_hz: float
    mean_us: float = 0.0
    p50_us: float = 0.0
    p90_us: float = 0.0
    p99_us: float = 0.0
    max_us: float = 0.0
    over: int = 0
    triggered: float = 0.0
    alone_us: float | None = None
    busy_share: float = 0.0
    level: str = "observe"
    reservations: int = 0
    hidden_us: float = 0.0
    wasted_us: float = 0.0
    trigger: str | None = None
    crowd: float = 1.0
    verdict: Verdict = "unknown"

    @property
    def value_us(self) -> float:
        """The statistic that the objective is about."""
        return self.p99_us if self.objective.statistic == "p99" else self.mean_us


class BeWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One best-effort process in one window: launches per second, and that over its own solo rate (``progress``)."""

    pid: int
    name: str
    program: str
    tenant: str
    rate_hz: float
    solo_hz: float | None = None
    progress: float | None = None
    weight: float = 1.0


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU during one window, with the settings that were in force all the time.

    ``key`` names the work (programs, GPU model), which history is kept by. ``margin``: the least of ln(limit / value)
    over the objectives, negative when one is missed; None when nothing could be told. ``progress``: weighted mean of
    the best-effort processes'. ``crowd``: of the service with the least margin. ``learned``: whether the search used
    it, else ``why_not``. ``trial``: whether the settings were an experiment.
    """

    schema: str = SCHEMA
    time_s: float
    length_s: float
    gpu: int
    gpu_model: str
    key: str
    settings: Settings
    lc: list[LcWindow]
    be: list[BeWindow]
    verdict: Verdict = "unknown"
    margin: float | None = None
    progress: float | None = None
    load: float = 0.0
    crowd: float = 1.0
    learned: bool = False
    why_not: str = ""
    phase: Phase = "watch"
    trial: bool = False


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What settings were expected to give, or gave: progress, and margin as in ``Window``; None: not known."""

    progress: float | None = None
    margin: float | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of settings: ``what`` holds old and new value of each knob; ``seen`` follows with the next window.

    ``kind``: ``try`` an experiment, ``adopt`` the experiment stays, ``undo`` back to what was good, ``start`` from what
    is known of this work, ``guard`` share cut ahead of a busy phase (or given back), ``yield`` a knob was left to an
    administrator, ``reset`` back to the defaults.
    """

    schema: str = SCHEMA
    id: int = 0
    time_s: float
    gpu: int
    key: str
    kind: Literal["try", "adopt", "undo", "start", "guard", "yield", "reset"]
    what: dict[str, tuple[Value | None, Value | None]]
    why: str
    expected: Expectation = Expectation()
    seen: Expectation | None = None

    @property
    def words(self) -> str:
        """What changed, for people: ``turn_us 50000 -> 80000``."""
        parts = [
            f"{KNOBS[name].key if name in KNOBS else name} {_word(old)} -> {_word(new)}"
            for name, (old, new) in self.what.items()
        ]
        return ", ".join(parts) or "nothing"


def _word(value: Value | None) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned of one setting: means over ``windows`` windows at the given load, in crowds of this mean ln."""

    settings: Settings
    margin: float
    progress: float
    load: float
    windows: int
    time_s: float
    misses: int = 0
    crowd: float = 0.0


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """Something an administrator could do, with what it would cost or give in numbers."""

    gpu: int
    text: str
    progress: float | None = None
    latency_us: float | None = None
