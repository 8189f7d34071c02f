"""The plots of a report, as SVG text to be put into a page."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from gpsched.bench.arms import NATIVE
from gpsched.bench.figures import mean_over_alone, overall_be, p99_over_alone
from gpsched.bench.outcome import ArmResult, Point, ScenarioResult
from gpsched.tuner import svg


_QUANTILES = np.concatenate([np.linspace(0, 0.99, 199), np.linspace(0.99, 1, 60)])
#: As in `gpsched.tuner.svg`. The same arm has the same one everywhere.
_COLOURS = {
    "resident": "#000000",
    "default": "#D55E00",
    "seq": "#CC79A7",
    "static": "#E69F00",
    "hold": "#56B4E9",
    "gpsched": "#0072B2",
    "freeze": "#009E73",
    "reserve": "#6A3D9A",
}
_OTHERS = ("#999999", "#F0E442", "#8C564B")


def colour(arms: Sequence[str], arm: str) -> str:
    """The colour of an arm among all of a result."""
    others = [other for other in arms if other not in _COLOURS]
    return _COLOURS.get(arm) or _OTHERS[others.index(arm) % len(_OTHERS)]


def latency_cdfs(point: Point, arms: Sequence[str]) -> str:
    """One plot a service: the share of its requests that took at most so long, in each arm."""
    names = [lc.name for lc in max(point.arms, key=lambda arm: len(arm.lc)).lc]

    def draw(axes: Any, index: int) -> None:
        for arm in point.arms:
            if arm.lc:
                values = np.concatenate([block.lc[index].latency_us for block in arm.blocks])
                axes.plot(np.quantile(values, _QUANTILES), _QUANTILES, label=arm.arm, color=colour(arms, arm.arm))
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="x", labelrotation=30)
        axes.set(xlabel="latency in µs", ylabel="share of requests", title=names[index])

    return _panels(draw, len(names))


def trade_off(point: Point, arms: Sequence[str]) -> str:
    """Each arm as a point: what the jobs keep of native co-run, and what the services pay over being alone."""

    def draw(axes: Any, _index: int) -> None:
        for arm in point.arms:
            be, over = overall_be(arm, point.arm(NATIVE)), mean_over_alone(arm)
            if be is not None and over is not None:
                axes.plot(be, over, "o", color=colour(arms, arm.arm), label=arm.arm)
        axes.set(xlabel="BE rate over native co-run", ylabel="LC mean over alone", title="nearer to (1, 1) is better")

    return _panels(draw, 1)


def sweep(scenario: ScenarioResult, arms: Sequence[str]) -> str:
    """Over the values of the sweep: mean and 99th percentile over alone, and the jobs' rate over native co-run."""
    series: tuple[tuple[str, Callable[[ArmResult, Point], float | None]], ...] = (
        ("LC mean over alone", lambda arm, _point: mean_over_alone(arm)),
        ("LC p99 over alone", lambda arm, _point: p99_over_alone(arm)),
        ("BE rate over native co-run", lambda arm, point: overall_be(arm, point.arm(NATIVE))),
    )

    def draw(axes: Any, index: int) -> None:
        title, figure = series[index]
        for name in arms:
            known = [(point.value, figure(arm, point)) for point in scenario.points if (arm := point.arm(name))]
            drawn = [(value, y) for value, y in known if y is not None]
            if drawn:
                axes.plot(*zip(*drawn, strict=True), "o-", label=name, color=colour(arms, name))
        axes.set(xlabel=scenario.scenario.sweep.field if scenario.scenario.sweep else "", ylabel=title)

    return _panels(draw, len(series))


def _panels(draw: Callable[[Any, int], None], count: int) -> str:
    """Plots side by side, three a row, with one legend."""
    columns = min(count, 3)
    rows = -(-count // columns)
    figure, panels = svg.figure(rows, columns, (4.2 + 1.4 / columns, 3.1))
    for index, axes in enumerate(panels.flat):
        if index < count:
            draw(axes, index)
        else:
            axes.set_visible(False)
    svg.shared_legend(figure)
    return svg.text(figure)
