"""The plots of a report, as SVG: latency against objective, progress, settings, and the explored trade-off."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpsched.tuner import svg
from gpsched.tuner.model import KNOBS, Point, Settings
from gpsched.tuner.report.model import GpuReport, Series, TradeOff
from gpsched.tuner.report.words import of_limit


_MOST_LINES = 6  # services drawn by name; a page shows no more
_MOST_DOTS = 400
_LATENCY_BOUNDS = (0.05, 20.0)  # over the limit: what lies beyond is drawn at the edge


def plots(gpu: GpuReport) -> list[tuple[str, str]]:
    """Titles and figures; those without data are left out."""
    drawn: list[tuple[str, str | None]] = [
        ("Latency over its objective", _latency(gpu.series)),
        ("Progress of best-effort work", _progress(gpu)),
        ("Settings in force", _settings(gpu.series)),
        ("What was explored, and what was chosen", _trade_off(gpu.trade_off)),
    ]
    return [(title, figure) for title, figure in drawn if figure is not None]


def _times(series: Series) -> list[datetime]:
    return [datetime.fromtimestamp(time) for time in series.time_s]


def _latency(series: Series) -> str | None:
    names = [name for name, values in series.latency.items() if any(values)][:_MOST_LINES]
    if not names:
        return None
    figure, axes = svg.figure(1)
    times = _times(series)
    for name in names:
        known = [(time, pair) for time, pair in zip(times, series.latency[name], strict=True) if pair]
        colour = svg.colour(names, name)
        x, middle, top = zip(*((time, _bounded(pair[0]), _bounded(pair[1])) for time, pair in known), strict=True)
        axes[0, 0].plot(x, middle, color=colour, lw=1.2, label=name)
        axes[0, 0].fill_between(x, middle, top, color=colour, alpha=0.2, lw=0)
    axes[0, 0].axhline(1.0, color="#b00", lw=1, ls="--", label="objective")
    axes[0, 0].set_ylabel("latency over limit")
    _ratios(axes[0, 0])
    return _dated(figure, axes)


def _ratios(panel: Any) -> None:
    """A logarithmic axis whose ticks are plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())


def _bounded(ratio: float) -> float:
    low, high = _LATENCY_BOUNDS
    return min(max(ratio, low), high)


def _progress(gpu: GpuReport) -> str | None:
    if not any(value is not None for value in gpu.series.progress):
        return None
    figure, axes = svg.figure(1)
    values = [float("nan") if value is None else value for value in gpu.series.progress]
    axes[0, 0].plot(_times(gpu.series), values, color=svg.COLOURS[0], lw=1.2, label="best-effort")
    if gpu.gain is not None:
        axes[0, 0].axhline(gpu.gain.default, color=svg.COLOURS[1], lw=1, ls="--", label="default settings")
    axes[0, 0].set_ylabel("progress")
    axes[0, 0].set_ylim(bottom=0.0)
    return _dated(figure, axes)


def _settings(series: Series) -> str | None:
    """One panel a knob that changed."""
    changed = [name for name in KNOBS if len({values.get(name) for values in series.settings}) > 1]
    if not changed:
        return None
    figure, axes = svg.figure(len(changed), size=(9.0, 1.1 + 0.3 / len(changed)), sharex=True)
    times = _times(series)
    for panel, name in zip(axes[:, 0], changed, strict=True):
        _draw_knob(panel, name, times, [values.get(name) for values in series.settings])
    return _dated(figure, axes)


def _draw_knob(panel: Any, name: str, times: Sequence[datetime], values: Sequence[Any]) -> None:
    knob = KNOBS[name]
    panel.set_ylabel(f"{knob.key}\n{knob.unit}".strip(), fontsize=8)
    if knob.scale == "choice":
        heights = [knob.choices.index(value) if value in knob.choices else float("nan") for value in values]
        panel.set_yticks(range(len(knob.choices)), knob.choices)
    else:
        heights = [float("nan") if value is None else float(value) for value in values]
        if knob.scale == "log":
            panel.set_yscale("log")
    panel.step(times, heights, where="pre", color=svg.COLOURS[0], lw=1.2)


def _trade_off(trade_off: TradeOff | None) -> str | None:
    if trade_off is None or not trade_off.points:
        return None
    figure, axes = svg.figure(1, size=(6.0, 3.6))
    panel = axes[0, 0]
    points = trade_off.points[-_MOST_DOTS:]
    kept, missed = ([point for point in points if (point.margin >= 0) is good] for good in (True, False))
    for group, colour, label in ((kept, svg.COLOURS[2], "objectives kept"), (missed, svg.COLOURS[1], "missed")):
        if group:
            x, y = zip(*((point.progress, _bounded(of_limit(point.margin))) for point in group), strict=True)
            panel.plot(x, y, "o", ms=4, alpha=0.7, color=colour, label=label)
    chosen = _chosen(points, trade_off.chosen)
    if chosen is not None:
        place = (chosen.progress, _bounded(of_limit(chosen.margin)))
        panel.plot(*place, "*", ms=14, color=svg.COLOURS[0], label="in force")
    panel.axhline(1.0, color="#b00", lw=1, ls="--")
    panel.set(xlabel="progress of best-effort work", ylabel="worst latency over its limit")
    _ratios(panel)
    svg.shared_legend(figure)
    return svg.text(figure)


def _chosen(points: Sequence[Point], chosen: Settings | None) -> Point | None:
    """The point of the settings in force, by the knobs that the points are about."""
    if chosen is None:
        return None
    alike = (p for p in reversed(points) if all(chosen.get(name) == value for name, value in p.settings.items()))
    return next(alike, None)


def _dated(figure: Any, axes: Any) -> str:
    from matplotlib import dates

    locator = dates.AutoDateLocator()  # type: ignore[no-untyped-call]
    axes[-1, 0].xaxis.set_major_locator(locator)
    axes[-1, 0].xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    svg.shared_legend(figure)
    return svg.text(figure)
