"""Which rung of the ladder a latency-critical process gets: the one that hides most of each burst's switch, and why."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpsched.adaptive.model import Level


_WORTH_US = 20.0  # hiding less than this per burst is not worth a mechanism that can fail
_KEEP_US = 5.0  # but one that is in force stays until it hides less than this
_BETTER = 1.15  # what another level must gain over the present one, so that noise does not switch levels
_LENIENT = 1.5  # of the waste budget: a level at its edge would come and go
_RANK: tuple[Level, ...] = ("timeslice", "reserve", "hold")


@dataclass(frozen=True)
class Prospect:
    """What a level would do by what was learned: µs hidden per burst, and share of GPU time wasted."""

    hidden_us: float
    waste_share: float


def within(wanted: str, possible: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return the levels to choose from: that which is wanted, or what comes below where a process cannot have it."""
    if wanted == "auto":
        return possible
    return tuple(level for level in possible if level == wanted) or possible[-1:]


def choose_level(prospects: Mapping[Level, Prospect], present: Level, waste_budget: float) -> tuple[Level, str]:
    """Return the level and the reason. ``prospects`` holds the levels that this process can have."""
    budgets = {level: waste_budget * (_LENIENT if level == present else 1.0) for level in prospects}
    fit = {level: prospect for level, prospect in prospects.items() if prospect.waste_share <= budgets[level]}
    worth = [level for level, prospect in fit.items() if prospect.hidden_us >= _threshold(level, present)]
    if not worth:
        return "timeslice", "no trigger announces its bursts early enough to hide the switch"
    best = max(worth, key=lambda level: (fit[level].hidden_us, -_RANK.index(level)))
    if present in worth and fit[best].hidden_us < fit[present].hidden_us * _BETTER:
        best = present
    return best, f"hides {fit[best].hidden_us:.0f} µs of each burst's switch"


def _threshold(level: Level, present: Level) -> float:
    return _KEEP_US if level == present else _WORTH_US
