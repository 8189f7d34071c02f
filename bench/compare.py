"""What changed between two results beyond their noise."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from gpsched.adaptive.errors import UsageError
from gpsched.bench.figures import rate
from gpsched.bench.outcome import ArmResult, BenchResult, Point, ScenarioResult
from gpsched.bench.stats import Interval, Ratio, block_ratio, mean, p99


Verdict = Literal["same", "better", "worse"]
Figure = Literal["mean", "p99", "rate"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the second result over the same one of the first."""

    scenario: str
    value: float | None
    arm: str
    program: str
    figure: Figure
    ratio: Ratio
    verdict: Verdict


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All figures that both results have; ``missing``: arms of the first that the second lacks."""

    changes: list[Change]
    missing: list[str]

    def regressions(self, arms: set[str]) -> list[Change]:
        """What became worse in these arms."""
        return [change for change in self.changes if change.verdict == "worse" and change.arm in arms]


def compare(before: BenchResult, after: BenchResult, tolerance: float) -> Comparison:
    """Compare two results of the same kind of GPU.

    A figure is ``better`` or ``worse`` when the whole 95 % interval of its ratio lies beyond 1 ± ``tolerance``.
    Raises ``UsageError`` for different GPUs, and when the results have nothing in common.
    """
    if (before.host.gpu, before.host.simulated) != (after.host.gpu, after.host.simulated):
        raise UsageError(f"cannot compare {before.host.gpu!r} with {after.host.gpu!r}; measure on the same GPU")
    pairs, missing = _pairs(before, after)
    changes = [change for pair in pairs for change in _changes(*pair, tolerance)]
    if not changes:
        raise UsageError("the two results have no scenario and arm in common; see: gpsched bench run --help")
    return Comparison(changes=changes, missing=missing)


_Pair = tuple[ScenarioResult, Point, ArmResult, ArmResult]


def _pairs(before: BenchResult, after: BenchResult) -> tuple[list[_Pair], list[str]]:
    """Arms that both results have, and the names of those that only the first has."""
    others = {
        (scenario.name, point.value, arm.arm): arm
        for scenario in after.scenarios
        for point in scenario.points
        for arm in point.arms
    }
    pairs, missing = [], []
    for scenario in before.scenarios:
        for point in scenario.points:
            for arm in point.arms:
                other = others.get((scenario.name, point.value, arm.arm))
                if other is None:
                    missing.append(f"{scenario.name}{_at(point.value)} {arm.arm}")
                else:
                    pairs.append((scenario, point, arm, other))
    return pairs, missing


def _at(value: float | None) -> str:
    return "" if value is None else f" at {value:g}"


def _changes(
    scenario: ScenarioResult, point: Point, old: ArmResult, new: ArmResult, tolerance: float
) -> Iterator[Change]:
    def change(program: str, figure: Figure, ratio: Ratio, rising: Verdict) -> Change:
        return Change(
            scenario=scenario.name,
            value=point.value,
            arm=old.arm,
            program=program,
            figure=figure,
            ratio=ratio,
            verdict=judge(ratio, tolerance, rising=rising),
        )

    for index, (lc, other) in enumerate(zip(old.lc, new.lc, strict=False)):
        if lc.name == other.name:
            over, under = ([block.lc[index].latency_us for block in arm.blocks] for arm in (new, old))
            yield change(lc.name, "mean", block_ratio(over, under, mean), "worse")
            yield change(lc.name, "p99", block_ratio(over, under, p99), "worse")
    for index, (be, other_be) in enumerate(zip(old.be, new.be, strict=False)):
        if be.name == other_be.name and be.per_s > 0:
            yield change(be.name, "rate", _rate_ratio(index, old, new), "better")


def _rate_ratio(index: int, old: ArmResult, new: ArmResult) -> Ratio:
    """Rates differ from block to block; that is their noise."""
    over, under = ([rate(index, [block]) for block in arm.blocks] for arm in (new, old))
    if min(under) <= 0 or min(over) <= 0:
        value = rate(index, new.blocks) / rate(index, old.blocks)
        return Ratio(value=value, interval=Interval(value, value))
    return block_ratio([[value] for value in over], [[value] for value in under], mean)


def judge(ratio: Ratio, tolerance: float, *, rising: Verdict) -> Verdict:
    """What a ratio means for a figure of which more is ``rising``."""
    falling: Verdict = "better" if rising == "worse" else "worse"
    if ratio.interval.low > 1 + tolerance:
        return rising
    return falling if ratio.interval.high < 1 - tolerance else "same"
