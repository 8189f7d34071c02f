"""The daemon's side of the native actuator: start it, give it plans, read what it did, undo its work if it dies."""

import contextlib
import ctypes
import errno
import logging
import mmap
import os
import socket
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from gpsched.adaptive.actuator import abi
from gpsched.adaptive.actuator.errors import ActuatorGoneError, ActuatorMissingError, PlanRefusedError
from gpsched.adaptive.actuator.plans import AgentSlot, Mechanism, Member, Plan, PlanSet, encode
from gpsched.adaptive.actuator.records import Counters, Record, RecordReader, read_counters
from gpsched.adaptive.actuator.slots import SlotTable
from gpsched.adaptive.actuator.undo import undo
from gpsched.adaptive.driver.files import DriverFiles
from gpsched.adaptive.errors import GpschedError


log = logging.getLogger(__name__)

_ANSWER_S = 0.25
_END_S = 3.0  # it stops trying after 2 s
_NAMES = {abi.MSG_SLOT: "a descriptor", abi.MSG_PUBLISH: "the plans"}


def binary_path() -> Path:
    """Where the native program is built."""
    return Path(str(resources.files("gpsched.adaptive.actuator"))) / "build" / "gpsched-actuator"


class Actuator:
    """One running actuator.

    ``files_of(pid)`` returns the process' DriverFiles (the same object as long as the process lives), as kept by the
    daemon; ``ring`` is the descriptor of the BPF ring buffer of trigger events, None to drive it by ``announce`` only.
    Raises ActuatorMissingError when it is not built.
    """

    def __init__(
        self, files_of: Callable[[int], DriverFiles], ring: int | None = None, binary: Path | None = None
    ) -> None:
        binary = binary or binary_path()
        if not binary.exists():
            raise ActuatorMissingError(binary)
        self._files_of = files_of
        self._touched: dict[tuple[int, int, int], tuple[Member, DriverFiles]] = {}
        self._map()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            numbers = (theirs.fileno(), self._memory_fd)
            # Its own session: Ctrl-C in the daemon's terminal must reach the daemon only.
            self._process = subprocess.Popen(
                [binary, *map(str, numbers)], pass_fds=numbers, start_new_session=True, stdin=subprocess.DEVNULL
            )
        self._slots = SlotTable(self._send_slot)
        if ring is not None:
            self.add_ring(ring)

    def _map(self) -> None:
        size = ctypes.sizeof(abi.Shared)
        self._memory_fd = os.memfd_create("gpsched-plans", os.MFD_CLOEXEC)
        os.ftruncate(self._memory_fd, size)
        self._memory = mmap.mmap(self._memory_fd, size)
        self._shared = abi.Shared.from_buffer(self._memory)
        self._shared.magic, self._shared.version, self._shared.size = abi.MAGIC, abi.VERSION, size
        self._reader = RecordReader(self._shared)

    @property
    def pid(self) -> int:
        """The actuator's own pid."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def fileno(self) -> int:
        """Readable when the actuator has ended: call ``check`` then."""
        return self._socket.fileno()

    def add_ring(self, ring: int) -> None:
        """Hand over the BPF ring buffer of trigger events; once."""
        self._slots.ring(ring)

    def publish(self, plan_set: PlanSet) -> None:
        """Replace what is in force, as a whole.

        The actuator may fail to take all of it and keep the rest in force; then PlanRefusedError. Raises
        PlanLimitError, ActuatorGoneError, and what DriverFiles.get raises for a process that is gone.
        """
        living = {self._files_of(pid) for pid in {member.pid for member in plan_set.members}}
        encode(plan_set, self._shared.plans, self._driver_slot, self._agent_slot)
        for member in plan_set.members:
            self._touched[member.key] = (member, self._files_of(member.pid))
        self._shared.generation += 1
        self._send(abi.Message(type=abi.MSG_PUBLISH, generation=self._shared.generation))
        self._await_answer(self._shared.generation)
        for slot in self._slots.keep_only(living):
            self._send(abi.Message(type=abi.MSG_DROP, slot=slot))
        self._forget_undone({member.key for member in plan_set.members})

    def announce(self, event: bytes) -> None:
        """Hand over a ``struct gs_event`` of the daemon's own: a predicted arrival (its time may lie ahead)."""
        self._send(abi.Message(type=abi.MSG_EVENT, event=(abi.U8 * 64)(*event)))

    def records(self) -> list[Record]:
        """The reservations that ended since the last call."""
        return self._reader.read()

    @property
    def lost_records(self) -> int:
        """Records that were overwritten before ``records`` read them."""
        return self._reader.lost

    def counters(self) -> Counters:
        """What the actuator counted since its start."""
        return read_counters(self._shared)

    def turns(self) -> list[list[int]]:
        """How many ns each turn of each GPU has had since the start, as of its last end."""
        return [list(gpu.had_ns) for gpu in self._shared.turns]

    def check(self) -> None:
        """Raise ActuatorGoneError, with everything undone, when the actuator has ended; else do nothing."""
        with contextlib.suppress(TimeoutError):
            self._raise_refusal(self._receive(0))

    def stop(self) -> None:
        """End the actuator: it undoes everything by itself, and if it fails to, this does. Idempotent."""
        if self._memory_fd < 0:
            return
        self._socket.close()
        try:
            ended_well = self._process.wait(_END_S) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            ended_well = False
        if not ended_well:
            self.undo()
        self._touched.clear()
        os.close(self._memory_fd)
        self._memory_fd = -1

    def undo(self) -> list[GpschedError]:
        """Enable all channels and restore the timeslices of every group that was ever in a plan; return what failed."""
        return undo(self._touched.values())

    def _gone(self) -> ActuatorGoneError:
        """Undo first: the actuator may have been killed while best-effort work was kept off the GPU."""
        for error in self.undo():
            log.error("%s", error)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ANSWER_S)
        return ActuatorGoneError(self._process.poll())

    def _driver_slot(self, member: Member) -> int:
        return self._slots.driver(self._files_of(member.pid), member.group.fd)

    def _agent_slot(self, plan: Plan) -> AgentSlot | None:
        return self._slots.agent(self._files_of(plan.pid)) if plan.mechanism & Mechanism.HOLD else None

    def _send_slot(self, slot: int, kind: int, pid: int, descriptor: int) -> None:
        self._send(abi.Message(type=abi.MSG_SLOT, slot=slot, kind=kind, pid=pid), [descriptor])

    def _send(self, message: abi.Message, descriptors: list[int] | None = None) -> None:
        self._socket.settimeout(_ANSWER_S)
        try:
            socket.send_fds(self._socket, [bytes(message)], descriptors or [])
        except OSError as error:
            raise self._gone() from error

    def _receive(self, timeout_s: float) -> abi.Message:
        """The next answer. Raises TimeoutError, or ActuatorGoneError with everything undone."""
        self._socket.settimeout(timeout_s)
        try:
            answer = self._socket.recv(ctypes.sizeof(abi.Message))
        except (TimeoutError, BlockingIOError) as error:
            raise TimeoutError from error
        except OSError:
            answer = b""
        if not answer:
            raise self._gone()
        return abi.Message.from_buffer_copy(answer)

    def _await_answer(self, generation: int) -> None:
        message = abi.Message()
        while (message.type, message.generation) != (abi.MSG_PUBLISH, generation):
            try:
                message = self._receive(_ANSWER_S)
            except TimeoutError:
                raise ActuatorGoneError(self._process.poll()) from None
            self._raise_refusal(message)

    def _raise_refusal(self, message: abi.Message) -> None:
        if message.kind:
            reason = errno.errorcode.get(message.kind, str(message.kind))
            raise PlanRefusedError(_NAMES.get(message.type, f"message {message.type}"), message.kind, reason)

    def _forget_undone(self, current: set[tuple[int, int, int]]) -> None:
        """A group that left the plans needs no undoing once the actuator has enabled everything."""
        for key, (_, files) in list(self._touched.items()):
            if key not in current and (files.closed or self._shared.counters.disabled == 0):
                del self._touched[key]
