"""Threads that are woken out of a wait: told when their CPU has yet to wake, so before they come back."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from gpsched.adaptive.probes.events import UNKNOWN, Wake
from tests.bpf.conftest import Recorder, Waker, manage, python_program, wakes, wakings


if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.root, pytest.mark.bpf]

# A worker waits as each line says, for what the main thread gives 20 ms later.
WAITER = """
import ctypes, os, queue, select, socket, sys, threading, time
libc, timer = ctypes.CDLL(None), ctypes.CDLL(None).timerfd_create(1, 0)
near, far = socket.socketpair()
reading, writing = os.pipe()
counter = os.eventfd(0)
listener = socket.create_server(("127.0.0.1", 0))
epoll, poll = select.epoll(), select.poll()
epoll.register(counter, select.EPOLLIN)
poll.register(counter, select.POLLIN)
give = lambda: far.send(b"x" * 300)
count = lambda: os.eventfd_write(counter, 1)
call = lambda: socket.create_connection(listener.getsockname())
def expire():
    libc.timerfd_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 1000), None)
ways = {
    "read": (near.fileno(), lambda: os.read(near.fileno(), 300), give),
    "readv": (near.fileno(), lambda: os.readv(near.fileno(), [bytearray(300)]), give),
    "recv": (near.fileno(), lambda: near.recv(300), give),
    "recvmsg": (near.fileno(), lambda: near.recvmsg(300), give),
    "accept": (listener.fileno(), listener.accept, call),
    "pipe": (reading, lambda: os.read(reading, 77), lambda: os.write(writing, b"x" * 77)),
    "eventfd": (counter, lambda: os.eventfd_read(counter), count),
    "timerfd": (timer, lambda: os.read(timer, 8), expire),
    "epoll": (epoll.fileno(), lambda: (epoll.poll(), os.eventfd_read(counter)), count),
    "poll": (-1, lambda: (poll.poll(), os.eventfd_read(counter)), count),
    "select": (-1, lambda: (select.select([counter], [], []), os.eventfd_read(counter)), count),
    "sleep": (-1, lambda: time.sleep(0.04), lambda: None),
    "futex": (-1, lambda: gate.get(), lambda: gate.put(1)),
}
jobs, done, gate = (queue.SimpleQueue() for _ in range(3))
def work():
    while way := jobs.get():
        way()
        done.put(threading.get_native_id())
threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    descriptor, wait, wake = ways[line.strip()]
    jobs.put(wait)
    time.sleep(0.02)
    wake()
    print(descriptor, done.get(), flush=True)
"""


class Waiter:
    """The program above."""

    def __init__(self, program: "subprocess.Popen[str]") -> None:
        self._program = program
        self.pid = program.pid
        assert self._answer() == "ready"

    def do(self, command: str) -> tuple[int, int]:
        """Wait once; returns the descriptor and the thread."""
        assert self._program.stdin
        self._program.stdin.write(command + "\n")
        self._program.stdin.flush()
        descriptor, tid = map(int, self._answer().split())
        return descriptor, tid

    def _answer(self) -> str:
        assert self._program.stdout
        return self._program.stdout.readline().strip()


@pytest.fixture
def waiters() -> Iterator[Callable[[], Waiter]]:
    with python_program(WAITER) as first, python_program(WAITER) as second:
        programs = iter((first, second))
        yield lambda: Waiter(next(programs))


@pytest.mark.parametrize(
    ("command", "waking", "wake"),
    [
        ("read", Wake.SOCKET_WAKING, Wake.SOCKET_READ),
        ("readv", Wake.SOCKET_WAKING, Wake.SOCKET_READ),
        ("recv", Wake.SOCKET_WAKING, Wake.SOCKET_READ),
        ("recvmsg", Wake.SOCKET_WAKING, Wake.SOCKET_READ),
        ("accept", Wake.ACCEPT_WAKING, Wake.ACCEPT),
        ("pipe", Wake.PIPE_WAKING, Wake.PIPE),
        ("eventfd", Wake.EVENTFD_WAKING, Wake.EVENTFD),
        ("timerfd", Wake.TIMER_WAKING, Wake.TIMER),
        ("epoll", Wake.EPOLL_WAKING, Wake.EPOLL),
        ("poll", Wake.EPOLL_WAKING, Wake.EPOLL),
        ("select", Wake.EPOLL_WAKING, Wake.EPOLL),
        ("sleep", Wake.SLEEP_WAKING, Wake.SLEEP),
    ],
)
def test_thread_is_woken_before_it_comes_back(
    recorder: Recorder, waiters: Callable[[], Waiter], command: str, waking: Wake, wake: Wake
) -> None:
    waiter = waiters()
    manage(recorder, waiter.pid, "lc")
    descriptor, tid = waiter.do(command)
    (woken,) = wakings(recorder, waiter.pid, tid)
    assert (woken.wake, woken.size, woken.result) == (waking, 0, 0)
    assert woken.descriptor == (UNKNOWN if descriptor < 0 else descriptor)
    back = next(event for event in wakes(recorder, waiter.pid, tid) if event.wake is wake)
    assert woken.time_ns < back.time_ns


def test_futexes_and_what_need_not_wait_tell_no_waking(
    recorder: Recorder, waker: Waker, waiters: Callable[[], Waiter]
) -> None:
    waiter = waiters()
    manage(recorder, waiter.pid, "lc")
    _, tid = waiter.do("futex")
    assert wakings(recorder, waiter.pid, tid) == []
    for command in ("read", "accept", "epoll", "poll"):  # there is something already
        waker.do(command)
    assert wakings(recorder, waker.pid, waker.tid) == []


@pytest.mark.parametrize("class_", [None, "be"])
def test_others_are_woken_silently(recorder: Recorder, waiters: Callable[[], Waiter], class_: str | None) -> None:
    other, own = waiters(), waiters()
    manage(recorder, own.pid, "lc")
    if class_:
        manage(recorder, other.pid, class_)
    other.do("recv")
    own.do("recv")
    assert wakings(recorder, other.pid) == []
    assert wakings(recorder, own.pid)


def test_agent_is_woken_silently(recorder: Recorder, waiters: Callable[[], Waiter]) -> None:
    waiter = waiters()
    manage(recorder, waiter.pid, "lc")
    _, tid = waiter.do("recv")
    before = len(wakings(recorder, waiter.pid, tid))
    recorder.probes.send_fast(waiter.pid, True, agent=tid)
    waiter.do("recv")
    assert len(wakings(recorder, waiter.pid, tid)) == before == 1
