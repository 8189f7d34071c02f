"""The probes of this node: loads the BPF programs, tells them which processes count, hands on what they see."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gpsched.adaptive.errors import ProcessGoneError
from gpsched.adaptive.probes.attacher import Attacher, Attachment
from gpsched.adaptive.probes.errors import EventDecodeError
from gpsched.adaptive.probes.events import (
    ALL_WAKES,
    AtOnce,
    Call,
    CudaEvent,
    Event,
    Lost,
    ManagedFlag,
    ProcessClass,
    ProcExit,
    ProcFork,
    RmAlloc,
    WakeEvent,
    decode,
)
from gpsched.adaptive.probes.program import BATCH, MAX_PROCESSES, RING_PAGES, Program


log = logging.getLogger(__name__)

Handler = Callable[[Event], None]
_AT_ONCE: dict[AtOnce, int] = {
    "never": ManagedFlag.RESTING,
    "nothing": 0,
    "bursts": ManagedFlag.BURSTS,
    "all": ManagedFlag.ALL,
}
_CLASSES = {"lc": ProcessClass.LC, "be": ProcessClass.BE}
_NOT_FOUND = KeyError
_FREQUENT = frozenset({CudaEvent, WakeEvent})  # they say nothing of libraries and families


class WakeCounts(NamedTuple):
    """What became of a process's wakes and hints.

    ``throttled``: not sent because there were too many at a time; ``unrelated``: because the process had launched
    nothing yet, or because they were inside of a CUDA call, or of a futex in a thread that makes none.
    """

    sent: int
    throttled: int
    unrelated: int


class Probes:
    """Watches all processes for new GPU clients, and follows those that are managed.

    Not thread-safe: one thread polls and calls the rest. ``close`` may be called at any time, also before ``load``.
    """

    def __init__(self, ring_pages: int = RING_PAGES, max_processes: int = MAX_PROCESSES) -> None:
        self._ring_pages, self._max_processes = ring_pages, max_processes
        self._program: Program | None = None
        self._attacher: Attacher | None = None
        self._handler: Handler | None = None
        self.tap: Callable[[bytes], None] | None = None  # gets every record as it came, before the handler
        self._undecoded = 0
        self._critical: set[int] = set()  # latency-critical processes: as long as there are any, wakes are hooked

    def load(self, handler: Handler) -> None:
        """Load the programs (about 1 s); ``handler`` gets every event. Raises UnsupportedHostError."""
        self._program = Program(self._ring_pages, self._max_processes)
        self._attacher = Attacher(self._program.attach, self._program.attach_hint)
        self._handler = handler

    def close(self) -> None:
        """Detach and unload; bounded, idempotent."""
        attacher, self._attacher = self._attacher, None
        program, self._program = self._program, None
        if attacher and not attacher.close():
            log.warning("detaching takes long; the kernel completes it when this process ends")
        if program:
            program.close()

    # ---- which processes

    def manage(self, pid: int, class_: str) -> None:
        """Follow a process, and its children from now on, as "lc" or "be". Raises ProcessGoneError.

        A change of class keeps its counts, and whether its events are sent to the actuator.
        """
        key = self._key(pid)
        self._set(key, _CLASSES[class_])
        self._remove("ignored", key)
        if not _is_alive(pid):  # its exit came before our entry, so that nothing would ever remove it
            self._remove("managed", key)
            self._remove("counters", key)
            self._follow_wakes(pid, critical=False)
            raise ProcessGoneError(pid)
        self._follow_wakes(pid, critical=class_ == "lc")
        self._running_attacher().process(pid)
        if class_ == "lc":
            self._running_attacher().hints(pid)

    def forget(self, pid: int) -> None:
        """Leave a process alone until it runs another program; unknown pids are no error.

        Ignored first, forgotten second: in between, a new RM client does not make it pending again.
        """
        key = self._key(pid)
        if _is_alive(pid):
            ignored = self._map("ignored")
            ignored[key] = ignored.Leaf(1)
        self._remove("managed", key)
        self._remove("counters", key)
        self._follow_wakes(pid, critical=False)

    def managed(self) -> dict[int, ProcessClass]:
        """Return the processes that the kernel follows, children and pending ones included."""
        return {key.value: ProcessClass(value.class_) for key, value in self._map("managed").items()}

    def counters(self, pid: int) -> dict[str, int]:
        """Return the CUDA calls of a managed process since it is followed, by kind; empty for others."""
        try:
            calls = self._map("counters")[self._key(pid)].calls
        except _NOT_FOUND:
            return {}
        return {call.name.lower(): calls[call] for call in Call if call is not Call.NONE}

    def wakes(self, pid: int) -> WakeCounts:
        """Return how many wakes of a latency-critical process were sent, and how many were not; zeros for others."""
        try:
            counts = self._map("counters")[self._key(pid)]
        except _NOT_FOUND:
            return WakeCounts(0, 0, 0)
        return WakeCounts(counts.wakes, counts.throttled, counts.unrelated)

    def send_fast(
        self, pid: int, enabled: bool, *, at_once: AtOnce = "nothing", agent: int = 0, wakes: int = ALL_WAKES
    ) -> None:
        """Whether the events of a managed process go to ``fast_ring`` too; unknown pids are no error.

        Of a best-effort process only its long pauses go there.

        ``at_once``: which of its calls and wakes make ``fileno`` readable at once: none, what begins or may end a
        burst, or all. Whatever else comes does so ten times a second; where it is "never", they do not come at all.
        ``agent``: its thread whose calls and wakes are told to nobody. ``wakes``: bits of the kinds of wakes that go to
        ``fast_ring``.
        """
        managed, key = self._map("managed"), self._key(pid)
        try:
            class_ = managed[key].class_
        except _NOT_FOUND:
            return
        self._remove("pauses", key)  # a wait that began before was not seen to end
        flags = (ManagedFlag.FAST if enabled else 0) | _AT_ONCE[at_once]
        managed[key] = managed.Leaf(class_, flags, agent, wakes)

    # ---- what they do

    @property
    def fast_ring(self) -> int:
        """Descriptor of the ring buffer that the actuator reads."""
        return int(self._map("fast").map_fd)

    def fileno(self) -> int:
        """Descriptor that is readable when ``consume`` is due. More may be there to consume, also when it is not."""
        return self._loaded().ready_fd

    def poll(self, timeout_ms: int) -> int:
        """Wait until ``consume`` is due, at most so long; hand on the events that are there, return their number."""
        records = self._loaded().poll(timeout_ms)
        for record in records:
            if self.tap is not None:
                self.tap(record)
            self._handle(record)
        return len(records)

    def consume(self) -> bool:
        """Hand on the events that are there, without waiting; False when there are more than are taken at a time."""
        return self.poll(0) < BATCH

    def _handle(self, record: bytes) -> None:
        try:
            event = decode(record)
        except EventDecodeError as error:
            self._undecoded += 1
            log.error("%s", error)
            return
        assert self._handler
        if type(event) not in _FREQUENT:
            self._attach_for(event)
            self._follow_family(event)
        self._handler(event)

    def _attach_for(self, event: Event) -> None:
        """A process that talks to the driver has its libcuda mapped by now."""
        if isinstance(event, RmAlloc) and event.pid != 0 and _is_client(event):
            self._running_attacher().process(event.pid)
            if event.pid in self._critical:
                self._running_attacher().hints(event.pid)  # and the program itself, when it was managed before its exec

    # ---- wakes

    def _follow_family(self, event: Event) -> None:
        """Children are latency-critical before this process knows; their ends are known as events."""
        if not self._critical:
            return
        if isinstance(event, ProcFork) and event.parent in self._critical:
            self._critical.add(event.pid)
        elif isinstance(event, ProcExit):
            self._follow_wakes(event.pid, critical=False)

    def _follow_wakes(self, pid: int, *, critical: bool) -> None:
        """Hook for the first, unhook after the last; lost events are made good by a look at the kernel's table."""
        if critical:
            self._critical.add(pid)
        elif pid in self._critical:
            self._critical.remove(pid)
            if not self._critical:
                self._critical = {pid for pid, class_ in self.managed().items() if class_ is ProcessClass.LC}
        self._loaded().wakes.want(bool(self._critical))

    # ---- the libraries

    def attach_host_libraries(self) -> None:
        """Probe the host's libcuda, and our hint library, before any process uses them; in the background.

        So that the first launches of programs that start later are not missed. Nothing where there is no driver.
        """
        self._running_attacher().host()

    def attach_hints(self, pid: int) -> None:
        """Look again for the hint function in what a process has mapped, for example after it loaded a library."""
        self._running_attacher().hints(pid)

    def attach_file(self, path: str | Path) -> None:
        """Probe a libcuda file before any process uses it; happens in the background."""
        self._running_attacher().file(str(path))

    def attachments(self) -> tuple[Attachment, ...]:
        """Return every libcuda file met so far, and whether its entry points are probed."""
        return self._running_attacher().attachments()

    def libraries(self) -> list[str]:
        """Return one line for each libcuda file met: its path, and what keeps it from being probed, if anything."""
        return [attachment.error or attachment.path for attachment in self.attachments()]

    def wait_attached(self, timeout_s: float) -> bool:
        """Wait until all libraries asked for are probed and wakes, if wanted, hooked; returns False on timeout."""
        return self._loaded().wakes.wait(timeout_s) and self._running_attacher().wait(timeout_s)

    # ---- what got lost

    def lost(self) -> int:
        """Return the number of events that did not fit into the ring buffer, or that could not be decoded."""
        return self._lost(Lost.EVENTS) + self._undecoded

    def lost_fast(self) -> int:
        """Return the number of events that did not fit into the actuator's ring buffer."""
        return self._lost(Lost.FAST)

    def lost_processes(self) -> int:
        """Return the number of processes that are not followed because the kernel's table was full."""
        return self._lost(Lost.PROCESSES)

    def _lost(self, what: Lost) -> int:
        return int(self._map("lost").sum(int(what)).value)

    # ---- maps

    def _loaded(self) -> Program:
        assert self._program, "load() comes first"
        return self._program

    def _running_attacher(self) -> Attacher:
        assert self._attacher, "load() comes first"
        return self._attacher

    def _map(self, name: str) -> Any:
        return self._loaded().map(name)

    def _key(self, pid: int) -> Any:
        return self._map("managed").Key(pid)

    def _set(self, key: Any, class_: ProcessClass) -> None:
        """Counters first: a program that finds the process managed finds them too. A change of class keeps all else."""
        counters, managed = self._map("counters"), self._map("managed")
        if key not in counters:
            counters[key] = counters.Leaf()
        known = managed[key] if key in managed else managed.Leaf()
        managed[key] = managed.Leaf(int(class_), known.flags, known.agent, known.wakes)

    def _remove(self, name: str, key: Any) -> None:
        try:
            del self._map(name)[key]
        except _NOT_FOUND:
            return


def _is_client(event: RmAlloc) -> bool:
    return event.code in (0x0, 0x41)  # NV01_ROOT, NV01_ROOT_CLIENT


def _is_alive(pid: int) -> bool:
    """A process is gone once all its threads are; a main thread that ended first stays behind as a zombie."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    status = dict(line.split(":", 1) for line in lines)
    ended = status["State"].split()[0] in "ZX" and int(status["Threads"]) <= 1
    return not ended and int(status["Tgid"]) == pid
