"""Follows the RM allocations of processes, and tells which channel groups they have.

Only what leads to a channel group is kept (client, device, subdevice, group, channel, and what sits on a channel), so
the many memory objects of a CUDA program cost nothing. Events may come from several threads of a process, in any order
that the driver allows: an object may be freed with its parent, and a handle may be used again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gpsched.adaptive.driver import abi, classes
from gpsched.adaptive.driver.tree import Key, ObjectTree, RmObject
from gpsched.adaptive.driver.types import ChannelGroup


MAX_OBJECTS = 16384  # kept for one process; a CUDA context needs about 60


class ProcessEvent(Protocol):
    """Any event: the watcher knows it by the name of its class. ProcExit and ProcExec have no more than this."""

    @property
    def pid(self) -> int:
        """The process."""


class RmEvent(ProcessEvent, Protocol):
    """What the watcher reads of the probes' RmAlloc, RmFree, RmControl and RmDup."""

    @property
    def client(self) -> int:
        """The client that the call acts in."""

    @property
    def parent(self) -> int:
        """The parent of what is allocated or freed; for a duplication the source client."""

    @property
    def object(self) -> int:
        """The handle allocated, freed or acted on."""

    @property
    def code(self) -> int:
        """The class of an allocation, the command of a control, the source handle of a duplication."""

    @property
    def value(self) -> int:
        """The timeslice in µs of a SET_TIMESLICE; the parent of a duplicate."""

    @property
    def fd(self) -> int:
        """The descriptor that the process used."""

    @property
    def result(self) -> int:
        """The NV_STATUS, or -errno: only 0 is success."""


@dataclass(frozen=True, slots=True)
class GroupAdded:
    """A process has a new channel group; its engine is not known before its first channel has an object."""

    pid: int
    group: ChannelGroup


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """A group gained or lost channels, or its engine or GPU became known."""

    pid: int
    group: ChannelGroup


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    """A group's handle is gone; ``group`` is as it was last."""

    pid: int
    group: ChannelGroup


@dataclass(frozen=True, slots=True)
class SliceSetByOwner:
    """The process set its own group's timeslice, in µs: CUDA does so right after it creates a group."""

    pid: int
    group: ChannelGroup
    us: int


Change = GroupAdded | GroupChanged | GroupRemoved | SliceSetByOwner


class AllocationWatcher:
    """Feed it every RM event of the managed processes; it answers with what changed.

    ``dropped`` counts objects that were not kept because their process has more than MAX_OBJECTS: such a process may
    miss groups, and should be scanned.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._trees: dict[int, ObjectTree] = {}
        self._handlers: dict[str, Callable[[Any], Iterator[Change]]] = {
            "RmAlloc": self._alloc,
            "RmFree": self._free,
            "RmControl": self._control,
            "RmDup": self._dup,
            "ProcExit": self._exit,
            "ProcExec": self._exit,  # libcuda opens its descriptors close-on-exec
        }

    def feed(self, event: ProcessEvent) -> list[Change]:
        """Take one event (recognised by the name of its class; others are ignored) and return the changes, in order."""
        handler = self._handlers.get(type(event).__name__)
        return list(handler(event)) if handler else []

    def groups(self, pid: int) -> list[ChannelGroup]:
        """Return the channel groups that a process has now."""
        tree = self._trees.get(pid)
        return list(tree.groups.values()) if tree else []

    def seed(self, pid: int, groups: list[ChannelGroup]) -> list[Change]:
        """Take over what scan_process() found, so that later events of that process are understood.

        Groups already known from events are left as they are. Returns a GroupAdded for each of the others.
        """
        tree = self._trees.setdefault(pid, ObjectTree())
        new = [group for group in groups if group.key not in tree.objects]
        for group in new:
            tree.seed(group)
        return [GroupAdded(pid, group) for group in new]

    def forget(self, pid: int) -> None:
        """Drop all that is known of a process, without changes."""
        self._trees.pop(pid, None)

    def _alloc(self, event: RmEvent) -> Iterator[Change]:
        if event.result != 0:
            return
        key, parent = (event.client, event.object), (event.client, event.parent)
        if event.code in classes.CLIENTS:
            # The handle may be chosen by the RM and arrive as the new object alone.
            key = parent = (event.object or event.client,) * 2
        tree = self._trees.setdefault(event.pid, ObjectTree())
        yield from self._keep(event.pid, tree, key, RmObject(event.code, parent, event.fd))

    def _dup(self, event: RmEvent) -> Iterator[Change]:
        tree = self._trees.get(event.pid)
        source = tree.objects.get((event.parent, event.code)) if tree else None
        if event.result != 0 or tree is None or source is None:
            return
        # A second handle to a group is not a second group: it is kept so that a channel below it is not mistaken.
        key = (event.client, event.object)
        made = RmObject(source.class_, (event.client, event.value or event.client), event.fd, alias=True)
        yield from self._keep(event.pid, tree, key, made)

    def _keep(self, pid: int, tree: ObjectTree, key: Key, made: RmObject) -> Iterator[Change]:
        # A live handle cannot be allocated again: its free was missed.
        yield from self._remove(pid, tree, key)
        if not tree.matters(made):
            return
        if len(tree.objects) >= MAX_OBJECTS:
            self.dropped += 1
            return
        tree.add(key, made)
        touched = [key] if made.is_group else []
        if made.class_ == classes.SUBDEVICE:
            above = tree.objects.get(made.parent)
            touched = [child for child in (above.children if above else ()) if tree.objects[child].is_group]
        elif not touched:
            touched = [group for group in (tree.group_above(key),) if group is not None]
        for group in touched:
            yield from self._tell(pid, tree, group)

    def _free(self, event: RmEvent) -> Iterator[Change]:
        tree = self._trees.get(event.pid)
        if tree is None or event.result != 0:
            return
        yield from self._remove(event.pid, tree, (event.client, event.object))
        if event.object == event.client:
            yield from self._remove_client(event.pid, tree, event.client)
        if not tree.objects:
            del self._trees[event.pid]

    def _remove_client(self, pid: int, tree: ObjectTree, client: int) -> Iterator[Change]:
        """Also what hangs in the air since its parent was never seen."""
        for key in [key for key in tree.objects if key[0] == client]:
            yield from self._remove(pid, tree, key)

    def _remove(self, pid: int, tree: ObjectTree, key: Key) -> Iterator[Change]:
        gone = tree.objects.get(key)
        if gone is None:
            return
        group, above = tree.group_above(key), gone.parent
        dropped = tree.remove(key)
        for each in dropped:
            last = tree.groups.pop(each, None)
            if last is not None:
                yield GroupRemoved(pid, last)
        touched = [group] if group is not None and group in tree.objects else []
        if gone.class_ == classes.SUBDEVICE and above in tree.objects:
            touched += [child for child in tree.objects[above].children if tree.objects[child].is_group]
        for each in touched:
            yield from self._tell(pid, tree, each)

    def _control(self, event: RmEvent) -> Iterator[Change]:
        tree = self._trees.get(event.pid)
        if tree is None or event.result != 0 or event.code != abi.SET_TIMESLICE.command:
            return
        group = tree.groups.get((event.client, event.object))
        if group is not None:
            yield SliceSetByOwner(event.pid, group, event.value)

    def _exit(self, event: ProcessEvent) -> Iterator[Change]:
        tree = self._trees.pop(event.pid, None)
        for group in tree.groups.values() if tree else ():
            yield GroupRemoved(event.pid, group)

    @staticmethod
    def _tell(pid: int, tree: ObjectTree, key: Key) -> Iterator[Change]:
        now, before = tree.describe(key), tree.groups.get(key)
        if before is not None:
            # All channels of a group are on one runlist, so what is known of its engine and GPU stays true.
            gpu_id = before.gpu_id if before.subdevice == now.subdevice else None
            now = replace(now, engine=classes.stronger(now.engine, before.engine), gpu_id=gpu_id)
        if now == before:
            return
        tree.groups[key] = now
        yield GroupAdded(pid, now) if before is None else GroupChanged(pid, now)
