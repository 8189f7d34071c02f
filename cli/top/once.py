"""One look as text: for scripts, pipes, and terminals that cannot do more."""

from rich.console import Console
from rich.text import Text

from gpsched.cli.top.columns import fitting
from gpsched.cli.top.history import History
from gpsched.cli.top.panels import gpu_lines, heading
from gpsched.cli.top.rows import Row, View, rows
from gpsched.cli.top.source import Source


def print_once(source: Source, text: str, *, tree: bool) -> None:
    """Print to standard output; rates need two looks and are left out. Raises ``GpschedError`` without a daemon."""
    snapshot, history = source.read(), History()
    history.add(snapshot)
    console = Console(highlight=False)
    console.print(heading(snapshot, source.label, []), markup=False)
    for line in gpu_lines(snapshot, history, console.width):
        console.print(line, markup=False)
    columns = fitting(console.width)
    titles = [
        column.title.rjust(column.width) if column.right else column.title.ljust(column.width) for column in columns
    ]
    console.print("  ".join(titles).rstrip(), style="bold", no_wrap=True, overflow="crop")
    for row in rows(snapshot, history, View(text=text, tree=tree)):
        console.print(_line(row, console.width), no_wrap=True, overflow="crop")


def _line(row: Row, width: int) -> Text:
    line = Text()
    for column in fitting(width):
        cell = row.cells.get(column.title)
        shown = cell.text if cell else ""
        shown = shown if len(shown) <= column.width else shown[: column.width - 1] + "…"
        padded = shown.rjust(column.width) if column.right else shown.ljust(column.width)
        line.append(padded + "  ", style=cell.style if cell else "")
    line.rstrip()
    return line
