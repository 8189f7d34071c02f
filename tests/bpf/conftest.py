"""Programs that do on command what GPU programs do, and probes that watch them."""

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.errors import UnsupportedHostError
from gpsched.adaptive.probes.errors import BpfRefusedError
from gpsched.adaptive.probes.events import Call, Event, WakeEvent
from gpsched.adaptive.probes.probes import Probes


PROGRAMS = Path(__file__).parent / "programs"
CFLAGS = ("-O1", "-g", "-Wall", "-Wextra", "-Werror")

RM_FREE, RM_CONTROL, RM_ALLOC, RM_ALLOC_LONG = 0xC0104629, 0xC020462A, 0xC020462B, 0xC030462B
DUP_OBJECT, XFER = 0xC01C4634, 0xC01046D3
SET_TIMESLICE = 0xA06C0103
ROOT_CLIENT, CHANNEL_GROUP = 0x41, 0xA06C
COMMANDS = 0  # the descriptor from which a waker reads what to do


class Victim:
    """A running programs/victim.c."""

    def __init__(self, program: Path, *prefix: str) -> None:
        self._process = subprocess.Popen([*prefix, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        assert self._answer() == "ready"

    def do(self, command: str) -> int:
        self.send(command)
        return int(self._answer())

    def send(self, command: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def execute(self) -> None:
        """Replace the program by itself."""
        self.send("exec")
        assert self._answer() == "ready"

    def ioctl(self, fd: int, number: int, *parts: bytes | int) -> int:
        words = [part.hex() if isinstance(part, bytes) else str(part) for part in parts]
        return self.do(f"ioctl {fd} {number} {' '.join(words)}")

    def allocate_client(self, fd: int, client: int = 0xC1D00001) -> int:
        return self.ioctl(fd, RM_ALLOC, struct.pack("=4IQ2I", client, client, client, ROOT_CLIENT, 0, 0, 0))

    def end(self, command: str = "exit 0") -> int:
        with contextlib.suppress(OSError):
            self.send(command)
        return self._process.wait(10)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()


class Recorder:
    """Probes whose events are kept."""

    def __init__(self, **options: int) -> None:
        self.probes = Probes(**options)
        self.events: list[Event] = []
        self.probes.load(self.events.append)

    def of(self, pid: int, *types: type) -> list[Event]:
        """Everything that is there of one process, of the types if any are given, else all but wakes.

        For victims read their commands from a pipe.
        """
        while self.probes.poll(20):
            pass
        found = (event for event in self.events if event.pid == pid)
        return [event for event in found if (isinstance(event, types) if types else not isinstance(event, WakeEvent))]

    def wait(self, condition: Callable[[], object], timeout_s: float = 10.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not seen: {self.events[-5:]}"
            self.probes.poll(20)


class Waker(Victim):
    """A running programs/waker.c."""

    tid = 0

    def do(self, command: str) -> int:
        self.send(command)
        descriptor, self.tid = map(int, self._answer().split())
        return descriptor


def manage(recorder: Recorder, pid: int, class_: str) -> None:
    recorder.probes.manage(pid, class_)
    launched(recorder.probes, pid)
    assert recorder.probes.wait_attached(30)


def launched(probes: Probes, pid: int) -> None:
    """Have it counted as one that uses the GPU, whose wakes matter."""
    counters = probes._map("counters")
    key = counters.Key(pid)
    counts = counters[key]
    counts.calls[Call.LAUNCH] += 1
    counters[key] = counts


def wakes(recorder: Recorder, pid: int, tid: int | None = None) -> list[WakeEvent]:
    """What threads came back from."""
    return [event for event in _woken(recorder, pid, tid) if not event.wake.name.endswith("_WAKING")]


def wakings(recorder: Recorder, pid: int, tid: int | None = None) -> list[WakeEvent]:
    """What threads were woken out of."""
    return [event for event in _woken(recorder, pid, tid) if event.wake.name.endswith("_WAKING")]


def _woken(recorder: Recorder, pid: int, tid: int | None) -> list[WakeEvent]:
    found = [event for event in recorder.of(pid, WakeEvent) if isinstance(event, WakeEvent)]
    return [event for event in found if event.descriptor != COMMANDS and tid in (None, event.tid)]


@contextlib.contextmanager
def python_program(text: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", text, *arguments]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder]:
    """Skips only for what the machine lacks: a program that the compiler or the verifier refuses is our fault."""
    try:
        made = Recorder()
    except UnsupportedHostError as error:
        if os.environ.get("GPSCHED_REQUIRE_BPF") or isinstance(error, BpfRefusedError):
            raise
        pytest.skip(str(error))
    yield made
    made.probes.close()


def managed_run(recorder: Recorder, program: "subprocess.Popen[str]") -> str:
    """Have a program that is ready managed, let it go on, and return what it says next."""
    assert program.stdout
    assert program.stdin
    program.stdout.readline()
    manage(recorder, program.pid, "lc")
    program.stdin.write("go\n")
    program.stdin.flush()
    return program.stdout.readline()


def compile_c(source: Path, output: Path, *flags: str) -> Path:
    subprocess.run(["gcc", *CFLAGS, "-o", output, source, *flags], check=True)
    return output


@pytest.fixture(scope="session")
def victim_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "victim.c", tmp_path_factory.mktemp("victim") / "victim", "-ldl", "-pthread")


@pytest.fixture
def victims(victim_program: Path) -> Iterator[Callable[..., Victim]]:
    """Starts victims; they are gone after the test."""
    with contextlib.ExitStack() as stack:

        def start(*prefix: str) -> Victim:
            made = Victim(victim_program, *prefix)
            stack.callback(made.close)
            return made

        yield start


@pytest.fixture
def victim(victims: Callable[..., Victim]) -> Victim:
    return victims()


@pytest.fixture(scope="module")
def waker_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "waker.c", tmp_path_factory.mktemp("waker") / "waker", "-pthread")


@pytest.fixture
def wakers(waker_program: Path) -> Iterator[Callable[[], Waker]]:
    with contextlib.ExitStack() as stack:

        def start() -> Waker:
            made = Waker(waker_program)
            stack.callback(made.close)
            return made

        yield start


@pytest.fixture
def waker(recorder: Recorder, wakers: Callable[[], Waker]) -> Waker:
    """One that is latency-critical."""
    made = wakers()
    manage(recorder, made.pid, "lc")
    return made


@pytest.fixture(scope="session")
def nvidiactl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A file that answers every RM ioctl with success."""
    folder = tmp_path_factory.mktemp("fakectl")
    if not Path("/dev/fuse").exists() or not shutil.which("fusermount3"):
        pytest.skip("no FUSE on this machine")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True)
    program = compile_c(PROGRAMS / "fakectl.c", folder / "fakectl", *flags.stdout.split())
    mount = folder / "dev"
    mount.mkdir()
    process = subprocess.Popen([program, mount])
    try:
        deadline = time.monotonic() + 10
        while not (mount / "nvidiactl").exists():
            assert time.monotonic() < deadline, "fakectl did not mount"
            time.sleep(0.02)
        yield str(mount / "nvidiactl")
    finally:
        subprocess.run(["fusermount3", "-u", "-z", mount], check=False)
        process.wait(10)
