"""What the learner tells: the choice that policy turns into a plan, and the report that users read. Times in µs."""

from typing import Literal

import msgspec

from gpsched.adaptive.hints.observations import Matcher


State = Literal["learning", "sure", "drift", "explicit"]
Result = Literal["in time", "late", "false", "none"]
SCHEMA = "gpsched.hints/1"


class Trigger(msgspec.Struct, frozen=True):
    """Reserve ``offset_us`` after each wake that ``matcher`` means; give up ``limit_us`` after the wake without launch.

    ``margin_us`` is what the start of the reservation precedes the first launch by at least (P1). A wake younger than
    ``young_us`` at a launch did not cause it (``Choice.keep_companions``). ``same_thread``: only a launch of the thread
    that woke claims the reservation, be it within a burst. For a CLOCK matcher
    the wake is the instant ``guard_us`` before each expected burst: ``next_us`` (of the CLOCK_MONOTONIC) and every
    ``period_us`` after it.
    """

    matcher: Matcher
    offset_us: float
    limit_us: float
    margin_us: float
    precision: float
    recall: float
    lead_us: dict[str, float]
    young_us: float = 0.0
    same_thread: bool = False
    period_us: float | None = None
    next_us: float | None = None


class Choice(msgspec.Struct, frozen=True):
    """How to reserve for one process. No triggers: only from the first launch on, which always holds.

    ``quiet_us``        keep the GPU this long after a burst's last synchronisation, for a next launch
    ``burst_limit_us``  give the GPU back this long after the first launch, whatever happens
    ``source``          the wakes that queue requests, the earliest that announce reliably: for BURST_END triggers
    ``taker``           the wakes of who takes requests from the queue: later ones of the source wait for the next burst
    ``keep_companions`` a wake shortly before a launch announces the burst after that one: keep its reservation
    ``gain_us``         expected per burst, over all bursts remembered: the level is chosen by it
    ``generation``      grows with every change
    """

    state: State
    triggers: tuple[Trigger, ...] = ()
    quiet_us: float = 0.0
    burst_limit_us: float = 1_000_000.0
    source: Trigger | None = None
    taker: Trigger | None = None
    keep_companions: bool = False
    gain_us: float = 0.0
    why: str = "no burst seen yet; the GPU is taken at the first launch"
    generation: int = 0


class CandidateReport(msgspec.Struct, frozen=True, kw_only=True):
    """One trigger candidate: shares from 0 to 1, leads P1 to P99, and why it was (not) chosen."""

    trigger: str
    kind: str
    thread: int | None
    descriptor: int | None
    sizes: tuple[int, int] | None
    idle: bool
    occurrences: int
    precision: float
    recall: float
    lead_us: dict[str, float]
    offset_us: float
    hidden_us: float
    waste_share: float
    chosen: bool
    verdict: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the reservations did since the start: counts, and µs of switch time hidden and not, of GPU time wasted."""

    bursts: int
    reserved: int
    in_time: int
    reservations: int
    false: int
    hidden_us: float
    unhidden_us: float
    waste_us: float
    waste_share: float


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One past reservation, or a burst without one: when (CLOCK_MONOTONIC), by which trigger, and what came of it.

    ``reserved_us`` before the launch it began; ``in time`` and ``late`` are judged by what its trigger promised.
    """

    time_us: float
    trigger: str | None
    result: Result
    reserved_us: float | None
    hidden_us: float
    waste_us: float


class HintsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``gpsched hints PID`` shows. ``learned_after``: bursts until something first announced them.

    ``resting``: it is known so well that it is left to the actuator for some seconds, and bursts are not counted here.
    ``beside``: the process on whose thread's CPU the actuator waits for events, since it is awake; 0: on any.
    """

    schema: str = SCHEMA
    pid: int
    state: State
    why: str
    choice: Choice
    candidates: list[CandidateReport]
    outcome: Outcome
    recent: list[Past]
    burst_us: dict[str, float]
    interval_us: float
    drifts: int
    lost_events: int
    learned_after: int | None = None
    resting: bool = False
    beside: int = 0
