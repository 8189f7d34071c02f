"""Several policies on the same workloads: means with 95 % intervals, and the target tested on paired differences."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import numpy as np
from scipy import stats

from gpsched.tuner.cluster.arms import make_arm
from gpsched.tuner.cluster.engine import Result, Simulation
from gpsched.tuner.cluster.model import Workload


OURS = "ours"
BASELINES = ("fifo", "fifo-skip", "static-quota")


@dataclass(frozen=True)
class Target:
    """One line of the target: ``figure`` of ours against a baseline.

    ``change`` is the wanted relative change (-0.5: half) or, when 0, "not worse": ours may be worse by ``slack`` at
    most (absolute); ``sign`` is +1 where more is worse, -1 where more is better.
    """

    figure: str
    change: float
    sign: int = 1
    slack: float = 0.0


TARGETS = (
    Target("evictions", -0.50),
    Target("eviction_rate", -0.50),
    Target("lp_wait_mean_s", -0.45),
    Target("useful_allocation", 0.0, sign=-1),
    Target("allocation", 0.0, sign=-1),
    Target("hp_wait_mean_s", 0.0),
    Target("hp_slo", 0.0, sign=-1),
)


@dataclass(frozen=True)
class Verdict:
    """How ours did on one target: paired mean change with its interval (relative, or absolute where the target is
    0)."""

    baseline: str
    figure: str
    change: float
    low: float
    high: float
    wanted: float
    met: bool


def interval(values: Iterable[float]) -> tuple[float, float]:
    """Mean and half-width of the 95 % t interval (0 for a single value)."""
    data = list(values)
    if len(data) < 2:
        return (fmean(data) if data else 0.0), 0.0
    return fmean(data), float(stats.t.ppf(0.975, len(data) - 1) * np.std(data, ddof=1) / np.sqrt(len(data)))


def compare(
    workloads: Iterable[Workload],
    arms: list[str],
    progress: Callable[[str, float], None] | None = None,
    timeline: bool = False,
) -> Iterator[Result]:
    """Every arm on every workload, each result as soon as it is there; ``progress(label, share)`` follows each
    simulation."""
    for workload in workloads:
        for arm in arms:
            simulation = Simulation(workload, make_arm(arm), timeline=timeline)
            show = partial(progress, f"{workload.name} {arm}") if progress else None
            yield simulation.run(show)


def summary(results: list[Result]) -> dict[str, dict[str, tuple[float, float]]]:
    """policy -> figure -> (mean, half-width) over the workloads."""
    out: dict[str, dict[str, tuple[float, float]]] = {}
    for policy in dict.fromkeys(result.policy for result in results):
        rows = [result.figures for result in results if result.policy == policy]
        out[policy] = {figure: interval(row[figure] for row in rows) for figure in rows[0]}
    return out


def verdicts(results: list[Result], ours: str = OURS, baselines: Iterable[str] = BASELINES) -> list[Verdict]:
    """The targets against each baseline that was run, by pairs of simulations of one workload.

    A relative target is met when the change of the means reaches it; "not worse" when the paired interval does not
    lie wholly on the worse side.
    """
    by = {(result.policy, result.workload): result.figures for result in results}
    names = [result.workload for result in results if result.policy == ours]
    found = []
    for baseline in baselines:
        if not all((baseline, name) in by for name in names) or not names:
            continue
        for target in TARGETS:
            mine = [by[ours, name][target.figure] for name in names]
            base = [by[baseline, name][target.figure] for name in names]
            found.append(_verdict(baseline, target, mine, base))
    return found


def _verdict(baseline: str, target: Target, mine: list[float], base: list[float]) -> Verdict:
    center, half = interval([a - b for a, b in zip(mine, base, strict=True)])
    if target.change:
        mean = fmean(base) or 1e-12
        change = center / mean
        return Verdict(
            baseline,
            target.figure,
            change,
            (center - half) / mean,
            (center + half) / mean,
            target.change,
            change <= target.change,
        )
    worst = target.sign * center - half
    return Verdict(baseline, target.figure, center, center - half, center + half, 0.0, worst <= target.slack)
