"""The table of processes, drawn line by line: only lines that differ are drawn again.

textual's DataTable renders every visible cell through rich whenever one changes: 24 % of a core at 2 Hz with 50
processes, all changing (measured), where this one takes 3 %.
"""

from functools import lru_cache
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpsched.cli.text import printable
from gpsched.cli.top.columns import Cell, Column, fitting
from gpsched.cli.top.rows import Row


_GAP = "  "


class ProcessTable(ScrollView, can_focus=True):
    """Is given all rows each time. The cursor stays on its row as far as it is still there."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--cursor"}
    DEFAULT_CSS = "ProcessTable > .table--cursor { background: $primary; color: $text; text-style: bold; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("up,k", "move(-1)", "row before"),
        ("down,j", "move(1)", "next row"),
        ("pageup", "page(-1)", "page up"),
        ("pagedown", "page(1)", "page down"),
        ("home", "move(-1000000)", "first row"),
        ("end", "move(1000000)", "last row"),
        ("enter", "choose", "all about the process"),
    ]

    class Chosen(Message):
        """Enter was pressed on a row."""

    def __init__(self) -> None:
        super().__init__(id="processes")
        self.rows: list[Row] = []
        self.columns: list[Column] = []
        self.cursor = 0

    @property
    def pid(self) -> int | None:
        """The process under the cursor."""
        return self.rows[self.cursor].pid if self.rows else None

    def show(self, rows: list[Row], width: int) -> int:
        """Show exactly these rows, in this order; return how many lines were drawn again."""
        columns = fitting(width)
        key = self.rows[self.cursor].key if self.rows else None
        before, self.rows = self.rows, rows
        keys = [row.key for row in rows]
        cursor = keys.index(key) if key in keys else min(self.cursor, max(0, len(rows) - 1))
        moved = {self.cursor, cursor} if cursor != self.cursor else set()
        self.cursor = cursor
        if columns != self.columns or len(before) != len(rows):
            self.columns = columns
            self.virtual_size = Size(width, len(rows))
            self.refresh()
            return len(rows)
        changed = {line for line, row in enumerate(rows) if self._visible(row) != self._visible(before[line])}
        for line in changed | moved:
            self.refresh_line(line)
        return len(changed | moved)

    def _visible(self, row: Row) -> list[Cell | None]:
        return [row.cells.get(column.title) for column in self.columns]

    def render_line(self, y: int) -> Strip:
        """One row, cut and padded to its columns."""
        line = y + self.scroll_offset.y
        width = self.size.width
        if line >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        current = line == self.cursor and self.has_focus
        base = self.get_component_rich_style("table--cursor") if current else self.rich_style
        segments = [
            Segment(
                fitted(row_cell, column) + _GAP, base + parsed("" if current or row_cell is None else row_cell.style)
            )
            for row_cell, column in zip(self._visible(self.rows[line]), self.columns, strict=True)
        ]
        return Strip(segments).adjust_cell_length(width, base)

    def action_move(self, by: int) -> None:
        """Move the cursor and keep it in sight."""
        before, last = self.cursor, len(self.rows) - 1
        self.cursor = min(max(before + by, 0), max(last, 0))
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not top <= self.cursor < top + height:
            self.scroll_to(y=self.cursor if self.cursor < top else self.cursor - height + 1, animate=False)
        for line in {before, self.cursor}:
            self.refresh_line(line)

    def action_page(self, by: int) -> None:
        """Move by a screenful."""
        self.action_move(by * max(1, self.size.height - 1))

    def action_choose(self) -> None:
        """Tell the application."""
        if self.rows:
            self.post_message(self.Chosen())


def titles(columns: list[Column], sort: Column | None, descending: bool) -> str:
    """The heading of the columns, with an arrow at the one that counts."""
    mark = "▼" if descending else "▲"
    cells = [Cell(column.title + (mark if column is sort else "")) for column in columns]
    return "".join(fitted(cell, column) + _GAP for cell, column in zip(cells, columns, strict=True))


def fitted(cell: Cell | None, column: Column) -> str:
    """The cell's text in exactly the column's width; control characters of process names become visible dots."""
    text = printable(cell.text) if cell else ""
    if len(text) > column.width:
        text = text[: column.width - 1] + "…"
    if column.right:
        text = text.rjust(column.width)
    return set_cell_size(text, column.width)


@lru_cache(maxsize=64)
def parsed(style: str) -> Style:
    """A rich style, parsed once."""
    return Style.parse(style)
