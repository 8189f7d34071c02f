"""The engine of the embedded GPU in pure virtual time, with scripted processes: no clock, no root, deterministic.

``World`` owns the engine and a calendar; ``Be`` keeps the GPU full; ``Lc`` is the request loop that was measured.
Times are µs unless the name says ns.
"""

import ctypes
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import gpsched.adaptive.simgpu as simgpu


LIBRARY = Path(simgpu.__file__).parent / "build" / "libengine.so"
KERNEL, HOLD, COPY, WRITE, WAIT, MARK = range(6)
(
    SET_TIMESLICE,
    PREEMPT,
    PREEMPT_WAIT,
    SCHEDULE,
    DISABLE,
    DISABLE_SCHEDULING,
    ENABLE,
    ENABLE_SCHEDULING,
    INTERLEAVE,
    RESTART,
    REALTIME,
) = range(11)
NEVER = 2**64 - 1


class Done(ctypes.Structure):
    _fields_ = [("stream", ctypes.c_int), ("kind", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64) for name in ("seq", "arg", "value", "submit", "start", "finish")
    ]


class Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("gpu_ns", "kernels", "switches")]


DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Done))
RELEASED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint32)
GONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)


class Callbacks(ctypes.Structure):
    _fields_ = [("user", ctypes.c_void_p), ("done", DONE), ("released", RELEASED), ("gone", GONE)]


def load() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(LIBRARY))
    pointer, u64, number = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int
    signatures = {
        "engine_new": (pointer, [number, pointer, ctypes.POINTER(Callbacks)]),
        "engine_free": (None, [pointer]),
        "engine_group_new": (number, [pointer, number, number]),
        "engine_group_free": (None, [pointer, number]),
        "engine_channel_new": (number, [pointer, number]),
        "engine_stream_new": (number, [pointer, number, number]),
        "engine_submit": (u64, [pointer, number, ctypes.c_uint32, u64, u64]),
        "engine_control": (u64, [pointer, number, ctypes.c_uint32, ctypes.POINTER(number), number, u64]),
        "engine_timeslice": (u64, [pointer, number]),
        "engine_now": (u64, [pointer]),
        "engine_next": (u64, [pointer]),
        "engine_advance": (None, [pointer, u64]),
        "engine_poll_holds": (number, [pointer]),
        "engine_group_stats": (None, [pointer, number, ctypes.POINTER(Stats)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class World:
    """An engine and a calendar of scripted actions."""

    def __init__(self, gpus: int = 1) -> None:
        self.lib = load()
        self.flags: dict[int, int] = {}
        self.waiting: dict[tuple[int, int], Callable[[], None]] = {}
        self._completed: list[tuple[int, int]] = []
        self.callbacks = Callbacks(None, DONE(self._done), RELEASED(self._released), GONE(lambda _user, _stream: None))
        self.engine = self.lib.engine_new(gpus, None, ctypes.byref(self.callbacks))
        self._calendar: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def close(self) -> None:
        self.lib.engine_free(self.engine)

    def _done(self, _user: object, done: "ctypes._Pointer[Done]") -> None:
        self._completed.append((done.contents.stream, done.contents.seq))

    def _released(self, _user: object, _owner: int, flag: int, seq: int) -> int:
        return self.flags.get(flag, 0) >= seq

    @property
    def now(self) -> float:
        return self.lib.engine_now(self.engine) / 1000

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._calendar, (max(round(time * 1000), 0), next(self._order), action))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def set_flag(self, flag: int, value: int) -> None:
        self.flags[flag] = value
        self.lib.engine_poll_holds(self.engine)

    def submit(self, stream: int, kind: int, arg: int, value: int = 0) -> int:
        return int(self.lib.engine_submit(self.engine, stream, kind, arg, value))

    def when_done(self, stream: int, seq: int, action: Callable[[], None]) -> None:
        self.waiting[stream, seq] = action

    def control(self, kind: int, ids: Iterable[int], value: int = 0, gpu: int = 0) -> float:
        """Start a control; the time at which its caller goes on."""
        array = (ctypes.c_int * len(ids := list(ids)))(*ids)
        return float(self.lib.engine_control(self.engine, gpu, kind, array, len(ids), value)) / 1000

    def _wake_waiters(self) -> None:
        while self._completed:
            completed, self._completed = self._completed, []
            for key in completed:
                if action := self.waiting.pop(key, None):
                    action()

    def run(self, until: float) -> None:
        """Advance to ``until``, doing scripted actions and completions in order."""
        end = round(until * 1000)
        while True:
            script = self._calendar[0][0] if self._calendar else NEVER
            event = min(script, self.lib.engine_next(self.engine))
            if event > end:
                break
            self.lib.engine_advance(self.engine, event)
            self._wake_waiters()
            while self._calendar and self._calendar[0][0] <= self.lib.engine_now(self.engine):
                heapq.heappop(self._calendar)[2]()
                self._wake_waiters()
        self.lib.engine_advance(self.engine, end)
        self._wake_waiters()


class Process:
    """A context: one compute group with eight channels."""

    def __init__(self, world: World, gpu: int = 0) -> None:
        self.world, self.gpu = world, gpu
        self.group = world.lib.engine_group_new(world.engine, gpu, 1)
        self.channels = [world.lib.engine_channel_new(world.engine, self.group) for _ in range(8)]
        self._used = 0

    def stream(self) -> int:
        channel = self.channels[self._used % len(self.channels)]
        self._used += 1
        return int(self.world.lib.engine_stream_new(self.world.engine, self.group, channel))

    def timeslice(self, us: int) -> None:
        self.world.control(SET_TIMESLICE, [self.group], us, self.gpu)

    def stats(self) -> Stats:
        stats = Stats()
        self.world.lib.engine_group_stats(self.world.engine, self.group, ctypes.byref(stats))
        return stats


class Be(Process):
    """Keeps ``depth`` kernels of ``kernel`` µs queued."""

    def __init__(self, world: World, kernel: float = 400, depth: int = 8, gpu: int = 0) -> None:
        super().__init__(world, gpu)
        self.kernel_ns, self.queue = round(kernel * 1000), self.stream()
        for _ in range(depth):
            self._launch()

    def _launch(self) -> None:
        seq = self.world.submit(self.queue, KERNEL, self.kernel_ns)
        self.world.when_done(self.queue, seq, self._launch)


class Lc(Process):
    """The measured request loop: preparation, copy in, 20 kernels, copy out, synchronisation; every ``period``."""

    CALL, WAKE, KERNELS, KERNEL_NS, BYTES, FLAG = 4.0, 9.0, 20, 6000, 270336, 4096

    def __init__(self, world: World, prep: float = 200, period: float = 10000, holds: int = 0) -> None:
        super().__init__(world)
        self.prep, self.period, self.holds = prep, period, holds
        self.main, self.side = self.stream(), self.stream()
        self.latencies: list[float] = []
        self.on_hint: Callable[[], None] | None = None
        self.on_launch: Callable[[], None] | None = None
        self.on_done: Callable[[], None] | None = None
        self._seq = 0

    def start(self, at: float, requests: int) -> None:
        # A period that shares no divisor with timeslices and turns: every phase is met.
        for i in range(requests):
            self.world.at(at + i * self.period, self._arrive)

    def _arrive(self) -> None:
        arrived = self.world.now
        self._seq += 1
        if self.on_hint:
            self.on_hint()
        for i in range(self.holds):
            self.world.after(self.CALL * (i + 1), self._hold)
        self.world.after(self.prep, lambda: self._launch(arrived))

    def _hold(self) -> None:
        self.world.submit(self.side, HOLD, self.FLAG, self._seq)

    def _launch(self, arrived: float) -> None:
        self.world.after(self.CALL, lambda: self.world.submit(self.main, COPY, self.BYTES, 0))
        self.world.after(2 * self.CALL, self._graph)
        self.world.after(3 * self.CALL, lambda: self._copy_out(arrived))

    def _graph(self) -> None:
        for _ in range(self.KERNELS):
            self.world.submit(self.main, KERNEL, self.KERNEL_NS)
        if self.on_launch:
            self.on_launch()

    def _copy_out(self, arrived: float) -> None:
        seq, number = self.world.submit(self.main, COPY, self.BYTES, 1), self._seq
        self.world.when_done(self.main, seq, lambda: self.world.after(self.WAKE, lambda: self._finish(arrived)))
        if self.holds:
            self.world.after(10, lambda: self.world.set_flag(self.FLAG, number))

    def _finish(self, arrived: float) -> None:
        self.latencies.append(self.world.now - arrived)
        if self.on_done:
            self.on_done()

    @property
    def mean(self) -> float:
        return sum(self.latencies) / len(self.latencies)

    def quantile(self, q: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(math.floor(q * len(ordered)), len(ordered) - 1)]


class Reservation:
    """``on`` controls at the hint, ``off`` after the burst: each starts when the one before answered."""

    def __init__(self, world: World, lc: Lc, on: list[tuple[int, list[int]]], off: list[tuple[int, list[int]]]) -> None:
        self.world, self.on, self.off = world, on, off
        self.free_at = 0.0
        lc.on_hint, lc.on_done = lambda: self._play(self.on), lambda: self._play(self.off)

    def _play(self, controls: list[tuple[int, list[int]]]) -> None:
        steps = iter(controls)
        self.world.at(max(self.free_at, self.world.now), lambda: self._next(steps))

    def _next(self, steps: Iterator[tuple[int, list[int]]]) -> None:
        for kind, ids in steps:
            self.free_at = self.world.control(kind, ids)
            self.world.at(self.free_at, lambda: self._next(steps))
            return


class Turns:
    """One enabled BE at a time: every ``length`` µs the running one is disabled, then the next enabled."""

    def __init__(self, world: World, processes: list[Be], length: float) -> None:
        self.world, self.length = world, length
        self.processes = processes
        for other in processes[1:]:
            world.control(DISABLE, other.channels)
        world.after(length, self._pass)

    def _pass(self) -> None:
        first, *others = self.processes
        self.processes = [*others, first]
        answered = self.world.control(DISABLE, first.channels)
        self.world.at(answered, self._enable)

    def _enable(self) -> None:
        answered = self.world.control(ENABLE, self.processes[0].channels)
        self.world.at(answered + self.length, self._pass)
