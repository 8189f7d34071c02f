"""A report as one HTML page that needs nothing else."""

from pathlib import Path

import jinja2

from gpsched.tuner.report import plots, words
from gpsched.tuner.report.model import GpuReport, Report


MOST_CHANGES = 240  # rows of a page, all GPUs together: the JSON has all
MOST_PLOT_BYTES = 200_000  # of a page; the GPUs after that have none


def render(report: Report) -> str:
    """Return the page."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    left = MOST_PLOT_BYTES
    gpus = []
    for gpu in report.gpus:
        drawn = plots.plots(gpu) if left > 0 else []
        left -= sum(len(figure) for _, figure in drawn)
        gpus.append(_gpu(gpu, MOST_CHANGES // len(report.gpus), drawn if left > 0 else []))
    return environment.get_template("page.html.j2").render(report=report, words=words, gpus=gpus)


def _gpu(gpu: GpuReport, most_changes: int, drawn: list[tuple[str, str]]) -> dict[str, object]:
    shown = gpu.changes[-most_changes:]
    return {
        "gpu": gpu,
        "summary": words.summary(gpu),
        "services": [words.service_row(service) for service in gpu.services],
        "jobs": words.job_rows(gpu),
        "losses": words.loss_row(gpu),
        "changes": [(change.kind, words.change_row(change)) for change in reversed(shown)],
        "left_out": len(gpu.changes) - len(shown),
        "chosen": words.settings(gpu.trade_off.chosen) if gpu.trade_off and gpu.trade_off.chosen else "",
        "plots": drawn,
        "undrawn": gpu.windows > 0 and not drawn,
    }
