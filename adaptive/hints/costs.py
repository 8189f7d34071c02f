"""What taking the GPU costs at each level, so that a hint's worth can be weighed against its waste."""

import msgspec
from msgspec.structs import replace

from gpsched.adaptive.hints.observations import WakeKind


class Costs(msgspec.Struct, frozen=True):
    """One level's costs in µs; the defaults of ``LEVELS`` are the H200's (facts/h200.md), calibration replaces them.

    switch_us      what an LC burst waits when nothing was reserved
    residual_us    what it still waits when the reservation began ``need_us`` before the first launch, or earlier
    need_us        how long the mechanism needs until the GPU is free of BE (BE computes meanwhile)
    late_us        added to ``residual_us`` when it begins at the launch itself; falls linearly to 0 at ``need_us``
    control_us     how long the daemon or actuator is busy issuing it
    spread_us      how much later than ``need_us`` reckons with the mechanism may begin: what to be early by, where that
                   keeps the budget, so that nearly all reservations are in time
    wake_us        how long after an event the actuator is awake, while an offset passes or not; what it is told of
                   before, it awaits awake
    wake_most_us   the same, of nearly all events
    waste_budget   largest share of GPU time that may be reserved and idle
    keeps          whether BE stays out through gaps within a burst; else each gap costs the LC a switch
    """

    switch_us: float = 190.0
    residual_us: float = 15.0
    need_us: float = 200.0
    late_us: float = 175.0
    control_us: float = 10.0
    spread_us: float = 0.0
    wake_us: float = 0.0
    wake_most_us: float = 0.0
    waste_budget: float = 0.01
    keeps: bool = False

    def of(self, kind: WakeKind) -> "Costs":
        """Return the costs of a reservation that a trigger of this kind leads to."""
        return replace(self, wake_us=0.0, wake_most_us=0.0) if kind == WakeKind.CLOCK and self.wake_most_us else self

    @property
    def gap_us(self) -> float:
        """What giving the GPU back and taking it again costs both sides: a longer gap in a burst is worth closing."""
        return 2 * self.switch_us + self.control_us

    @property
    def early_us(self) -> float:
        """How long before the first launch reservations must be due so that nearly all are in time."""
        return self.need_us + self.spread_us

    @property
    def lead_us(self) -> float:
        """How long before the first launch an event must come for that."""
        return self.early_us + self.wake_most_us

    def hidden(self, margin: float) -> float:
        """Return the µs hidden when the reservation began ``margin`` µs before the launch (negative: after it)."""
        if margin < 0.0:
            return 0.0
        shortfall = max(1.0 - margin / self.need_us, 0.0)
        return self.switch_us - self.residual_us - self.late_us * shortfall


LEVELS: dict[str, Costs] = {
    "timeslice": Costs(residual_us=190.0, need_us=1.0, late_us=0.0, control_us=0.0),
    "reserve": Costs(residual_us=75.0, need_us=700.0, late_us=380.0, control_us=350.0, keeps=True),
    "hold": Costs(),
}
