"""The application of ``gpsched top``: keys, the loop that asks for snapshots, and what is shown when."""

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from gpsched.adaptive.errors import GpschedError
from gpsched.adaptive.model import Snapshot
from gpsched.cli.top import detail, panels
from gpsched.cli.top.acting import ActingApp
from gpsched.cli.top.columns import COLUMNS, Column
from gpsched.cli.top.history import History
from gpsched.cli.top.keys import KEYS, help_lines
from gpsched.cli.top.rows import View, rows
from gpsched.cli.top.screens import TextScreen
from gpsched.cli.top.source import Source
from gpsched.cli.top.table import ProcessTable, titles


_INTERVALS_S = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
_PANEL_ROWS = 4  # GPUs and timeline give way to the table on a low terminal


class TopApp(ActingApp):
    """Shows one source. Nothing is changed without a confirmation, and nothing at all when ``readonly``."""

    TITLE = "gpsched top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.help, show=False) for key in KEYS if key.action
    ]
    CSS = """
    #heading { height: 1; background: $primary-background; }
    #heading.lost { background: $error; }
    #titles { height: 1; text-style: bold; }
    #processes { height: 1fr; }
    #filter { display: none; height: 1; border: none; }
    #filter.open { display: block; }
    #status { height: 1; color: $text-muted; }
    TextScreen, Question, Ask { align: center middle; }
    #box { width: 90%; height: auto; max-height: 90%; border: round $primary; background: $surface; padding: 0 1; }
    #question, #ask { width: 70%; height: auto; border: round $warning; background: $surface; padding: 0 1; }
    """

    def __init__(
        self, source: Source, *, interval_s: float = 1.0, readonly: bool = False, text: str = "", tree: bool = False
    ) -> None:
        super().__init__(source, readonly=readonly)
        self.paused = False
        self.look = View(text=text, tree=tree)
        self._interval_s = interval_s
        self._history = History()
        self._lost: str | None = None

    # ---- layout and the loop

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static(id="heading", markup=False)
        yield Static(id="gpus", markup=False)
        yield Static(id="titles", markup=False)
        yield ProcessTable()
        yield Static(id="timeline", markup=False)
        yield Input(placeholder="filter", id="filter", value=self.look.text)
        yield Static("h: help", id="status", markup=False)

    def on_mount(self) -> None:
        """Begin to ask."""
        self._timer = self.set_interval(self._interval_s, self.ask_again)
        self.query_one(ProcessTable).focus()
        self.ask_again()

    def on_resize(self) -> None:
        """Other columns may fit now."""
        self.call_after_refresh(self.draw)

    def ask_again(self) -> None:
        """Ask, unless paused."""
        if not self.paused:
            self.run_worker(self._read, thread=True, exclusive=True, group="read", exit_on_error=False)

    def _read(self) -> None:
        """On a thread of its own: a daemon that is slow must not freeze the keys."""
        try:
            snapshot = self.source.read()
        except GpschedError as error:
            self.call_from_thread(self._lose, str(error))
        else:
            self.call_from_thread(self._take, snapshot)

    def _take(self, snapshot: Snapshot) -> None:
        if self._lost:
            self.say("the daemon is back")
        self._lost, self.snapshot = None, snapshot
        self._history.add(snapshot)
        self.draw()

    def _lose(self, reason: str) -> None:
        """The last snapshot stays on the screen."""
        self._lost = reason
        self.draw()

    # ---- drawing

    def draw(self) -> None:
        """Bring every widget up to date."""
        if not self.is_running or not self.screen_stack:
            return
        base = self.screen_stack[0]
        heading = base.query_one("#heading", Static)
        heading.set_class(self._lost is not None, "lost")
        self.put(heading, self._heading())
        if self.snapshot is not None:
            self._draw_snapshot(self.snapshot)
        if isinstance(self.screen, TextScreen):
            self.screen.refresh_lines()

    def _draw_snapshot(self, snapshot: Snapshot) -> None:
        base = self.screen_stack[0]
        low = self.size.height < 5 * _PANEL_ROWS
        lines = max(_PANEL_ROWS, self.size.height // 5)
        gpus = panels.gpu_lines(snapshot, self._history, self.size.width)[: 1 if low else lines]
        time = [] if low else panels.timeline(snapshot, self._history, self.size.width)[:lines]
        self.put(base.query_one("#gpus", Static), "\n".join(gpus))
        self.put(base.query_one("#timeline", Static), "\n".join(time))
        table = base.query_one(ProcessTable)
        shown = rows(snapshot, self._history, self.look)
        table.show(shown, self.size.width)
        self.put(base.query_one("#titles", Static), titles(table.columns, self.look.sort, self.look.descending))
        empty = "no managed process; start one with: gpsched run --class lc|be -- COMMAND" if not shown else "h: help"
        self.put(base.query_one("#status", Static), self.said or (empty if not self.look.text else self._filter()))

    def _filter(self) -> str:
        return f"filter: {self.look.text} (Esc clears)"

    def _heading(self) -> str:
        if self._lost:
            return f"trying again: {self._lost}"
        if self.snapshot is None:
            return "asking the daemon"
        notes = ["paused"] if self.paused else []
        notes += ["read-only"] if self.readonly else []
        return panels.heading(self.snapshot, self.source.label, notes)

    # ---- keys that look

    def action_help(self) -> None:
        """All keys."""
        self.push_screen(TextScreen(lambda: help_lines(readonly=self.readonly)))

    def action_sort(self, by: int) -> None:
        """Sort by the next column, or the one before; before the first is the order by GPU and class."""
        choices: list[Column | None] = [None, *COLUMNS]
        sort = choices[(choices.index(self.look.sort) + by) % len(choices)]
        self._look(replace(self.look, sort=sort))
        self.say(f"sorted by {sort.title if sort else 'GPU and class'}")

    def action_invert(self) -> None:
        """Turn the order round."""
        self._look(replace(self.look, descending=not self.look.descending))

    def action_tree(self) -> None:
        """Tree or flat."""
        self._look(replace(self.look, tree=not self.look.tree))

    def action_filter(self) -> None:
        """Open the input."""
        box = self.query_one("#filter", Input)
        box.add_class("open")
        box.focus()

    def action_clear(self) -> None:
        """Clear and close the filter."""
        self.query_one("#filter", Input).value = ""
        self._close_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        if event.input.id == "filter":
            self._look(replace(self.look, text=event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, go back to the table."""
        if event.input.id == "filter":
            self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("open")
        self.query_one(ProcessTable).focus()

    def action_pause(self) -> None:
        """Stop asking, or go on."""
        self.paused = not self.paused
        self.draw()

    def action_step(self, by: int) -> None:
        """One look on or back; it pauses."""
        self.paused = True
        self.source.step(by - 1)  # reading goes on by one
        self.run_worker(self._read, thread=True, exclusive=True, group="read", exit_on_error=False)

    def action_faster(self, by: int) -> None:
        """Change how often the daemon is asked."""
        nearest = min(range(len(_INTERVALS_S)), key=lambda i: abs(_INTERVALS_S[i] - self._interval_s))
        self._interval_s = _INTERVALS_S[min(max(nearest - by, 0), len(_INTERVALS_S) - 1)]
        self._timer.stop()
        self._timer = self.set_interval(self._interval_s, self.ask_again)
        self.say(f"every {self._interval_s:g} s")

    def action_redraw(self) -> None:
        """Draw everything anew."""
        self.refresh(layout=True)

    def _look(self, view: View) -> None:
        self.look = view
        self.draw()

    def on_process_table_chosen(self, _message: ProcessTable.Chosen) -> None:
        """Enter: all about the process."""
        pid = self.query_one(ProcessTable).pid
        if pid is not None:
            self.push_screen(TextScreen(lambda: self._detail(pid)))

    def _detail(self, pid: int) -> list[str]:
        view = self.process(pid)
        return (
            detail.lines(view, self._history, self.size.width) if view else [f"process {pid} is not managed any more"]
        )
