"""The proof for people: tables as Markdown and on the terminal, a page, and a figure for each mix."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from gpsched.bench.tuner.result import ENOUGH, Judgement, MixResult, Run, TunerResult
from gpsched.tuner import svg


_TITLES = (
    "mix",
    "arm",
    "windows to 97 %",
    "of the oracle",
    "missed",
    "after the change: windows",
    "of the oracle",
    "missed",
)
_WARM_TITLES = ("mix", "windows to 97 %", "of the oracle", "missed")
_DRAWN = ("oracle", "driver", "gpsched", "tpe", "tuner")
_SHOWN_PROGRESS = 0.02  # below the least that is drawn


def rows(result: TunerResult) -> list[list[str]]:
    """Under _TITLES: each arm of each mix, before and after the change."""
    made = []
    for mix in result.mixes:
        changed = {found.arm: found for found in mix.judge("changed")}
        made += [[mix.name, cold.arm, *_cells(cold), *_cells(changed.get(cold.arm))] for cold in mix.judge("cold")]
    return made


def warm_rows(result: TunerResult) -> list[list[str]]:
    """Under _WARM_TITLES."""
    return [[mix.name, *_cells(found)] for mix in result.mixes for found in mix.judge("warm")]


def _cells(found: Judgement | None) -> list[str]:
    if found is None:  # not measured
        return ["-", "-", "-"]
    return [_windows(found.within), f"{found.settled:.3f}", f"{found.missed:.1%}"]


def _windows(within: int | None) -> str:
    return "never" if within is None else str(within)


def markdown(result: TunerResult) -> str:
    """The tables of docs/results/tuner."""
    oracles = [
        [
            mix.name,
            mix.title,
            ", ".join(f"{limit / 1000:g} ms" for limit in mix.limits_us),
            mix.change,
            *(f"{found.best.progress:.3f}" if found.best else "none" for found in (mix.before, mix.after)),
        ]
        for mix in result.mixes
    ]
    targets = [[what, f"{met} of {of}"] for what, (met, of) in result.met().items()]
    parts = [
        "## Mixes and their oracles",
        _table(("mix", "what", "objective (p99)", "the change", "oracle before", "after"), oracles),
        "## Targets",
        _table(("target", "mixes that meet it"), targets),
        "## Arms",
        _table(_TITLES, rows(result)),
        "## Started warm",
        _table(_WARM_TITLES, warm_rows(result)),
    ]
    return "\n\n".join(parts) + "\n"


def _table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = "|---" * len(titles) + "|"
    return "\n".join([_line(titles), rule, *(_line(line) for line in lines)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def print_result(result: TunerResult, console: Console) -> None:
    """The tables on the terminal."""
    console.print(f"{result.host.gpu}: {result.how}; {result.host.date}", highlight=False)
    for titles, lines in ((_TITLES, rows(result)), (_WARM_TITLES, warm_rows(result))):
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for number, title in enumerate(titles):
            table.add_column(title, justify="left" if number < 2 else "right")
        for line in lines:
            table.add_row(*line)
        console.print(table)
    for what, (met, of) in result.met().items():
        console.print(f"{what}: {met} of {of} mixes", style="" if met == of else "yellow", highlight=False)


def figure(mix: MixResult) -> str:
    """Progress and latency over windows, the first seed of each arm; the dotted line is the change."""
    made, axes = svg.figure(2, size=(9.0, 2.4), sharex=True)
    runs = [run for arm in _DRAWN for run in mix.runs if run.arm == arm and run.seed == 1]
    for run in runs:
        style: dict[str, Any] = {"color": svg.colour(_DRAWN, run.arm), "lw": 1.6 if run.arm == "tuner" else 0.9}
        axes[0, 0].plot([spot.progress for spot in run.spots], label=run.arm, **style)
        axes[1, 0].plot([_drawn(spot.latency) for spot in run.spots], **style)
    axes[0, 0].set_ylabel("jobs' progress")
    axes[0, 0].set_ylim(bottom=_lowest(runs))
    axes[1, 0].set(ylabel="latency over limit", yscale="log", xlabel="window")
    axes[1, 0].yaxis.set_major_formatter("{x:g}")
    axes[1, 0].axhline(1.0, color="#b00", lw=1, ls="--")
    for panel in axes[:, 0]:
        panel.axvline(mix.change_at - 0.5, color="#666", lw=1, ls=":")
    svg.shared_legend(made)
    return svg.text(made)


def _drawn(latency: float | None) -> float:
    return float("nan") if latency is None else min(max(latency, 0.05), 20.0)


def _lowest(runs: Sequence[Run]) -> float:
    """Where the axis begins: an arm that starves the jobs must not flatten the others."""
    shown = [spot.progress for run in runs if run.arm in ("oracle", "tuner") for spot in run.spots]
    return max(0.0, min(shown) - _SHOWN_PROGRESS)


def page(result: TunerResult) -> str:
    """One page that needs nothing else."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.get_template("page.html.j2").render(
        result=result,
        enough=f"{ENOUGH:.0%}",
        tables=[(_TITLES, rows(result)), (_WARM_TITLES, warm_rows(result))],
        figures=[(mix, figure(mix)) for mix in result.mixes],
    )
