"""What reservations really cost in time on this machine: the calibration's figures, and the actuator's own reaction."""

import math
from collections import deque
from collections.abc import Mapping
from statistics import median

from msgspec.structs import replace

from gpsched.adaptive.actuator.records import Record
from gpsched.adaptive.hints.costs import Costs


#: From when a reservation is due until it begins, until measured: the actuator's start, and a hold's launch. µs.
FIRST_US = {"reserve": 60, "hold": 100}
_MOST_US, _STEP_US = 300, 20  # on a machine that is too busy; what makes a difference


class Reckoning:
    """The costs of the levels, with what is learned of the reactions."""

    def __init__(self, costs: Mapping[str, Costs]) -> None:
        """``costs``: as calibrated."""
        self._costs = costs
        self._reactions = {level: Reaction(first_us) for level, first_us in FIRST_US.items()}

    def costs(self) -> dict[str, Costs]:
        """To be in time a reservation has to be due earlier by what the actuator takes to begin it."""
        late_us = {level: reaction.us for level, reaction in self._reactions.items()}
        return {
            level: replace(costs, need_us=costs.need_us + late_us.get(level, 0.0))
            for level, costs in self._costs.items()
        }

    def learn(self, level: str, record: Record, due_us: float | None) -> bool:
        """Learn from a reservation that was due ``due_us`` after its trigger; True when ``costs`` are others now."""
        reacted = reacted_us(record, due_us, hold=level == "hold")
        return reacted is not None and level in self._reactions and self._reactions[level].add(reacted)

    def reckoned(self, level: str, record: Record) -> Record:
        """Nobody sees when a hold gets the GPU: after what that takes by calibration, from its launch on."""
        if level != "hold" or not record.ready_ns:
            return record
        need_ns = round(self._costs["hold"].need_us * 1000)
        return replace(record, begin_ns=record.ready_ns, ready_ns=record.ready_ns + need_ns)


class Reaction:
    """How long it takes from when a reservation is due until it begins, on this machine: ``us``.

    The median: a hold that comes later still hides most (docs/results: an H200's needs half of what is reckoned with).
    """

    _EVERY = 64

    def __init__(self, first_us: int) -> None:
        """``first_us``: until measured."""
        self.us = first_us
        self._seen: deque[float] = deque(maxlen=8 * self._EVERY)
        self._new = 0

    def add(self, reacted_us: float) -> bool:
        """Learn from one reservation; True when ``us`` changed."""
        self._seen.append(reacted_us)
        self._new += 1
        if self._new < self._EVERY:
            return False
        self._new, before = 0, self.us
        usual = median(self._seen)
        self.us = min(math.ceil(usual / _STEP_US) * _STEP_US, _MOST_US)
        return self.us != before


def reacted_us(record: Record, due_us: float | None, *, hold: bool = False) -> float | None:
    """From when a reservation was due, ``due_us`` after its trigger, until it began; None where nobody knows.

    It begins with its first control; a ``hold`` with its launch, which the actuator notes as ``ready_ns``.
    """
    begin_ns = record.ready_ns if hold else record.begin_ns
    if due_us is None or not begin_ns:
        return None
    reacted = (begin_ns - record.trigger_ns) / 1000 - due_us
    return reacted if reacted >= 0.0 else None  # it was planned otherwise
