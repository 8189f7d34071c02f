"""What threads come back from: kind, descriptor, size and thread of each; whose are sent, and how many."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpsched.adaptive.probes.events import (
    UNKNOWN,
    CudaEvent,
    HintEvent,
    Wake,
    WakeEvent,
)
from gpsched.adaptive.probes.wakes import HOOKS, WAKING, WakeHooks
from tests.bpf import fake_cuda
from tests.bpf.conftest import COMMANDS, Recorder, Victim, Waker, launched, manage, managed_run, python_program, wakes


pytestmark = [pytest.mark.root, pytest.mark.bpf]


@pytest.mark.parametrize(
    ("command", "wake", "size"),
    [
        ("read", Wake.SOCKET_READ, 300),
        ("readv", Wake.SOCKET_READ, 300),
        ("recv", Wake.SOCKET_READ, 300),
        ("recvmsg", Wake.SOCKET_READ, 300),
        ("recvmmsg", Wake.SOCKET_READ, 0),
        ("pipe", Wake.PIPE, 77),
        ("eventfd", Wake.EVENTFD, 8),
        ("timerfd", Wake.TIMER, 8),
        ("accept", Wake.ACCEPT, 0),
        ("accept4", Wake.ACCEPT, 0),
        ("epoll", Wake.EPOLL, 0),
        ("epoll_pwait2", Wake.EPOLL, 0),
    ],
)
def test_waits_on_a_descriptor(recorder: Recorder, waker: Waker, command: str, wake: Wake, size: int) -> None:
    before = time.monotonic_ns()
    descriptor = waker.do(command)
    assert descriptor > 0
    (event,) = wakes(recorder, waker.pid)
    assert (event.wake, event.descriptor, event.size, event.tid) == (wake, descriptor, size, waker.tid)
    assert event.result == size if size else event.result > 0
    assert waker.tid != waker.pid
    assert before < event.time_ns < time.monotonic_ns()


@pytest.mark.parametrize(
    ("command", "wake"),
    [
        ("poll", Wake.EPOLL),
        ("ppoll", Wake.EPOLL),
        ("select", Wake.EPOLL),
        ("poll_timeout", Wake.SLEEP),
        ("nanosleep", Wake.SLEEP),
        ("clock_nanosleep", Wake.SLEEP),
        ("futex", Wake.FUTEX),
        ("futex_timeout", Wake.SLEEP),
    ],
)
def test_waits_without_a_descriptor(recorder: Recorder, waker: Waker, command: str, wake: Wake) -> None:
    assert waker.do(command) == 0
    (event,) = wakes(recorder, waker.pid, waker.tid)
    assert (event.wake, event.descriptor, event.size) == (wake, UNKNOWN, 0)


def test_elapsed_epoll_is_a_sleep(recorder: Recorder, waker: Waker) -> None:
    descriptor = waker.do("epoll_timeout")
    counter, elapsed = wakes(recorder, waker.pid)
    assert counter.wake is Wake.EVENTFD
    assert (elapsed.wake, elapsed.descriptor, elapsed.size, elapsed.result) == (Wake.SLEEP, descriptor, 0, 0)


@pytest.mark.parametrize("command", ["file", "nothing", "end", "epoll_look"])
def test_what_never_waited_is_silent(recorder: Recorder, waker: Waker, command: str) -> None:
    """Files, devices, empty sockets, closed ones, a look without a wait."""
    assert waker.do(command) >= 0
    assert wakes(recorder, waker.pid) == []


def test_number_that_is_used_again_has_its_new_kind(recorder: Recorder, waker: Waker) -> None:
    number = waker.do("reuse")
    assert [(event.wake, event.descriptor, event.size) for event in wakes(recorder, waker.pid)] == [
        (Wake.PIPE, number, 5),
        (Wake.SOCKET_READ, number, 6),
    ]


@pytest.mark.parametrize("class_", [None, "be"])
def test_others_are_silent(recorder: Recorder, waker: Waker, wakers: Callable[[], Waker], class_: str | None) -> None:
    other = wakers()
    if class_:
        manage(recorder, other.pid, class_)
    for command in ("read", "accept", "epoll", "nanosleep", "futex_timeout", "hint"):
        assert other.do(command) >= 0
    assert recorder.of(other.pid, WakeEvent, HintEvent) == []
    assert recorder.probes.wakes(other.pid) == (0, 0, 0)
    waker.do("read")
    assert len(wakes(recorder, waker.pid)) == 1, "the hooks are there"


def test_storm_is_bounded_and_counted(recorder: Recorder, waker: Waker) -> None:
    """10,000 reads of one descriptor; what another one tells meanwhile is not drowned."""
    start = time.monotonic()
    waker.do("storm")
    windows = (time.monotonic() - start) / 0.1 + 2
    waker.do("read")
    seen = wakes(recorder, waker.pid)
    sent, throttled, unrelated = recorder.probes.wakes(waker.pid)
    assert len(seen) <= 200 * windows + 1
    assert seen[-1].wake is Wake.SOCKET_READ
    assert throttled > 0
    assert unrelated == 0
    told = [event for event in recorder.of(waker.pid, WakeEvent) if isinstance(event, WakeEvent)]
    commands = sum(event.descriptor == COMMANDS for event in told)
    assert sent == len(seen) + commands
    assert sent + throttled == 10_000 + 1 + commands, "each is sent or counted"


def test_futexes_of_threads_without_cuda_calls_fall_silent(recorder: Recorder, waker: Waker) -> None:
    waker.do("crowd")
    assert len(wakes(recorder, waker.pid, waker.tid)) == 16
    assert recorder.probes.wakes(waker.pid).unrelated == 84


def test_processes_that_launch_nothing_send_no_wakes(recorder: Recorder, wakers: Callable[[], Waker]) -> None:
    """Their hints are heard all the same."""
    waker = wakers()
    recorder.probes.manage(waker.pid, "lc")
    assert recorder.probes.wait_attached(30)
    waker.do("read")
    waker.do("hint")
    assert not recorder.of(waker.pid, WakeEvent)
    assert recorder.of(waker.pid, HintEvent)
    assert recorder.probes.wakes(waker.pid).unrelated > 0
    launched(recorder.probes, waker.pid)
    waker.do("read")
    assert wakes(recorder, waker.pid)


def test_cuda_call_makes_a_thread_s_futexes_matter(recorder: Recorder, tmp_path: Path) -> None:
    library = fake_cuda.build(tmp_path, ("cuLaunchKernel",))
    with python_program(FUTEX_WORKER, str(library)) as program:
        launcher = int(managed_run(recorder, program))
    launches = [event for event in recorder.of(program.pid, CudaEvent) if not event.is_return]  # type: ignore[attr-defined]
    assert len(launches) == 100
    woken = [event for event in wakes(recorder, program.pid, launcher) if event.wake is Wake.FUTEX]
    before_launch = [any(w.time_ns < launch.time_ns for w in woken[index:]) for index, launch in enumerate(launches)]
    assert len(woken) >= 95, "a wake for nearly each launch, long after the first 16"
    assert sum(before_launch) >= 95


FUTEX_WORKER = """
import ctypes, queue, sys, threading, time
library, jobs, done = ctypes.CDLL(sys.argv[1]), queue.SimpleQueue(), queue.SimpleQueue()
def work():
    while jobs.get():
        library.cuLaunchKernel()
        done.put(threading.get_native_id())
threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
input()
for _ in range(100):
    time.sleep(0.002)
    jobs.put(1)
    tid = done.get()
print(tid, flush=True)
"""


def test_waits_inside_of_cuda_calls_are_the_library_s_own(recorder: Recorder, tmp_path: Path) -> None:
    sleeping = "#include <unistd.h>\nint cuStreamSynchronize(void) { usleep(1000); return 0; }"
    library = fake_cuda.build(tmp_path, ("cuLaunchKernel",), sleeping)
    with python_program(SYNCHRONIZING, str(library)) as program:
        managed_run(recorder, program)
        calls = recorder.of(program.pid, CudaEvent)
        sleeps = [event for event in wakes(recorder, program.pid) if event.wake is Wake.SLEEP]
        unrelated = recorder.probes.wakes(program.pid).unrelated
    assert len(calls) == 20
    assert len(sleeps) == 1
    assert sleeps[0].time_ns > calls[-1].time_ns
    assert unrelated >= 10


SYNCHRONIZING = """
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
input()
for _ in range(10):
    library.cuStreamSynchronize()
time.sleep(0.001)
print("done", flush=True)
input()
"""


def test_kernel_that_refuses_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever was hooked before is unhooked, nobody waits for it, and it is not tried again."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    hooks = WakeHooks(dict.fromkeys(HOOKS, -1))
    hooks.want(True)
    assert hooks.wait(10)
    hooks.want(False)
    hooks.want(True)
    hooks.close()
    assert not hooks.attached()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_kernel_that_hides_wake_ups_costs_only_their_lead(caplog: pytest.LogCaptureFixture) -> None:
    own = Recorder()
    try:
        hooks = WakeHooks({**own.probes._loaded().wakes._programs, WAKING: -1})
        hooks.want(True)
        assert hooks.wait(10)
        assert hooks.attached()
        hooks.close()
    finally:
        own.probes.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "being woken" in caplog.text


ASYNCIO_SERVER = """
import asyncio
async def serve(reader, writer):
    while data := await reader.read(4096):
        writer.write(data)
        await writer.drain()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], server.sockets[0].fileno(), flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def test_asyncio_server(recorder: Recorder) -> None:
    """Each request is an epoll return and a read of the connection; the connection is accepted once."""
    with python_program(ASYNCIO_SERVER) as program:
        assert program.stdout
        port, listener = map(int, program.stdout.readline().split())
        manage(recorder, program.pid, "lc")
        asyncio.run(ask(port, 20))
        seen = wakes(recorder, program.pid)
    accepted = [event for event in seen if event.wake is Wake.ACCEPT]
    reads = [event for event in seen if event.wake is Wake.SOCKET_READ and event.size == 500]
    polls = [event for event in seen if event.wake is Wake.EPOLL]
    assert [event.descriptor for event in accepted] == [listener]
    assert {event.descriptor for event in reads} == {accepted[0].result}
    assert len(reads) == 20
    assert len(polls) >= 20
    assert len({event.descriptor for event in polls}) == 1
    assert all(any(poll.time_ns < read.time_ns for poll in polls) for read in reads)


async def ask(port: int, requests: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(requests):
        writer.write(b"x" * 500)
        await reader.readexactly(500)
    writer.close()


def test_hooks_are_there_only_for_latency_critical_processes(
    wakers: Callable[[], Waker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WakeHooks, "LINGER_S", 0.1)
    own = Recorder()
    hooks = own.probes._loaded().wakes
    try:
        first, second = wakers(), wakers()
        manage(own, first.pid, "be")
        assert not hooks.attached()
        for waker in (first, second):
            manage(own, waker.pid, "lc")
        assert hooks.attached()
        own.probes.manage(first.pid, "be")
        second.do("read")
        assert len(wakes(own, second.pid)) == 1, "one is left"
        second.close()
        own.wait(lambda: not hooks.attached())
        manage(own, first.pid, "lc")
        first.do("read")
        assert len(wakes(own, first.pid)) == 1, "and again, once"
    finally:
        own.probes.close()
    assert not hooks.attached()


def test_child_keeps_the_hooks(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of a latency-critical server outlives it."""
    monkeypatch.setattr(WakeHooks, "LINGER_S", 0.1)
    own = Recorder()
    try:
        manage(own, victim.pid, "lc")
        child = victim.do("hold")
        own.of(child)
        own.probes.forget(victim.pid)
        own.of(victim.pid)
        time.sleep(0.5)
        assert own.probes._loaded().wakes.attached()
        assert child in own.probes.managed()
    finally:
        own.probes.close()


def test_quiet_events_are_there_whenever_they_are_looked_for(recorder: Recorder, waker: Waker) -> None:
    """Also after the ring was found empty: then nothing makes it readable again."""
    recorder.probes.send_fast(waker.pid, True)
    for _ in range(3):
        waker.do("read")
        recorder.events.clear()
        recorder.probes.consume()
        assert [event for event in recorder.events if isinstance(event, WakeEvent) and event.pid == waker.pid]
        recorder.probes.consume()


def test_change_of_class_keeps_the_actuator_s_copy(recorder: Recorder, victim: Victim) -> None:
    recorder.probes.manage(victim.pid, "be")
    recorder.probes.send_fast(victim.pid, True)
    recorder.probes.manage(victim.pid, "lc")
    managed = recorder.probes._map("managed")
    assert managed[managed.Key(victim.pid)].flags == 1
