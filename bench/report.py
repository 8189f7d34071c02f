"""A result as one HTML page that needs nothing else: tables, plots, what was skipped, command lines."""

from pathlib import Path
from typing import Any

import jinja2

from gpsched.bench import plots
from gpsched.bench.figures import mean_over_alone
from gpsched.bench.outcome import ArmResult, BenchResult, LcFigures, Point, ScenarioResult
from gpsched.bench.table import ENOUGH_REQUESTS, foreseen, percent, remarks


_LC_TITLES = (
    *("arm", "service", "requests", "mean", "over alone", "p50", "p90", "p99", "p99 over alone", "p99.9", "max"),
    *("deviation", "over SLO", "reservations", "hidden µs", "wasted µs", "switches/s", "daemon CPU"),
)
_BE_TITLES = ("arm", "job", "units/s", "interval", "over native", "over alone", "largest gap ms")


def render(result: BenchResult) -> str:
    """Return the page."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    arms = list(dict.fromkeys(arm.arm for one in result.scenarios for point in one.points for arm in point.arms))
    return environment.get_template("report.html.j2").render(
        result=result,
        lc_titles=_LC_TITLES,
        be_titles=_BE_TITLES,
        scenarios=[_scenario(one, arms) for one in result.scenarios],
    )


def _scenario(result: ScenarioResult, arms: list[str]) -> dict[str, Any]:
    swept = result.scenario.sweep is not None and len(result.points) > 1
    return {
        "result": result,
        "sweep": plots.sweep(result, arms) if swept else "",
        "points": [_point(point, result, arms) for point in result.points],
    }


def _point(point: Point, result: ScenarioResult, arms: list[str]) -> dict[str, Any]:
    sweep = result.scenario.sweep
    drawn = ""
    if any(arm.lc for arm in point.arms):
        drawn = plots.latency_cdfs(point, arms)
        if any(mean_over_alone(arm) and arm.be for arm in point.arms):
            drawn += plots.trade_off(point, arms)
    return {
        "heading": f"{sweep.field} = {point.value:g}" if sweep and point.value is not None else "",
        "lc_rows": [_lc_row(arm, lc) for arm in point.arms for lc in arm.lc],
        "be_rows": [
            [
                arm.arm,
                be.name,
                f"{be.per_s:.1f}",
                f"{be.per_s_interval.low:.1f} to {be.per_s_interval.high:.1f}",
                _or_dash(be.over_native, ".3f"),
                _or_dash(be.over_alone, ".3f"),
                f"{be.largest_gap_us / 1e3:.1f}",
            ]
            for arm in point.arms
            for be in arm.be
        ],
        "foreseen": foreseen(point),
        "skipped": point.skipped,
        "remarks": remarks(point),
        "plots": drawn,
    }


def _lc_row(arm: ArmResult, lc: LcFigures) -> list[str]:
    latency, reserved = lc.latency, lc.reserved
    return [
        arm.arm,
        lc.name,
        f"{latency.count}",
        f"{latency.mean:.0f}",
        percent(lc.mean_over_alone),
        *(f"{value:.0f}" for value in (latency.p50, latency.p90, latency.p99)),
        percent(lc.p99_over_alone),
        f"{latency.p999:.0f}" if latency.count >= ENOUGH_REQUESTS else "-",
        f"{latency.max:.0f}",
        f"{latency.deviation:.0f}",
        "-" if lc.slo_misses is None else f"{lc.slo_misses / latency.count:.2%}",
        _or_dash(reserved.reservations if reserved else None, "d"),
        _or_dash(reserved.hidden_us if reserved else None, ".0f"),
        _or_dash(reserved.wasted_us if reserved else None, ".0f"),
        _or_dash(arm.switches_per_s, ".0f"),
        _or_dash(arm.daemon_cpu, ".1%"),
    ]


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
