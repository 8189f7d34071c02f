"""A report on the terminal."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from gpsched.tuner.report import words
from gpsched.tuner.report.model import GpuReport, Report


MOST_CHANGES = 25
_NARROW = 100  # columns: below, each cell gets a line of its own


def print_report(report: Report, console: Console) -> None:
    """Print everything but the series."""
    _say(console, f"gpsched report: {words.span(report)}", "bold")
    for note in report.notes:
        _say(console, note, "yellow")
    if not report.gpus:
        _say(console, "nothing was recorded in this time: is the tuner on? See: gpsched tune status")
    for gpu in report.gpus:
        _print_gpu(gpu, console)


def _print_gpu(gpu: GpuReport, console: Console) -> None:
    _say(console, f"\nGPU {gpu.gpu}{': ' + gpu.model if gpu.model else ''}", "bold")
    for line in words.summary(gpu):
        _say(console, line)
    if gpu.services:
        _print_table(console, words.SERVICE_TITLES, [words.service_row(service) for service in gpu.services])
    if gpu.jobs:
        _print_table(console, words.JOB_TITLES, words.job_rows(gpu))
    if row := words.loss_row(gpu):
        _say(console, "where the GPU's time went")
        _print_table(console, words.LOSS_TITLES, [row])
    _print_changes(gpu, console)
    for suggestion in gpu.suggestions:
        _say(console, f"suggestion: {suggestion.text}", "cyan")


def _print_changes(gpu: GpuReport, console: Console) -> None:
    if not gpu.changes:
        _say(console, "no setting was changed")
        return
    left_out = len(gpu.changes) - MOST_CHANGES
    _say(console, f"changes{f' (the last {MOST_CHANGES} of {len(gpu.changes)})' if left_out > 0 else ''}")
    _print_table(console, words.CHANGE_TITLES, [words.change_row(change) for change in gpu.changes[-MOST_CHANGES:]])


def _print_table(console: Console, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if console.width < _NARROW:
        for row in rows:
            for title, cell in zip(titles, row, strict=True):
                _say(console, f"  {title}: {cell}")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table, markup=False, highlight=False)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
