"""The engine of the embedded GPU in pure virtual time, with scripted processes: no clock, no root, deterministic.

``World`` owns the engine and a calendar of scripted actions; a ``Process`` is a context on it. Times are µs unless the
name says ns.
"""

import ctypes
import heapq
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

from gpsched.adaptive.simgpu.gpu import SimulatedGpuError


LIBRARY = Path(__file__).parent / "build" / "libengine.so"
#: ``enum engine_op_kind`` and ``enum engine_control_kind`` of native/engine.h, in order.
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
_NEVER = 2**64 - 1
_CHANNELS = 8  # of a CUDA context's compute group


class _Done(ctypes.Structure):
    _fields_ = (
        ("stream", ctypes.c_int),
        ("kind", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("seq", "arg", "value", "submit", "start", "finish")),
    )


class Stats(ctypes.Structure):
    """What a group used: ``gpu_ns`` of computing, ``kernels`` completed, ``switches`` to it."""

    gpu_ns: int
    kernels: int
    switches: int
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("gpu_ns", "kernels", "switches"))


_DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Done))
_RELEASED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint32)
_GONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)


class _Callbacks(ctypes.Structure):
    _fields_ = (("user", ctypes.c_void_p), ("done", _DONE), ("released", _RELEASED), ("gone", _GONE))


def _load() -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise SimulatedGpuError(str(LIBRARY.parent), str(error)) from error
    pointer, u64, number = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int
    signatures = {
        "engine_new": (pointer, [number, pointer, ctypes.POINTER(_Callbacks)]),
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
    """An engine and a calendar of scripted actions; raises ``SimulatedGpuError`` when the engine is not built."""

    def __init__(self, gpus: int = 1) -> None:
        self.lib = _load()
        self.flags: dict[int, int] = {}
        self._waiting: dict[tuple[int, int], Callable[[], None]] = {}
        self._completed: list[tuple[int, int]] = []
        self._callbacks = _Callbacks(
            None, _DONE(self._done), _RELEASED(self._released), _GONE(lambda _user, _stream: None)
        )
        self.engine = self.lib.engine_new(gpus, None, ctypes.byref(self._callbacks))
        self._calendar: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def close(self) -> None:
        """Free the engine; nothing may be called after."""
        self.lib.engine_free(self.engine)

    @property
    def now(self) -> float:
        """The virtual time."""
        return float(self.lib.engine_now(self.engine)) / 1000

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at a time; a time that is past means now."""
        heapq.heappush(self._calendar, (max(round(time * 1000), 0), next(self._order), action))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Do something ``delay`` from now."""
        self.at(self.now + delay, action)

    def set_flag(self, flag: int, value: int) -> None:
        """Write the flag that hold kernels read."""
        self.flags[flag] = value
        self.lib.engine_poll_holds(self.engine)

    def submit(self, stream: int, kind: int, arg: int, value: int = 0) -> int:
        """Queue an operation; return its number in the stream."""
        return int(self.lib.engine_submit(self.engine, stream, kind, arg, value))

    def when_done(self, stream: int, seq: int, action: Callable[[], None]) -> None:
        """Do something when an operation has completed."""
        self._waiting[stream, seq] = action

    def control(self, kind: int, ids: Iterable[int], value: int = 0, gpu: int = 0) -> float:
        """Start a control; return the time at which its caller goes on."""
        numbers = list(ids)
        array = (ctypes.c_int * len(numbers))(*numbers)
        return float(self.lib.engine_control(self.engine, gpu, kind, array, len(numbers), value)) / 1000

    def run(self, until: float) -> None:
        """Advance to ``until``, doing scripted actions and completions in order."""
        end = round(until * 1000)
        while True:
            script = self._calendar[0][0] if self._calendar else _NEVER
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

    def _wake_waiters(self) -> None:
        while self._completed:
            completed, self._completed = self._completed, []
            for key in completed:
                if action := self._waiting.pop(key, None):
                    action()

    def _done(self, _user: object, done: "ctypes._Pointer[_Done]") -> None:
        self._completed.append((done.contents.stream, done.contents.seq))

    def _released(self, _user: object, _owner: int, flag: int, seq: int) -> int:
        return self.flags.get(flag, 0) >= seq


class Process:
    """A context: one compute group with eight channels."""

    def __init__(self, world: World, gpu: int = 0) -> None:
        self.world, self.gpu = world, gpu
        self.group = int(world.lib.engine_group_new(world.engine, gpu, 1))
        self.channels = [int(world.lib.engine_channel_new(world.engine, self.group)) for _ in range(_CHANNELS)]
        self._used = 0

    def stream(self) -> int:
        """Open a stream, on the channels in turn."""
        channel = self.channels[self._used % len(self.channels)]
        self._used += 1
        return int(self.world.lib.engine_stream_new(self.world.engine, self.group, channel))

    def timeslice(self, us: int) -> None:
        """Set the group's timeslice."""
        self.world.control(SET_TIMESLICE, [self.group], us, self.gpu)

    def stats(self) -> Stats:
        """Return what the group used so far."""
        stats = Stats()
        self.world.lib.engine_group_stats(self.world.engine, self.group, ctypes.byref(stats))
        return stats
