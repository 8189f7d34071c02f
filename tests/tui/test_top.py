"""``gpsched top`` driven by keys, on a terminal that exists in memory only."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from gpsched.adaptive.errors import DaemonUnreachableError
from gpsched.adaptive.knobs import Value
from gpsched.adaptive.model import Class, ProcessView, Snapshot
from gpsched.adaptive.record import Record, Writer
from gpsched.cli.top.app import TopApp
from gpsched.cli.top.columns import COLUMNS, Cell, fitting
from gpsched.cli.top.keys import KEYS
from gpsched.cli.top.screens import Question, TextScreen
from gpsched.cli.top.source import Live, Replay
from gpsched.cli.top.table import ProcessTable
from tests.tui import scene


class Fake:
    """A source whose daemon can be taken away; ``changes`` is what it was asked to do."""

    label = "live"

    def __init__(self) -> None:
        self.second = 0
        self.lost = False
        self.asked = threading.Event()
        self.changes: list[tuple[str, int, str]] = []
        self.settings: list[dict[str, dict[str, Any]]] = []
        self.pins: list[tuple[str, object]] = []
        self.like: ProcessView | None = None
        self.snapshot: Callable[[int], Snapshot] = scene.snapshot

    def read(self) -> Snapshot:
        self.asked.set()
        if self.lost:
            raise DaemonUnreachableError("/run/s", "gone")
        self.second += 1
        return self.snapshot(self.second)

    def step(self, by: int) -> None:
        self.second += by

    def attach(self, pid: int, class_: Class, like: ProcessView | None = None) -> None:
        self.changes.append(("attach", pid, class_))
        self.like = like

    def detach(self, pid: int) -> None:
        self.changes.append(("detach", pid, ""))

    def set(self, changes: dict[str, dict[str, Any]]) -> None:
        self.settings.append(changes)

    def pin(self, knob: str, value: Value) -> None:
        self.pins.append((knob, value))

    def unpin(self, knob: str) -> None:
        self.pins.append((knob, None))


class Screen:
    """What is on the screen, and keys."""

    def __init__(self, pilot: Pilot[None]) -> None:
        self.pilot = pilot
        app = pilot.app
        assert isinstance(app, TopApp)
        self.app: TopApp = app

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def look(self) -> None:
        """Another snapshot, now."""
        self.app.ask_again()
        await self.settle()

    async def settle(self) -> None:
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    def text(self, name: str) -> str:
        return str(self.app.screen_stack[0].query_one(f"#{name}", Static).render())

    @property
    def table(self) -> ProcessTable:
        return self.app.screen_stack[0].query_one(ProcessTable)

    def column(self, title: str) -> list[str]:
        return [cell.text.strip() for cell in self.cells(title)]

    def cells(self, title: str) -> list[Cell]:
        return [row.cells.get(title, Cell("")) for row in self.table.rows]

    def drawn(self) -> list[str]:
        """The lines of the table as the terminal gets them."""
        return [self.table.render_line(y).text for y in range(len(self.table.rows))]

    def titles(self) -> list[str]:
        return [column.title for column in self.table.columns]

    def overlay(self) -> str:
        return str(self.app.screen.query_one("#text", Static).render())


def drive(
    script: Callable[[Screen], Awaitable[None]], app: TopApp | None = None, size: tuple[int, int] = (200, 40)
) -> None:
    """Run the script against the application; no timer of its own asks for snapshots."""

    async def run() -> None:
        driven = app or TopApp(Fake(), interval_s=3600)
        async with driven.run_test(size=size) as pilot:
            screen = Screen(pilot)
            await screen.settle()
            await script(screen)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_shows_every_process_with_its_numbers() -> None:
    async def script(screen: Screen) -> None:
        await screen.look()
        assert screen.column("PID") == ["100", "200", "300", "400"]
        assert screen.column("SLICE") == ["1 s", "1 µs", "1 s", "1 µs"]
        assert screen.column("LNCH/S") == ["100", "2000", "0", "0"]
        assert screen.column("RESV/S")[0] == "10"
        assert screen.column("SHARE") == ["-", "62%", "-", "-"]
        assert screen.column("TRIGGER")[0] == "read socket"
        assert "2 lc, 2 be" in screen.text("heading")
        assert "engine: train (200)" in screen.text("gpus")
        assert "412/700 W" in screen.text("gpus")
        assert "30.0/140 GiB" in screen.text("gpus")
        first, second = screen.text("gpus").splitlines()
        assert "1 lc p50 500 µs, p99 900 µs of 5 ms  1 be 62% 2000 launches/s" in first
        assert "10 reservations/s, 1.9 ms hidden, 120 µs wasted" in first
        assert second.startswith("GPU 1  1 lc p50 1.54 ms, p99 2.04 ms of 1 ms  1 be 0 launches/s")

    drive(script)


def test_the_margin_to_the_objective_has_a_colour() -> None:
    async def script(screen: Screen) -> None:
        assert [cell.style for cell in screen.cells("P99")][::2] == ["green", "bold red"]
        styles = [segment.style for segment in screen.table.render_line(2) if "ms" in segment.text]
        assert any(style and style.color and style.color.name == "red" for style in styles)

    drive(script)


def test_the_timeline_shows_reservations_and_bursts() -> None:
    async def script(screen: Screen) -> None:
        line = screen.text("timeline").splitlines()[0]
        assert "▒" in line
        assert line.index("▒") < line.index("█")

    drive(script)


def test_only_changed_lines_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(screen: Screen) -> None:
        await screen.look()
        touched: list[int] = []
        monkeypatch.setattr(screen.table, "refresh_line", touched.append)
        await screen.look()
        assert touched == []  # the same rates again
        source = screen.app.source
        assert isinstance(source, Fake)
        source.snapshot = lambda second: scene.snapshot(
            second, processes=[scene.process(100, "serve", "lc"), *scene.snapshot(second).processes[1:]]
        )
        await screen.look()
        assert touched == [0]

    drive(script)


def test_the_terminal_gets_lines_of_its_width() -> None:
    source = Fake()
    source.snapshot = lambda second: scene.snapshot(
        second, processes=[scene.process(1, "a\x1b[31m\n漢字漢字漢字漢字", "be"), scene.process(2, "b", "lc")]
    )

    async def script(screen: Screen) -> None:
        assert {len(line) + sum(char in "漢字" for char in line) for line in screen.drawn()} == {200}
        assert not any("\x1b" in line or "\n" in line for line in screen.drawn())

    drive(script, TopApp(source, interval_s=3600))


def test_sort_invert_and_back() -> None:
    async def script(screen: Screen) -> None:
        await screen.look()
        await screen.press("greater_than_sign")
        assert "sorted by PID" in screen.text("status")
        await screen.press("I")
        assert screen.column("PID") == ["400", "300", "200", "100"]
        for _ in range([column.title for column in COLUMNS].index("LNCH/S")):
            await screen.press("greater_than_sign")
        assert screen.column("PID")[:2] == ["200", "100"]
        for _ in range([column.title for column in COLUMNS].index("LNCH/S") + 1):
            await screen.press("less_than_sign")
        assert screen.column("PID") == ["100", "200", "300", "400"]

    drive(script)


def test_filter_while_typing_and_clear() -> None:
    async def script(screen: Screen) -> None:
        await screen.press("slash", *"batch")
        assert screen.column("PID") == ["200", "400"]
        await screen.press("enter")
        assert screen.column("PID") == ["200", "400"]
        assert "filter: batch" in screen.text("status")
        await screen.press("slash", *"xyz")
        assert screen.column("PID") == []
        await screen.press("escape")
        assert screen.column("PID") == ["100", "200", "300", "400"]

    drive(script)


def test_tree() -> None:
    async def script(screen: Screen) -> None:
        await screen.press("t")
        assert screen.column("PID") == [
            "GPU 0", "web", "100", "0074", "batch", "200", "00d8",
            "GPU 1", "web", "300", "013c", "batch", "400", "01a0",
        ]  # fmt: skip
        assert len(screen.column("PID")) == 14
        await screen.press("t")
        assert len(screen.column("PID")) == 4

    drive(script)


def test_the_cursor_stays_on_its_process() -> None:
    async def script(screen: Screen) -> None:
        await screen.press("j", "down")
        assert screen.table.pid == 300
        await screen.press("greater_than_sign", "I")
        assert screen.table.pid == 300
        await screen.press("k", "end")
        assert screen.table.pid == 100

    drive(script)


def test_detail_follows_the_process_and_says_when_it_is_gone() -> None:
    async def script(screen: Screen) -> None:
        await screen.look()
        await screen.press("enter")
        assert isinstance(screen.app.screen, TextScreen)
        for expected in ("serve", "p99", "objective 5 ms", "read socket, lead 700 µs", "wanted 1 s, own 2.05 ms", "▁"):
            assert expected in screen.overlay() or expected == "▁", expected
        assert "100.0/s" in screen.overlay()
        source = screen.app.source
        assert isinstance(source, Fake)
        source.snapshot = lambda second: scene.snapshot(second, processes=[])
        await screen.look()
        assert "not managed any more" in screen.overlay()
        await screen.press("escape")
        assert "no managed process" in screen.text("status")

    drive(script)


def test_help_has_every_key() -> None:
    async def script(screen: Screen) -> None:
        await screen.press("question_mark")
        for key in KEYS:
            assert key.help in screen.overlay()
        await screen.press("escape")
        assert not isinstance(screen.app.screen, TextScreen)

    drive(script)


def test_every_key_is_bound() -> None:
    table = {name for binding in ProcessTable.BINDINGS if isinstance(binding, tuple) for name in binding[0].split(",")}
    for key in KEYS:
        action = f"action_{key.action.partition('(')[0]}"
        if key.action:
            assert hasattr(TopApp, action) or hasattr(App, action), key
        else:
            assert set(key.keys.split(",")) <= table, key


def test_changes_need_a_yes() -> None:
    async def script(screen: Screen) -> None:
        source = screen.app.source
        assert isinstance(source, Fake)
        await screen.press("c")
        assert isinstance(screen.app.screen, Question)
        await screen.press("n")
        assert source.changes == []
        await screen.press("c", "y")
        assert source.like is not None
        assert source.like.pid == 100
        await screen.press("j", "d", "y")
        await screen.press("a", *"77 be", "enter", "y")
        assert source.changes == [("attach", 100, "be"), ("detach", 200, ""), ("attach", 77, "be")]
        await screen.press("a", *"77", "enter")
        assert "not a pid and a class" in screen.text("status")

    drive(script)


def test_a_setting_needs_a_yes_too() -> None:
    async def script(screen: Screen) -> None:
        source = screen.app.source
        assert isinstance(source, Fake)
        await screen.press("p", *"reservations.be_floor=0.2", "enter")
        assert source.settings == []
        await screen.press("y")
        assert source.settings == [{"reservations": {"be_floor": 0.2}}]
        await screen.press("p", *"be_floor", "enter")
        assert "is not SECTION.KEY=VALUE" in screen.text("status")

    drive(script)


def test_a_pin_needs_a_yes_and_a_value_within_its_bounds() -> None:
    async def script(screen: Screen) -> None:
        source = screen.app.source
        assert isinstance(source, Fake)
        await screen.press("P", *"be_us=100", "enter", "n")
        assert source.pins == []
        await screen.press("P", *"be_us=100", "enter", "y")
        await screen.press("P", *"reservations.level=hold", "enter", "y")
        await screen.press("U", *"be_us", "enter", "y")
        assert source.pins == [("timeslice.be_us", 100), ("reservations.level", "hold"), ("timeslice.be_us", None)]
        for keys, message in (("be_us=0", "1 to 10000"), ("be_us", "is not KNOB=VALUE"), ("x=1", "no knob 'x'")):
            await screen.press("P", *keys, "enter")
            assert message in screen.text("status")
        await screen.press("U", *"y", "enter")
        assert "no knob 'y'" in screen.text("status")
        assert len(source.pins) == 3

    drive(script)


def test_readonly_refuses_every_change() -> None:
    source = Fake()

    async def script(screen: Screen) -> None:
        for key in KEYS:
            if key.changes:
                await screen.press(key.keys)
                assert not isinstance(screen.app.screen, Question)
                assert screen.text("status") == "refused: read-only"
        await screen.press("h")
        assert screen.overlay().count("refused: --readonly") == sum(key.changes for key in KEYS)

    drive(script, TopApp(source, interval_s=3600, readonly=True))
    assert source.changes == []


def test_what_was_said_goes_again() -> None:
    async def script(screen: Screen) -> None:
        assert screen.text("status") == "h: help"
        screen.app.say("done")
        assert screen.text("status") == "done"
        screen.app._unsay("something older")
        assert screen.text("status") == "done"
        screen.app._unsay("done")
        assert screen.text("status") == "h: help"

    drive(script)


def test_a_refused_change_is_said() -> None:
    class Refusing(Fake):
        def detach(self, pid: int) -> None:
            raise DaemonUnreachableError("/run/s", "not for you")

    async def script(screen: Screen) -> None:
        await screen.press("d", "y")
        assert "not for you" in screen.text("status")

    drive(script, TopApp(Refusing(), interval_s=3600))


def test_a_daemon_that_goes_away_and_comes_back() -> None:
    async def script(screen: Screen) -> None:
        source = screen.app.source
        assert isinstance(source, Fake)
        source.lost = True
        await screen.look()
        assert "trying again" in screen.text("heading")
        assert screen.column("PID") == ["100", "200", "300", "400"]  # what was known stays
        source.lost = False
        await screen.look()
        assert "2 lc, 2 be" in screen.text("heading")
        assert "back" in screen.text("status")

    drive(script)


def test_starting_without_a_daemon() -> None:
    source = Fake()
    source.lost = True

    async def script(screen: Screen) -> None:
        assert "trying again" in screen.text("heading")
        await screen.press("enter", "c", "t", "slash", "x", "escape")
        source.lost = False
        await screen.look()
        assert len(screen.column("PID")) == 14

    drive(script, TopApp(source, interval_s=3600))


def test_pause_stops_asking() -> None:
    async def script(screen: Screen) -> None:
        source = screen.app.source
        assert isinstance(source, Fake)
        await screen.press("space")
        before = source.second
        await screen.look()
        assert source.second == before
        assert "paused" in screen.text("heading")
        await screen.press("space")
        await screen.look()
        assert source.second == before + 1

    drive(script)


def test_replay_steps_through_a_record(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "r.jsonl")
    for second in range(5):
        writer.put(scene.snapshot(second))
    writer.close()

    async def script(screen: Screen) -> None:
        assert "replay 1/5" in screen.text("heading")
        await screen.press("full_stop", "full_stop")
        assert "replay 3/5" in screen.text("heading")
        assert screen.column("LNCH/S")[0] == "100"
        await screen.press("comma")
        assert "replay 2/5" in screen.text("heading")
        await screen.press(*["full_stop"] * 9)
        assert "replay 5/5" in screen.text("heading")
        await screen.press("d")
        assert screen.text("status") == "refused: read-only"

    drive(script, TopApp(Replay(Record(tmp_path / "r.jsonl")), interval_s=3600, readonly=True))


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (20, 6), (5, 2), (300, 80)])
def test_any_size(size: tuple[int, int]) -> None:
    async def script(screen: Screen) -> None:
        await screen.look()
        titles = screen.titles()
        assert titles == [column.title for column in fitting(size[0])]
        assert titles[0] == "PID"
        assert screen.column("PID") == ["100", "200", "300", "400"]
        await screen.press("h", "escape", "t", "enter", "escape")

    drive(script, size=size)


def test_what_80_columns_show() -> None:
    assert [column.title for column in fitting(80)] == [
        "PID", "CLASS", "LEVEL", "GPU", "SLICE", "SLO", "P99", "LNCH/S", "NAME",
    ]  # fmt: skip


def test_a_resize_changes_the_columns() -> None:
    async def script(screen: Screen) -> None:
        await screen.pilot.resize_terminal(30, 24)
        await screen.settle()
        assert screen.titles() == [column.title for column in fitting(30)]

    drive(script)


def test_names_with_markup_are_only_text() -> None:
    source = Fake()
    source.snapshot = lambda second: scene.snapshot(
        second, processes=[scene.process(1, "[bold]x[/] [/nope]", "be", reason="[red]")]
    )

    async def script(screen: Screen) -> None:
        assert screen.column("NAME") == ["[bold]x[/] [/nope]"]
        await screen.press("enter")
        assert "[red]" in screen.overlay()

    drive(script, TopApp(source, interval_s=3600))


def test_the_rate_of_looks_has_bounds() -> None:
    async def script(screen: Screen) -> None:
        await screen.press(*["plus"] * 8)
        assert screen.app._interval_s == 0.25
        await screen.press(*["minus"] * 12)
        assert screen.app._interval_s == 10.0

    drive(script)


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(screen: Screen) -> None:
        assert screen.app.no_color
        assert screen.column("PID") == ["100", "200", "300", "400"]

    drive(script)


def test_another_class_keeps_what_else_was_said_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    class Noting:
        def __init__(self, _path: str, timeout_s: float) -> None: ...

        def attach(self, pid: int, class_: Class, **more: Any) -> None:
            calls.append({"pid": pid, "class": class_} | more)

    monkeypatch.setattr("gpsched.cli.top.source.Client", Noting)
    view = scene.process(7, "x", "lc", slo_us=5000.0, tenant="web", priority=2, weight=3.0)
    live = Live("/s")
    live.attach(7, "be", view)
    live.attach(7, "lc", view)
    live.attach(8, "be")
    kept = {"tenant": "web", "priority": 2, "weight": 3.0}
    assert calls == [
        {"pid": 7, "class": "be"} | kept,
        {"pid": 7, "class": "lc", "slo_us": 5000.0} | kept,
        {"pid": 8, "class": "be"},
    ]
