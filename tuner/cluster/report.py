"""Results for people: tables for the terminal, a self-contained HTML page with plots, and JSON that both are made
from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpsched.tuner import svg
from gpsched.tuner.cluster.backtest import Backtest
from gpsched.tuner.cluster.compare import Verdict, summary, verdicts
from gpsched.tuner.cluster.engine import Result, Sample
from gpsched.tuner.cluster.errors import TraceError


# figure -> (heading, factor, digits)
COLUMNS: dict[str, tuple[str, float, int]] = {
    "evictions": ("evictions", 1, 0),
    "eviction_rate": ("evictions per start %", 100, 2),
    "lp_wait_mean_s": ("LP queueing mean s", 1, 0),
    "lp_wait_p95_s": ("LP queueing p95 s", 1, 0),
    "lost_share": ("goodput lost %", 100, 2),
    "useful_allocation": ("useful allocation %", 100, 2),
    "allocation": ("allocation %", 100, 2),
    "hp_wait_mean_s": ("HP queueing mean s", 1, 1),
    "hp_wait_p99_s": ("HP queueing p99 s", 1, 0),
    "hp_slo": ("HP SLO %", 100, 2),
    "guarantees_given": ("guarantees", 1, 0),
    "guarantees_broken": ("broken", 1, 0),
}


def cells(figures: Mapping[str, tuple[float, float]]) -> list[str]:
    """One row: mean and half-width of the 95 % interval (left out when 0)."""
    out = []
    for figure, (_, factor, digits) in COLUMNS.items():
        mean, half = figures[figure]
        text = f"{mean * factor:,.{digits}f}"
        out.append(f"{text} ± {half * factor:,.{digits}f}" if half else text)
    return out


def verdict_rows(found: list[Verdict]) -> list[list[str]]:
    """Rows: baseline, figure, change with interval, wanted, met."""
    rows = []
    for one in found:
        if one.wanted:
            change = f"{one.change:+.1%} [{one.low:+.1%}, {one.high:+.1%}]"
            wanted = f"{one.wanted:+.0%}"
        else:
            change = f"{one.change:+.4g} [{one.low:+.4g}, {one.high:+.4g}]"
            wanted = "not worse"
        rows.append(
            [one.baseline, COLUMNS[one.figure][0].removesuffix(" %"), change, wanted, "yes" if one.met else "NO"]
        )
    return rows


def markdown(results: list[Result]) -> str:
    """The comparison as Markdown tables."""
    lines = [
        "| policy | " + " | ".join(heading for heading, _, _ in COLUMNS.values()) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    lines += ["| " + " | ".join([policy, *cells(figures)]) + " |" for policy, figures in summary(results).items()]
    found = verdicts(results)
    if found:
        lines += ["", "| ours against | figure | change | wanted | met |", "|---|---|---|---|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in verdict_rows(found)]
    return "\n".join(lines) + "\n"


def save_results(path: Path, results: list[Result], about: Mapping[str, Any]) -> None:
    """Write figures, timelines and ``about`` (command, date, machine) as JSON."""
    data: dict[str, Any] = {"about": dict(about), "results": [asdict(result) for result in results]}
    for one in data["results"]:
        one["figures"] = {name: float(f"{value:.10g}") for name, value in one["figures"].items()}
        one["timeline"] = [[sample[name] for name in SAMPLE_FIELDS] for sample in one["timeline"]]
    path.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")


SAMPLE_FIELDS = ("hour", "model", "hp_demand", "hp_used", "spot_used", "quota", "oldest_wait_s", "evictions")


def load_results(path: Path) -> tuple[list[Result], dict[str, Any]]:
    """Read what `save_results` wrote; TraceError when the file is anything else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        results = [
            Result(
                one["workload"],
                one["policy"],
                {name: float(value) for name, value in one["figures"].items()},
                [Sample(*row) for row in one["timeline"]],
            )
            for one in data["results"]
        ]
        for figure in COLUMNS:
            for one in results:
                one.figures[figure]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(
            str(path), 0, f"is no result file of gpsched cluster ({type(error).__name__}: {error})"
        ) from error
    return results, dict(data.get("about", {}))


def merge(parts: Sequence[tuple[list[Result], dict[str, Any]]]) -> tuple[list[Result], dict[str, Any]]:
    """Several result files as one; of a policy simulated twice on a workload the later file's counts."""
    found = {(one.workload, one.policy): one for results, _ in parts for one in results}
    about: dict[str, Any] = {}
    for _, some in parts:
        for name, value in some.items():
            values = about.setdefault(name, [])
            if value not in values:
                values.append(value)
    return list(found.values()), {name: "; ".join(map(str, values)) for name, values in about.items()}


PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title><style>
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0;font-size:13px;display:block;overflow-x:auto}
td,th{border:1px solid #ccc;padding:.25rem .5rem;text-align:right}td:first-child,th:first-child{text-align:left}
svg{max-width:100%;height:auto}dt{font-weight:600}.NO{background:#fdd}.yes{background:#dfd}</style></head><body>
<h1>{{ title }}</h1>
<dl>{% for name, value in about.items() %}<dt>{{ name }}</dt><dd>{{ value }}</dd>{% endfor %}</dl>
{% for table in tables %}<h2>{{ table.title }}</h2><table><tr>{% for head in table.heads %}<th>{{ head }}</th>{%
endfor %}</tr> {% for row in table.rows %}<tr>{% for cell in row %}<td class="{{ cell if cell in ('yes', 'NO') else ''
}}">{{ cell }}</td> {% endfor %}</tr>{% endfor %}</table>{% endfor %}
{% for title, svg in plots %}<h2>{{ title }}</h2>{{ svg | safe }}{% endfor %}
</body></html>
"""


def page(title: str, about: Mapping[str, Any], tables: list[dict[str, Any]], plots: list[tuple[str, str]]) -> str:
    """One HTML page without any reference outside itself; text is escaped."""
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(PAGE).render(title=title, about=about, tables=tables, plots=plots)


def results_page(results: list[Result], about: Mapping[str, Any]) -> str:
    """The page of a simulation or comparison."""
    heads = ["policy", *(heading for heading, _, _ in COLUMNS.values())]
    tables = [{"title": "Policies", "heads": heads, "rows": [[p, *cells(f)] for p, f in summary(results).items()]}]
    found = verdicts(results)
    if found:
        heads = ["ours against", "figure", "change", "wanted", "met"]
        tables.append({"title": "Target", "heads": heads, "rows": verdict_rows(found)})
    drawn = [result for result in results if result.timeline][:3]
    return page("Cluster simulation", about, tables, [plot for result in drawn for plot in timeline_plots(result)])


def timeline_plots(result: Result) -> list[tuple[str, str]]:
    """Spot use against quota, queue age and evictions over time, for the two largest GPU models."""
    plots = []
    models = sorted(
        {s.model for s in result.timeline},
        key=lambda m: -max(s.hp_used + s.spot_used for s in result.timeline if s.model == m),
    )
    for model in models[:2]:
        samples = [sample for sample in result.timeline if sample.model == model]
        days = [sample.hour / 24 for sample in samples]
        figure, axes = _axes(3)
        axes[0].plot(days, [s.hp_demand for s in samples], label="HP demand", color="tab:red", lw=0.8)
        axes[0].plot(
            days, [s.hp_used + s.spot_used for s in samples], label="HP + spot running", color="tab:gray", lw=0.8
        )
        axes[0].plot(days, [s.spot_used for s in samples], label="spot running", color="tab:blue", lw=0.8)
        axes[0].plot(days, [s.quota for s in samples], label="spot quota", color="tab:green", lw=0.8)
        axes[0].set_ylabel("GPUs")
        axes[0].legend(ncol=4, fontsize=7)
        axes[1].plot(days, [s.oldest_wait_s / 3600 for s in samples], lw=0.8)
        axes[1].set_ylabel("oldest spot\nwait, h")
        axes[2].plot(days, [s.evictions for s in samples], lw=0.8)
        axes[2].set_ylabel("evictions\nso far")
        axes[2].set_xlabel("day")
        plots.append((f"{result.policy} on {result.workload}: {model}", svg.text(figure)))
    return plots


def backtest_page(found: Backtest, about: Mapping[str, Any]) -> str:
    """The page of a forecast backtest."""
    heads = ["method", "series", "hours", "pinball GPUs", "pinball %", "coverage %", "reserve GPUs", "steps"]
    return page(
        "Demand forecast",
        about,
        [{"title": "Scores", "heads": heads, "rows": score_rows(found)}],
        forecast_plots(found),
    )


def score_rows(found: Backtest) -> list[list[str]]:
    """Rows of the score table."""
    return [
        f"{s.method}|{s.series}|{s.hours}|{s.pinball:.2f}|{s.pinball_share:.2%}|{s.coverage:.1%}|{s.reserve:.1f}|{s.steps}".split(
            "|"
        )
        for s in found.scores
    ]


def forecast_plots(found: Backtest, most: int = 3) -> list[tuple[str, str]]:
    """Peak demand of the next hours and its forecast quantile, for the series with the largest peaks."""
    plots = []
    hours = max(found.actual)
    order = sorted(range(len(found.names)), key=lambda row: -float(found.actual[hours][row].max()))
    for row in order[:most]:
        figure, axes = _axes(1)
        days = [(found.first_hour + step) / 24 for step in range(found.actual[hours].shape[1])]
        axes[0].plot(days, found.actual[hours][row], color="black", lw=0.8, label=f"peak of the next {hours} h")
        for method, by_hours in found.forecasts.items():
            axes[0].plot(days, by_hours[hours][row], lw=0.8, label=method)
        axes[0].set_ylabel("GPUs")
        axes[0].set_xlabel("day")
        axes[0].legend(ncol=4, fontsize=7)
        plots.append((found.names[row], svg.text(figure)))
    return plots


def _axes(count: int) -> tuple[Any, Any]:
    figure, axes = svg.figure(count, size=(10, 1.8 + 1.0 / count), sharex=True)
    return figure, axes[:, 0]
