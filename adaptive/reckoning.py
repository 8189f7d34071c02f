"""What reservations really cost in time on this machine: the calibration's figures, and the actuator's own reaction."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from gpsched.adaptive.actuator.records import Record
from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.leads import quantile


#: From when a reservation is due until it begins, until measured: the actuator's start, and a hold's launch. µs.
FIRST_US = {"reserve": 10, "hold": 40}
#: What is added where it is due at its event: an actuator that sleeps must wake. µs.
FIRST_WAKE_US = 30
#: How much later the slowest 1 % begin, until measured. µs.
FIRST_SPREAD_US = 60
_SUDDEN_US = 50.0  # after an event: what is due later finds the actuator awake, but for few
_MOST_US = 300  # on a machine that is too busy
# What makes a difference, when it is this part, too: levels are weighed anew then, which costs ms.
_STEP_US, _SPREAD_STEP_US, _PART = 10, 20, 0.25


class Due(NamedTuple):
    """When a reservation was due: so long after its trigger. ``foretold``: the actuator was told before."""

    after_us: float
    foretold: bool = False

    @property
    def sudden(self) -> bool:
        """Whether the actuator had to wake first."""
        return not self.foretold and self.after_us <= _SUDDEN_US


class Reckoning:
    """The costs of the levels, with what is learned of the reactions: to what was awaited, and to events."""

    def __init__(self, costs: Mapping[str, Costs]) -> None:
        """``costs``: as calibrated."""
        self._costs = costs
        self._awaited = {level: Reaction(first_us) for level, first_us in FIRST_US.items()}
        self._sudden = {level: Reaction(first_us + FIRST_WAKE_US) for level, first_us in FIRST_US.items()}

    def costs(self) -> dict[str, Costs]:
        """To be in time a reservation has to be due earlier by what the actuator takes to begin it."""
        return {level: self._with_reactions(level, costs) for level, costs in self._costs.items()}

    def learn(self, level: str, record: Record, due: Due | None) -> bool:
        """Learn from a reservation that was due then (None: nobody knows when); True when ``costs`` are others now."""
        reacted = reacted_us(record, due, hold=level == "hold")
        if reacted is None or due is None or level not in self._sudden:
            return False
        if due.sudden:
            return self._sudden[level].add(due.after_us + reacted)
        return self._awaited[level].add(reacted)

    def _with_reactions(self, level: str, costs: Costs) -> Costs:
        if level not in self._sudden:
            return costs
        sudden, awaited = self._sudden[level], self._awaited[level]
        return replace(
            costs,
            need_us=costs.need_us + awaited.us,
            spread_us=awaited.spread_us,
            wake_us=max(sudden.us - awaited.us, 0.0),
            wake_most_us=max(sudden.most_us - awaited.most_us, 0.0),
        )

    def reckoned(self, level: str, record: Record) -> Record:
        """Nobody sees when a hold gets the GPU: after what that takes by calibration, from its launch on."""
        if level != "hold" or not record.ready_ns:
            return record
        need_ns = round(self._costs["hold"].need_us * 1000)
        return replace(record, begin_ns=record.ready_ns, ready_ns=record.ready_ns + need_ns)


class Reaction:
    """How long it takes from when a reservation is due until it begins, on this machine, in µs.

    ``us`` is the median, by which waste is reckoned; ``spread_us`` how much longer the slowest 1 % take.
    """

    _EVERY = 64

    def __init__(self, first_us: float, first_spread_us: float = FIRST_SPREAD_US) -> None:
        """What to reckon with until measured."""
        self.us, self.spread_us = first_us, first_spread_us
        self._seen: deque[float] = deque(maxlen=8 * self._EVERY)
        self._new = 0

    @property
    def most_us(self) -> float:
        """All but the slowest 1 % take less."""
        return self.us + self.spread_us

    def add(self, reacted_us: float) -> bool:
        """Learn from one reservation; True when the figures changed."""
        self._seen.append(reacted_us)
        self._new += 1
        if self._new < self._EVERY:
            return False
        self._new = 0
        ordered = sorted(self._seen)
        usual, slowest = (min(quantile(ordered, percent), _MOST_US) for percent in (50, 99))
        spread_us = slowest - usual
        if not (_differ(usual, self.us, _STEP_US) or _differ(spread_us, self.spread_us, _SPREAD_STEP_US)):
            return False
        self.us, self.spread_us = round(usual, 1), round(spread_us, 1)
        return True


def _differ(now_us: float, before_us: float, least_us: float) -> bool:
    return abs(now_us - before_us) >= max(least_us, _PART * before_us)


def reacted_us(record: Record, due: Due | None, *, hold: bool = False) -> float | None:
    """From when a reservation was due until it began; None where nobody knows.

    It begins with its first control; a ``hold`` with its launch, which the actuator notes as ``ready_ns``.
    """
    begin_ns = record.ready_ns if hold else record.begin_ns
    if due is None or not begin_ns:
        return None
    reacted = (begin_ns - record.trigger_ns) / 1000 - due.after_us
    return reacted if reacted >= 0.0 else None  # it was planned otherwise
