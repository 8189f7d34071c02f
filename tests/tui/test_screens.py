"""Whole screens as text, and ``gpsched top`` on a real (pseudo) terminal.

After a wanted change: GPSCHED_SNAPSHOTS=write pytest tests/tui/test_screens.py, and read the difference.
"""

import asyncio
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpsched.cli.top.app import TopApp
from tests.cli.test_operate import Serving
from tests.tui import scene
from tests.tui.test_top import Fake, Screen


_SNAPSHOTS = Path(__file__).parent / "snapshots"


def _screen(keys: list[str], size: tuple[int, int]) -> str:
    """What is on the screen after two looks and the keys."""

    async def run() -> str:
        app = TopApp(Fake(), interval_s=3600)
        async with app.run_test(size=size) as pilot:
            screen = Screen(pilot)
            await screen.settle()
            await screen.look()
            await screen.press(*keys)
            lines = [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
            return "\n".join(lines).rstrip() + "\n"

    return asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(
    ("name", "keys", "size"),
    [
        ("80x24", [], (80, 24)),
        ("40x12", [], (40, 12)),
        ("wide-tree", ["t"], (220, 30)),
        ("detail", ["enter"], (120, 30)),
        ("help", ["h"], (90, 40)),
        ("question", ["c"], (80, 24)),
        ("filter", ["slash", *"batch"], (80, 24)),
    ],
)
def test_screen(name: str, keys: list[str], size: tuple[int, int]) -> None:
    path = _SNAPSHOTS / f"{name}.txt"
    text = _screen(keys, size)
    if os.environ.get("GPSCHED_SNAPSHOTS") == "write":
        path.write_text(text)
    assert text == path.read_text()


class Terminal:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, command: list[str], rows: int, columns: int, **environment: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        environ = dict(os.environ, TERM="xterm-256color", **environment)
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environ)
        self.output = b""

    def until(self, found: Callable[[bytes], bool], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not found(self.output):
            assert time.monotonic() < deadline, self.output[-2000:]
            if select.select([self.master], [], [], 0.1)[0]:
                self.output += os.read(self.master, 65536)

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


_TOP = [sys.executable, "-m", "gpsched.cli.main", "top", "-i", "250ms", "--socket"]


@pytest.mark.parametrize("ending", [b"q", b"\x1b[21~"], ids=["q", "F10"])
def test_a_real_terminal_is_left_as_it_was(tmp_path: Path, ending: bytes) -> None:
    path = tmp_path / "s.sock"
    served = Serving(path, {"snapshot": lambda _params: scene.snapshot(1)})
    terminal = Terminal([*_TOP, str(path)], 24, 80)
    try:
        terminal.until(lambda output: b"finetune" in output)
        terminal.press(b"t")
        terminal.until(lambda output: b"no GPU" in output or b"GPU 1" in output)
        terminal.press(ending)
        terminal.until(lambda output: b"\x1b[?1049l" in output)  # back from the alternate screen
        assert terminal.process.wait(30) == 0
        assert termios.tcgetattr(terminal.slave) == terminal.before
    finally:
        terminal.close()
        served.close()


def test_a_daemon_that_goes_and_returns_on_a_real_terminal(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    terminal = Terminal([*_TOP, str(path)], 24, 100)
    try:
        terminal.until(lambda output: b"trying again" in output)
        served = Serving(path, {"snapshot": lambda _params: scene.snapshot(1)})
        terminal.until(lambda output: b"finetune" in output)
        served.close()
        count = terminal.output.count(b"no daemon answers")
        terminal.until(lambda output: output.count(b"no daemon answers") > count)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(30) in (0, -signal.SIGTERM)
    finally:
        terminal.close()
