"""What the learner is told about one latency-critical process: wakes, GPU calls, explicit hints, lost events.

Times are µs of CLOCK_MONOTONIC, the clock of ``struct gs_event``. No I/O here: whoever reads the ring buffer makes
these (``adapter.py``), and so can a test or a recording.
"""

from enum import IntEnum

import msgspec


UNKNOWN = -1


class WakeKind(IntEnum):
    """What may announce a burst. Those from COPY_H2D to BURST_END are made here and by the actuator, not by probes.

    WAKING: the thread is being woken out of such a wait, and its CPU takes a while to be awake.
    """

    SOCKET_READ = 1
    ACCEPT = 2
    EPOLL = 3
    PIPE = 4
    EVENTFD = 5
    TIMER = 6
    SLEEP = 7
    FUTEX = 8
    COPY_H2D = 9
    FIRST_LAUNCH = 10
    CLOCK = 11
    EXPLICIT = 12
    BURST_END = 13
    SOCKET_WAKING = 17
    ACCEPT_WAKING = 18
    EPOLL_WAKING = 19
    PIPE_WAKING = 20
    EVENTFD_WAKING = 21
    TIMER_WAKING = 22
    SLEEP_WAKING = 23


WAKINGS = frozenset(kind for kind in WakeKind if kind.name.endswith("_WAKING"))
PROBED = frozenset(kind for kind in WakeKind if kind <= WakeKind.FUTEX) | WAKINGS


class SyncScope(IntEnum):
    """What a synchronisation waits for; queries that found the work done count like their blocking twins."""

    STREAM = 1
    EVENT = 2
    CONTEXT = 3
    COPY = 4  # a synchronous copy returns after all that its (legacy default) stream waits for


class Observation(msgspec.Struct, frozen=True, gc=False):
    """What all observations have."""

    time_us: float


class Wake(Observation, frozen=True, gc=False):
    """Thread ``tid`` returned from waiting or reading.

    ``descriptor`` is the file descriptor's number and ``size`` the ``size_bucket`` of what was read; UNKNOWN where
    they mean nothing (futexes, timers).
    """

    tid: int
    kind: WakeKind
    descriptor: int = UNKNOWN
    size: int = UNKNOWN


class Launch(Observation, frozen=True, gc=False):
    """A kernel or graph launch is entered. ``context`` is 0 when the probes do not tell CUDA contexts apart."""

    tid: int
    stream: int = 0
    context: int = 0


class Copy(Observation, frozen=True, gc=False):
    """A copy is entered. ``to_device``: from the host to the device, so that it may announce a burst."""

    tid: int
    stream: int = 0
    to_device: bool = False
    size: int = UNKNOWN
    context: int = 0


class SyncEnter(Observation, frozen=True, gc=False):
    """A blocking synchronisation is entered: its return covers only what was launched before."""

    tid: int


class SyncReturn(Observation, frozen=True, gc=False):
    """A synchronisation succeeded; ``handle`` is the stream (STREAM) or event (EVENT).

    A query that found the work done is a SyncReturn without SyncEnter.
    """

    tid: int
    scope: SyncScope
    handle: int = 0
    context: int = 0


class EventRecord(Observation, frozen=True, gc=False):
    """``event`` was recorded in ``stream``."""

    tid: int
    event: int
    stream: int
    context: int = 0


class Explicit(Observation, frozen=True, gc=False):
    """The program itself announces a burst ``in_us`` from now, or takes its announcement back."""

    tid: int
    in_us: float = 0.0
    cancel: bool = False


class Lost(Observation, frozen=True, gc=False):
    """Events were lost before this time: what is pending can no longer be trusted."""

    count: int = 1


class Rest(Observation, frozen=True, gc=False):
    """From here on nothing is told of what happens, or (``over``) all again. What comes in between is a remainder."""

    over: bool = False


class Tick(Observation, frozen=True, gc=False):
    """Time passed. Sent every few ms while the process is idle, so that windows close and the clock is followed."""


class Matcher(msgspec.Struct, frozen=True, gc=False):
    """Which wakes are meant: the kind, and thread, descriptor and range of size buckets where they matter (None: any).

    ``idle``: only the first such wake while neither a burst nor a reservation of the process is on.
    BURST_END means the end of a burst when requests are waiting; its "size" says how that is known: 1 if a wake of
    ``Choice.source`` came later than ``young_us`` before the burst's launch, 2 if later than the last one of
    ``Choice.taker`` before it, 3 if both, 4 if the burst's thread has read more than it has served.
    """

    kind: WakeKind
    tid: int | None = None
    descriptor: int | None = None
    sizes: tuple[int, int] | None = None
    idle: bool = False

    @property
    def conditions(self) -> int:
        """How many fields beside the kind are bound; fewer survive more changes of the program."""
        return (self.tid is not None) + (self.descriptor is not None) + (self.sizes is not None)

    def matches(self, wake: Wake) -> bool:
        """Whether ``wake`` is meant; ``idle`` is not looked at."""
        return (
            wake.kind == self.kind
            and self.tid in (None, wake.tid)
            and self.descriptor in (None, wake.descriptor)
            and (self.sizes is None or self.sizes[0] <= wake.size <= self.sizes[1])
        )

    def __str__(self) -> str:
        words = [self.kind.name.lower()]
        if self.descriptor is not None:
            words.append(f"fd {self.descriptor}")
        if self.sizes is not None and self.kind == WakeKind.BURST_END:
            words.append("requests waiting")
        elif self.sizes is not None:
            low, high = self.sizes
            words.append(f"{1 << (low - 1) if low else 0}-{(1 << high) - 1} bytes")
        if self.tid is not None:
            words.append(f"thread {self.tid}")
        if self.idle:
            words.append("when idle")
        return ", ".join(words)


def size_bucket(size: int) -> int:
    """Return the number of bits of a size in bytes: 0, 1, 2-3, 4-7, ... fall into buckets 0, 1, 2, 3, ...

    Negative sizes (a failed read) give UNKNOWN.
    """
    return size.bit_length() if size >= 0 else UNKNOWN
