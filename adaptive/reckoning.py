"""What reservations really cost in time on this machine: the calibration's figures, and the actuator's own reaction."""

from collections import deque
from collections.abc import Mapping

from msgspec.structs import replace

from gpsched.adaptive.actuator.records import Record
from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.leads import quantile


#: From when a reservation is due until it begins, until measured: the actuator's start, and a hold's launch. µs.
FIRST_US = {"reserve": 60, "hold": 100}
#: How much later the slowest 1 % begin, until measured. µs.
FIRST_SPREAD_US = 60
_MOST_US = 300  # on a machine that is too busy
# What makes a difference, when it is this part, too: levels are weighed anew then, which costs ms.
_STEP_US, _SPREAD_STEP_US, _PART = 10, 20, 0.25


class Reckoning:
    """The costs of the levels, with what is learned of the reactions."""

    def __init__(self, costs: Mapping[str, Costs]) -> None:
        """``costs``: as calibrated."""
        self._costs = costs
        self._reactions = {level: Reaction(first_us) for level, first_us in FIRST_US.items()}

    def costs(self) -> dict[str, Costs]:
        """To be in time a reservation has to be due earlier by what the actuator takes to begin it."""
        return {level: self._with_reaction(level, costs) for level, costs in self._costs.items()}

    def learn(self, level: str, record: Record, due_us: float | None) -> bool:
        """Learn from a reservation that was due ``due_us`` after its trigger; True when ``costs`` are others now."""
        reacted = reacted_us(record, due_us, hold=level == "hold")
        return reacted is not None and level in self._reactions and self._reactions[level].add(reacted)

    def _with_reaction(self, level: str, costs: Costs) -> Costs:
        reaction = self._reactions.get(level)
        if reaction is None:
            return costs
        return replace(costs, need_us=costs.need_us + reaction.us, spread_us=reaction.spread_us)

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


def reacted_us(record: Record, due_us: float | None, *, hold: bool = False) -> float | None:
    """From when a reservation was due, ``due_us`` after its trigger, until it began; None where nobody knows.

    It begins with its first control; a ``hold`` with its launch, which the actuator notes as ``ready_ns``.
    """
    begin_ns = record.ready_ns if hold else record.begin_ns
    if due_us is None or not begin_ns:
        return None
    reacted = (begin_ns - record.trigger_ns) / 1000 - due_us
    return reacted if reacted >= 0.0 else None  # it was planned otherwise
