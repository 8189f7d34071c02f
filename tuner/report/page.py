"""A report as one HTML page that needs nothing else."""

from pathlib import Path

import jinja2

from gpsched.tuner.report import plots, words
from gpsched.tuner.report.model import GpuReport, Report


MOST_CHANGES = 300  # rows of the page: the JSON has all


def render(report: Report) -> str:
    """Return the page."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.j2").render(
        report=report, words=words, gpus=[_gpu(gpu) for gpu in report.gpus]
    )


def _gpu(gpu: GpuReport) -> dict[str, object]:
    shown = gpu.changes[-MOST_CHANGES:]
    return {
        "gpu": gpu,
        "summary": words.summary(gpu),
        "services": [words.service_row(service) for service in gpu.services],
        "jobs": words.job_rows(gpu),
        "losses": words.loss_row(gpu),
        "changes": [(change.kind, words.change_row(change)) for change in reversed(shown)],
        "left_out": len(gpu.changes) - len(shown),
        "chosen": words.settings(gpu.trade_off.chosen) if gpu.trade_off and gpu.trade_off.chosen else "",
        "plots": plots.plots(gpu),
    }
