"""Hints that programs give themselves, in C and in Python: who is told, and how many."""

import ctypes
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpsched.adaptive.hints import explicit
from gpsched.adaptive.probes.events import (
    Event,
    Hint,
    HintEvent,
    RmAlloc,
    WakeEvent,
    decode,
)
from tests.bpf.conftest import PROGRAMS, Recorder, Waker, compile_c, manage, managed_run, python_program


pytestmark = [pytest.mark.root, pytest.mark.bpf]


def test_hints_of_a_c_program(recorder: Recorder, waker: Waker) -> None:
    assert waker.do("hint") == 0
    assert [
        (event.hint, event.in_us, event.tid)
        for event in recorder.of(waker.pid, HintEvent)
        if isinstance(event, HintEvent)
    ] == [(Hint.RESERVE, 0, waker.tid), (Hint.RESERVE, 800, waker.tid), (Hint.CANCEL, 0, waker.tid)]


def test_hints_of_a_service_that_rests_are_told(recorder: Recorder, waker: Waker) -> None:
    """They outrank what is known so well that nothing else is told."""
    recorder.probes.send_fast(waker.pid, True, at_once="never")
    waker.do("hint")
    waker.do("read")
    assert len(recorder.of(waker.pid, HintEvent)) == 3
    assert not recorder.of(waker.pid, WakeEvent)


def test_hints_reach_the_actuator_itself(wakers: Callable[[], Waker]) -> None:
    """Through the daemon they would come later than the usual lead."""
    own, fast = Recorder(), list[Event]()

    def take(_context: object, data: int, size: int) -> int:
        fast.append(decode(ctypes.string_at(data, size)))
        return 0

    try:
        waker = wakers()
        manage(own, waker.pid, "lc")
        own.probes._map("fast").open_ring_buffer(take)
        waker.do("hint")
        own.probes.consume()
        assert not fast  # it has no plan
        own.probes.send_fast(waker.pid, True)
        waker.do("hint")
        own.probes.consume()
        hints = [event for event in fast if isinstance(event, HintEvent)]
        assert [(event.hint, event.in_us) for event in hints] == [
            (Hint.RESERVE, 0),
            (Hint.RESERVE, 800),
            (Hint.CANCEL, 0),
        ]
    finally:
        own.probes.close()


def test_hints_of_a_program_that_was_managed_before_its_exec(
    recorder: Recorder, tmp_path: Path, nvidiactl: str
) -> None:
    """As ``gpsched run`` does it: the program's file is known only once it runs."""
    hinting = compile_c(PROGRAMS / "hinting.c", tmp_path / "hinting")
    command = ["sh", "-c", 'read go; exec "$0" "$1"', str(hinting), nvidiactl]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin
        assert program.stdout
        manage(recorder, program.pid, "lc")
        program.stdin.write("go\n")
        program.stdin.flush()
        assert program.stdout.readline() == "ready\n"
        recorder.wait(lambda: recorder.of(program.pid, RmAlloc))
        assert recorder.probes.wait_attached(30)
        program.stdin.write("hint\n")
        program.stdin.flush()
        recorder.wait(lambda: recorder.of(program.pid, HintEvent))
        program.stdin.write("end\n")


def test_storm_of_hints_is_bounded(recorder: Recorder, waker: Waker) -> None:
    start = time.monotonic()
    waker.do("hint_storm")
    windows = (time.monotonic() - start) / 0.1 + 2
    assert 0 < len(recorder.of(waker.pid, HintEvent)) <= 200 * windows
    counts = recorder.probes.wakes(waker.pid)
    assert counts.throttled > 0
    commands = len(recorder.of(waker.pid, WakeEvent))  # their bytes are read one by one, from a pipe
    assert counts.sent + counts.throttled == 5000 + commands


HINTING = """
from gpsched.adaptive.hints import explicit
print("ready", flush=True)
input()
explicit.reserve_in(250)
explicit.cancel()
print("done", flush=True)
input()
"""


def test_hints_of_a_python_program(recorder: Recorder) -> None:
    """Its library is loaded only with the first hint: it must have been probed ahead."""
    if not explicit.available():
        pytest.skip("the hint library is not built; run: make native")
    recorder.probes.attach_host_libraries()
    with python_program(HINTING) as program:
        managed_run(recorder, program)
        hints = recorder.of(program.pid, HintEvent)
    assert [(event.hint, event.in_us) for event in hints if isinstance(event, HintEvent)] == [
        (Hint.RESERVE, 250),
        (Hint.CANCEL, 0),
    ]
