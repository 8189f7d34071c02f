"""What the tuner measures by: latencies of bursts since a moment, launches so far. Public; one cheap call a window."""

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpsched.adaptive.hints.bursts import Burst
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.hints.observations import WakeKind
from gpsched.adaptive.hints.outputs import Reserve
from gpsched.adaptive.knobs import SettingsView
from gpsched.adaptive.model import Level


SCHEMA = "gpsched.measurement/1"
_KEPT = 16_384  # bursts of one process: five seconds at 3,000 a second
_PENDING = 64
# How fast a request's least time follows shorter and longer ones: what contends only adds.
_SHORTER, _LONGER = 0.05, 0.0005
# Their occurrence is foretold or derived, no request's arrival.
_NO_ARRIVAL = frozenset({WakeKind.CLOCK, WakeKind.EXPLICIT, WakeKind.FIRST_LAUNCH})


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``count`` bursts, µs; all 0 of none."""

    count: int = 0
    mean_us: float = 0.0
    p50_us: float = 0.0
    p90_us: float = 0.0
    p99_us: float = 0.0
    max_us: float = 0.0


class LcMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """One latency-critical process.

    ``latency`` from trigger to end of the bursts that ended in the asked time, ``triggered`` of which had a known
    trigger (the others count from the first launch); ``over`` took longer than ``slo_us``. ``covered``: those of them
    for which the GPU was reserved early enough. ``busy_us``: time in bursts. ``crowd``: how the arrivals of these
    requests crowded, whatever the settings (see ``Crowding``). The last three before it are sums since the start.
    """

    pid: int
    name: str
    command: str
    tenant: str
    gpus: list[int]
    slo_us: float | None
    level: Level
    levels: list[Level]
    latency: Latencies
    covered: Latencies
    triggered: int
    over: int
    busy_us: float
    trigger: str | None
    reservations: int
    hidden_us: float
    wasted_us: float
    crowd: float = 1.0


class BeMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """One best-effort process; ``launches`` since its start."""

    pid: int
    name: str
    command: str
    tenant: str
    gpus: list[int]
    launches: int


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Everything since ``since_us``; ``now_us`` is CLOCK_MONOTONIC and what to ask from next time."""

    schema: str = SCHEMA
    since_us: float
    now_us: float
    lost_events: int
    models: dict[int, str]
    lc: list[LcMeasure]
    be: list[BeMeasure]
    settings: SettingsView


class _Entry(NamedTuple):
    end_us: float
    latency_us: float
    length_us: float
    triggered: bool
    covered: bool


class Crowding:
    """How the requests of one process crowd: a figure of when they arrive, which no setting changes.

    It is the p99 of what they would take in a queue in which each is served for as long as one that met no other takes
    at the least, over that time: 1 where none waits for another. Windows are told apart by it.
    """

    def __init__(self) -> None:
        self._least_us: float | None = None
        self._ended_us = -math.inf

    def served(self, arrival_us: float, end_us: float) -> None:
        """Learn what a request takes from one that met no other. Call in the order of their ends."""
        if arrival_us >= self._ended_us:
            took = end_us - arrival_us
            before = self._least_us or took
            self._least_us = before + (_SHORTER if took < before else _LONGER) * (took - before)
        self._ended_us = end_us

    def of(self, arrivals_us: Sequence[float]) -> float:
        """Return the figure for these arrivals."""
        least = self._least_us
        if not least or not arrivals_us:
            return 1.0
        free, times = -math.inf, []  # when the one before would be done
        for arrival in sorted(arrivals_us):
            free = max(free, arrival) + least
            times.append(free - arrival)
        return round(_rank(sorted(times), 0.99) / least, 4)


class BurstLog:
    """The last bursts of every latency-critical process. Fed by the daemon's loop, µs of CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._entries: dict[int, deque[_Entry]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._pending: dict[int, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=_PENDING))
        self._began: dict[int, tuple[float | None, bool]] = {}
        self._crowding: dict[int, Crowding] = defaultdict(Crowding)

    def announced(self, pid: int, reserve: Reserve, choice: Choice) -> None:
        """A trigger occurred: by what was learned its burst follows."""
        trigger = next((each for each in choice.triggers if each.matcher == reserve.trigger), None)
        if trigger is not None and trigger.matcher.kind not in _NO_ARRIVAL:
            self._pending[pid].append((reserve.start_us - trigger.offset_us, reserve.until_us))

    def began(self, pid: int, time_us: float, reserved_us: float | None, need_us: float) -> None:
        """The first launch; ``need_us``: how long the mechanism needs before it."""
        pending = self._pending[pid]
        arrivals = [occurred for occurred, until in pending if occurred <= time_us <= until]
        self._began[pid] = (min(arrivals, default=None), reserved_us is not None and reserved_us >= need_us)
        later = [each for each in pending if each[0] > time_us]
        pending.clear()
        pending.extend(later)

    def ended(self, pid: int, burst: Burst) -> None:
        """The burst is over. One that was cut short by lost events tells nothing."""
        arrival, covered = self._began.pop(pid, (None, False))
        if burst.closed_by != "reset":
            start = burst.start_us if arrival is None else arrival
            length = burst.end_us - burst.start_us
            entry = _Entry(burst.end_us, burst.end_us - start, length, arrival is not None, covered)
            self._entries[pid].append(entry)
            self._crowding[pid].served(start, burst.end_us)

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._entries.pop(pid, None)
        self._pending.pop(pid, None)
        self._began.pop(pid, None)
        self._crowding.pop(pid, None)

    def since(self, pid: int, since_us: float) -> Sequence[_Entry]:
        """Return the bursts that ended after this moment."""
        recent: list[_Entry] = []
        for entry in reversed(self._entries.get(pid, ())):
            if entry.end_us <= since_us:
                break
            recent.append(entry)
        return recent

    def fields(self, pid: int, since_us: float, slo_us: float | None) -> dict[str, object]:
        """The fields of ``LcMeasure`` that bursts tell."""
        entries = self.since(pid, since_us)
        return {
            "latency": latencies([entry.latency_us for entry in entries]),
            "covered": latencies([entry.latency_us for entry in entries if entry.covered]),
            "triggered": sum(entry.triggered for entry in entries),
            "over": sum(slo_us is not None and entry.latency_us > slo_us for entry in entries),
            "busy_us": sum(entry.length_us for entry in entries),
            "crowd": self._crowding[pid].of([entry.end_us - entry.latency_us for entry in entries]) if entries else 1.0,
        }


def latencies(values: Sequence[float]) -> Latencies:
    """Mean, maximum and nearest-rank percentiles."""
    if not values:
        return Latencies()
    ordered = sorted(values)
    return Latencies(
        count=len(ordered),
        mean_us=round(sum(ordered) / len(ordered), 1),
        p50_us=_rank(ordered, 0.5),
        p90_us=_rank(ordered, 0.9),
        p99_us=_rank(ordered, 0.99),
        max_us=round(ordered[-1], 1),
    )


def _rank(ordered: Sequence[float], share: float) -> float:
    return round(ordered[math.ceil(share * len(ordered)) - 1], 1)
