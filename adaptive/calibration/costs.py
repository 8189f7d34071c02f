"""What measured figures mean for the levels: the fields of ``Costs``. docs/calibrate.md explains each line."""

from msgspec.structs import replace

from gpsched.adaptive.calibration.model import Calibration, ControlCost
from gpsched.adaptive.hints.costs import LEVELS, Costs


_LEAST_SHORTFALL = 0.3  # what is extrapolated from less would be noise
_TIMED = ("switch_us", "residual_us", "need_us", "late_us", "control_us")


def to_costs(calibration: Calibration) -> dict[str, Costs]:
    """Return the costs of the levels that a calibration tells of, in µs of the daemon's clock."""
    bursts = calibration.bursts
    switch = bursts.added_us(bursts.timeslice)
    levels = {
        "timeslice": replace(LEVELS["timeslice"], switch_us=switch, residual_us=switch),
        "reserve": _reserve(calibration, switch),
        "hold": _hold(switch),
    }
    return {level: _scaled(costs, calibration.scale) for level, costs in levels.items()}


def _reserve(calibration: Calibration, switch: float) -> Costs:
    """Disabling has taken effect when the control ends; until then it may cost the burst another switch.

    ``Costs`` has that delay fall linearly to 0 at ``need_us``; it was measured at one margin. Where that margin was
    enough it is all that is needed, with room for the slowest controls, and less is taken to cost what it cost an H200:
    nothing was seen of it.
    """
    bursts, defaults = calibration.bursts, LEVELS["reserve"]
    disable, reserved = calibration.controls.get("disable", ControlCost()).load, bursts.reserved
    if disable is None or reserved is None:
        return replace(defaults, switch_us=switch)
    residual = min(bursts.added_us(reserved.early), switch)
    margin, late = max(reserved.late_margin_us, 0.0), bursts.added_us(reserved.late) - residual
    costs = replace(defaults, switch_us=switch, residual_us=residual, control_us=disable.median_us)
    if reserved.was_enough:
        return replace(costs, need_us=min(max(margin, 1.0) + disable.p90_us - disable.p10_us, disable.p90_us))
    shortfall = max(1.0 - margin / disable.p90_us, _LEAST_SHORTFALL)
    return replace(costs, need_us=disable.p90_us, late_us=late / shortfall)


def _hold(switch: float) -> Costs:
    """A hold kernel gets the GPU by an ordinary switch. What it leaves, and its launch, no control tells."""
    defaults = LEVELS["hold"]
    residual = min(defaults.residual_us, switch)
    return replace(
        defaults,
        switch_us=switch,
        residual_us=residual,
        need_us=switch + defaults.control_us,
        late_us=switch - residual,
    )


def _scaled(costs: Costs, scale: float) -> Costs:
    """The embedded GPU's time is stretched; the daemon's is not."""
    return replace(costs, **{name: round(getattr(costs, name) * scale, 1) for name in _TIMED})
