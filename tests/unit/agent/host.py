"""A program with the hold agent in it, on a libcuda that runs nothing. Each function is one program; see test_agent.py.

It plays the actuator too: it finds its own page as the daemon does and rings the bell.
"""

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

from gpsched.adaptive.actuator.slots import find_agent
from gpsched.adaptive.agent import page


U32, U64 = ctypes.c_uint32, ctypes.c_uint64
FUTEX_WAKE, SYS_FUTEX = 1, 202


class Launch(ctypes.Structure):
    _fields_ = [("flag", U64), ("limit_ns", U64), ("sequence", U32), ("threads", U32)]


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)
    return value


class Program:
    def __init__(self, agent=None):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.agent = ctypes.CDLL(agent or os.environ["AGENT"])
        assert self.agent.InitializeInjection() == 1

    def set(self, name, value):
        kind = ctypes.c_char * 64 if isinstance(value, bytes) else ctypes.c_int
        kind.in_dll(self.cuda, name).value = value

    def get(self, name):
        return ctypes.c_int.in_dll(self.cuda, name).value

    def launch(self, index):
        return (Launch * 64).in_dll(self.cuda, "fake_launch")[index]

    def make_context(self):
        self.set("fake_active", 1)
        until(lambda: self.page.ready == 1)

    @property
    def page(self):
        if not hasattr(self, "_page"):
            _, file = until(lambda: find_agent(os.getpid()))
            self._page = page.Layout.from_buffer(mmap.mmap(file, 4096))
            self.seen = page.Page(file)
            os.close(file)
        return self._page

    def ring(self):
        self.page.bell += 1
        ctypes.CDLL(None).syscall(SYS_FUTEX, ctypes.byref(self.page, page.Layout.bell.offset), FUTEX_WAKE, 99, 0, 0, 0)

    def hold(self, kernels=2, limit_us=1_000_000):
        self.page.kernels, self.page.limit_us = kernels, limit_us
        self.page.wanted += 1
        self.ring()
        return self.page.wanted

    def release(self):
        self.page.released = self.page.wanted
        self.ring()

    def flag(self, launch=1):
        return ctypes.c_uint32.from_address(self.launch(launch).flag).value


def holds_until_released():
    program = Program()
    program.make_context()
    assert program.get("fake_launches") == 1  # the first loads the code; it ends at once
    assert (program.launch(0).limit_ns, program.launch(0).sequence) == (0, 0)
    rung_ns = time.monotonic_ns()
    sequence = program.hold(kernels=2, limit_us=50_000_000)
    until(lambda: program.page.launched == sequence)
    assert rung_ns < program.page.launched_ns <= time.monotonic_ns()
    assert program.get("fake_launches") == 3
    assert [program.launch(index).sequence for index in (1, 2)] == [1, 1]
    assert (program.launch(1).limit_ns, program.launch(1).threads) == (1_000_000_000, 32)
    assert program.flag() == 0
    program.release()
    until(lambda: program.flag() == 1)
    assert program.get("fake_references") == 0  # the context is the program's
    assert program.get("fake_flags") == 0x101  # non-blocking, highest priority


def ends_a_hold_at_its_limit():
    program = Program()
    program.make_context()
    sequence = program.hold(limit_us=20_000)
    until(lambda: program.page.launched == sequence)
    until(lambda: program.flag() == sequence)
    assert program.page.released == 0


def skips_a_hold_that_is_over():
    program = Program()
    program.make_context()
    program.page.kernels, program.page.limit_us = 2, 1000
    program.page.wanted = program.page.released = 7
    program.ring()
    time.sleep(0.1)
    assert program.get("fake_launches") == 1


def bounds_what_it_is_told():
    program = Program()
    program.make_context()
    sequence = program.hold(kernels=1_000_000, limit_us=2**32 - 1)
    until(lambda: program.page.launched == sequence)
    assert program.get("fake_launches") == 5
    assert program.launch(1).limit_ns == 1_000_000_000


def waits_for_the_context():
    program = Program()
    time.sleep(0.2)
    assert (program.page.ready, program.page.failures) == (0, 0)
    assert "no primary CUDA context" in program.seen.inability
    program.hold()
    time.sleep(0.05)
    assert program.get("fake_launches") == 0
    program.make_context()
    assert program.seen.inability == ""


def follows_a_context_that_goes_and_comes():
    program = Program()
    program.make_context()
    program.set("fake_active", 0)
    until(lambda: program.page.ready == 0)
    program.hold()
    time.sleep(0.05)
    assert program.get("fake_launches") == 1
    program.make_context()
    program.hold()
    until(lambda: program.get("fake_launches") == 4)


def gives_up_when(call, times):
    """Fails ``times``; three in a row are enough to end the thread, fewer to go on."""
    program = Program()
    until(lambda: program.page.version)
    program.set("fake_fail", call.encode())
    program.set("fake_fail_times", int(times))
    program.set("fake_active", 1)
    if int(times) < 3:
        until(lambda: program.page.ready == 1)
        assert program.page.last_error == 999
    else:
        until(lambda: find_agent(os.getpid()) is None)
        assert (program.page.ready, program.page.failures) == (0, 3)
        assert program.seen.inability == "its hold agent gave up (CUDA error 999)"
    assert program.get("fake_references") == 0


def gives_up_when_launches_fail():
    program = Program()
    program.make_context()
    program.set("fake_fail", b"cuLaunchKernel")
    program.set("fake_fail_times", 100)
    program.hold()
    until(lambda: find_agent(os.getpid()) is None)
    assert program.page.ready == 0


def has_no_agent():
    Program()
    time.sleep(0.2)
    assert find_agent(os.getpid()) is None


def survives_fork_and_exec():
    """A child has the memory file but no agent; a program it runs has neither."""
    program = Program()
    program.make_context()
    warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: the agent is a second thread
    child = os.fork()
    if child == 0:
        os._exit(find_agent(os.getpid()) is not None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    listing = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False)
    assert "gpsched-hold" not in listing.stdout
    program.hold()
    until(lambda: program.page.launched == 1)


def leaves_signals_alone():
    program = Program()
    program.make_context()
    got = []
    signal.signal(signal.SIGUSR1, lambda *_: got.append(threading.get_native_id()))
    os.kill(os.getpid(), signal.SIGUSR1)
    until(lambda: got)
    assert got == [os.getpid()]
    tid, file = find_agent(os.getpid())
    os.close(file)
    with open(f"/proc/self/task/{tid}/status") as status:
        blocked = next(line.split()[1] for line in status if line.startswith("SigBlk"))
    assert int(blocked, 16) >> (signal.SIGUSR1 - 1) & 1


def runs_as_others_do_once_it_was_hurried():
    """Whoever hurried it is dead: it is not to stay before the program's own threads, on one CPU, for ever."""
    program = Program()
    program.make_context()
    tid, file = find_agent(os.getpid())
    os.close(file)
    own = os.getpriority(os.PRIO_PROCESS, tid)
    sequence = program.hold()
    until(lambda: program.page.launched == sequence)
    os.setpriority(os.PRIO_PROCESS, tid, -20)
    os.sched_setaffinity(tid, {min(os.sched_getaffinity(0))})
    until(lambda: os.getpriority(os.PRIO_PROCESS, tid) == own)
    until(lambda: os.sched_getaffinity(tid) == os.sched_getaffinity(0))
    sequence = program.hold()
    until(lambda: program.page.launched == sequence)


def stays_hurried_while_it_works():
    program = Program()
    program.make_context()
    tid, file = find_agent(os.getpid())
    os.close(file)
    os.setpriority(os.PRIO_PROCESS, tid, -20)
    end = time.monotonic() + 2.5  # several looks for contexts
    while time.monotonic() < end:
        sequence = program.hold()
        until(lambda wanted=sequence: program.page.launched == wanted)
        time.sleep(0.005)
    assert os.getpriority(os.PRIO_PROCESS, tid) == -20


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
