"""The GPU processes that gpsched knows: class, tenant, objective, level, channel groups. State only, no I/O."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gpsched.adaptive.driver.types import ChannelGroup
from gpsched.adaptive.model import Class, Level
from gpsched.adaptive.workloads.procinfo import ProcessInfo


GroupKey = tuple[int, int]


@dataclass
class Group:
    """A channel group and its timeslice: what it has, what it should have, and what the program had set."""

    group: ChannelGroup
    timeslice_us: int | None = None
    intended_us: int | None = None
    original_us: int | None = None

    @property
    def key(self) -> GroupKey:
        """Unique within the process."""
        return (self.group.client, self.group.handle)


@dataclass
class Process:
    """A classified process. ``source`` says who classified it: run, attach, ``rule NAME`` or ``child of PID``.

    ``priority`` and ``weight`` count among several of its class on a GPU; ``service`` is the same for processes that
    are one program to its users (a parent and its children, all of one rule).
    ``stand_in``: what it is treated as for now, in place of its class, because the GPU does not take it.
    ``restraint``: why it may not reserve, empty if it may.
    """

    info: ProcessInfo
    class_: Class
    source: str
    tenant: str
    slo_us: float | None = None
    priority: int = 0
    weight: float = 1.0
    service: str = ""
    since: float = field(default_factory=time.monotonic)
    stand_in: Class | None = None
    restraint: str = ""
    mechanism: Level = "timeslice"  # the rung that was chosen; ``level`` is what is in force
    hint_reason: str = ""
    level: Level = "observe"
    reason: str = "no channel group yet"
    out_of_control: bool = False  # it uses a GPU, and the driver's controls do not reach it
    groups: dict[GroupKey, Group] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """The thread group."""
        return self.info.pid

    @property
    def family(self) -> str:
        """Its service; a process by itself is one, too."""
        return self.service or str(self.pid)

    @property
    def runs_as(self) -> Class:
        """How it is treated now."""
        return self.stand_in or self.class_

    def compute_groups(self) -> list[Group]:
        """The groups that share the compute engine: those that scheduling is about."""
        return [group for group in self.groups.values() if group.group.engine == "compute"]

    def gpus(self) -> set[int | None]:
        """Ids of the GPUs on which the process computes; None is a GPU whose id could not be read."""
        return {group.group.gpu_id for group in self.compute_groups()}


class Registry:
    """All managed processes by pid."""

    def __init__(self) -> None:
        self._processes: dict[int, Process] = {}

    def __iter__(self) -> Iterator[Process]:
        return iter(list(self._processes.values()))

    def __len__(self) -> int:
        return len(self._processes)

    def get(self, pid: int) -> Process | None:
        """Return the process, or None when it is not managed."""
        return self._processes.get(pid)

    def put(self, process: Process) -> None:
        """Add the process, in place of one with the same pid."""
        self._processes[process.pid] = process

    def remove(self, pid: int) -> Process | None:
        """Forget the process and return what was known."""
        return self._processes.pop(pid, None)

    def set_groups(self, pid: int, groups: list[ChannelGroup]) -> list[Group]:
        """The process has these groups now; return those it has no more. What is known of the others stays."""
        process = self._processes[pid]
        old, process.groups = process.groups, {}
        for group in groups:
            entry = old.pop(group.key, None) or Group(group)
            entry.group = _with_known_gpu(group, entry.group)
            process.groups[group.key] = entry
        return list(old.values())


def _with_known_gpu(now: ChannelGroup, before: ChannelGroup) -> ChannelGroup:
    """A group stays on its GPU, whose id may have been asked for once."""
    return replace(now, gpu_id=before.gpu_id) if now.gpu_id is None else now
