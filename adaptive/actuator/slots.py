"""Which descriptor lies in which of the actuator's slots.

A slot belongs to one DriverFiles, that is, to one life of a process: a reused pid gets new slots. Freed numbers are
used again last, since the actuator keeps a slot as long as something needs it.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gpsched.adaptive.actuator import abi
from gpsched.adaptive.actuator.errors import PlanLimitError
from gpsched.adaptive.actuator.plans import AgentSlot
from gpsched.adaptive.driver.files import DriverFiles


AGENT_FILE = "memfd:gpsched-hold"  # GS_HOLD_FILE, adaptive/agent/native/hold_page.h
AGENT_THREAD = "gpsched-hold"  # GS_HOLD_THREAD

Send = Callable[[int, int, int, int], None]
"""send(slot, kind, pid, descriptor)"""


class _Key(NamedTuple):
    files: DriverFiles
    kind: int
    fd: int


class SlotTable:
    """Sends descriptors when they are first needed and remembers where they are."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._free = deque(range(abi.MAX_SLOTS))
        self._used: dict[_Key, int] = {}
        self._agents: dict[DriverFiles, AgentSlot] = {}

    def driver(self, files: DriverFiles, fd: int) -> int:
        """Return the slot of the copy of the target's driver descriptor ``fd``; raises as DriverFiles.get."""
        self._put(_Key(files, abi.SLOT_PIDFD, -1), files.pidfd)
        return self._put(_Key(files, abi.SLOT_DRIVER, fd), files.get(fd))

    def agent(self, files: DriverFiles) -> AgentSlot | None:
        """Return where the program's hold agent is, None when it has none (yet)."""
        if files not in self._agents:
            tid, page = find_agent(files.pid) or (0, None)
            if page is None:
                return None
            try:
                slot = self._put(_Key(files, abi.SLOT_AGENT, -1), page)
            finally:
                os.close(page)
            self._agents[files] = AgentSlot(slot, tid)
        return self._agents[files]

    def ring(self, map_fd: int) -> None:
        """Hand over the BPF ring buffer; it stays for good."""
        self._send(self._free.popleft(), abi.SLOT_RING, 0, map_fd)

    def keep_only(self, living: set[DriverFiles]) -> Iterator[int]:
        """Forget all slots of other processes; yields their numbers, to be dropped."""
        for key in [key for key in self._used if key.files not in living]:
            slot = self._used.pop(key)
            self._agents.pop(key.files, None)
            self._free.append(slot)
            yield slot

    def _put(self, key: _Key, descriptor: int) -> int:
        if key not in self._used:
            if not self._free:
                raise PlanLimitError("descriptors", abi.MAX_SLOTS + 1, abi.MAX_SLOTS)
            slot = self._free.popleft()
            self._used[key] = slot
            self._send(slot, key.kind, key.files.pid, descriptor)
        return self._used[key]


def find_agent(pid: int) -> tuple[int, int] | None:
    """Return the tid of the program's hold agent and a new descriptor of its page (the caller closes it), or None."""
    folder = Path("/proc") / str(pid)
    try:
        tid = next(int(task.name) for task in (folder / "task").iterdir() if _read(task / "comm") == AGENT_THREAD)
        page = next(link for link in (folder / "fd").iterdir() if AGENT_FILE in _target(link))
        return tid, os.open(page, os.O_RDWR | os.O_CLOEXEC)
    except (StopIteration, OSError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _target(link: Path) -> str:
    """Descriptors close while one looks."""
    try:
        return str(link.readlink())
    except OSError:
        return ""
