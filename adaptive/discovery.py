"""Finds the channel groups of processes: from allocations as they happen, and by a scan of those that ran before."""

import logging
from dataclasses import replace

from gpsched.adaptive.driver import scan
from gpsched.adaptive.driver.watcher import AllocationWatcher, SliceSetByOwner
from gpsched.adaptive.errors import GpschedError, ProcessGoneError
from gpsched.adaptive.probes.events import RmAlloc, RmControl, RmDup, RmFree
from gpsched.adaptive.slices import SliceKeeper
from gpsched.adaptive.workloads.registry import Group, Process, Registry


log = logging.getLogger(__name__)


class Discovery:
    """Keeps the groups in the registry true; groups that are gone are dropped from ``keeper``."""

    def __init__(self, registry: Registry, keeper: SliceKeeper) -> None:
        self._registry, self._keeper = registry, keeper
        self._watcher = AllocationWatcher()
        self._rescan: set[int] = set()

    def feed(self, process: Process, event: RmAlloc | RmFree | RmControl | RmDup) -> bool:
        """Take a call of the driver into account; True when groups or their slices changed by it."""
        changes = self._watcher.feed(event)
        if not changes:
            return False
        self._update(process)
        for change in changes:
            if isinstance(change, SliceSetByOwner) and (group := process.groups.get(change.group.key)):
                self._keeper.owner_set(process, group, change.us)
        return True

    def scan(self, process: Process) -> None:
        """Find the groups of a process whose allocations were not all seen; raise ``ProcessGoneError``."""
        try:
            self._watcher.forget(process.pid)
            self._watcher.seed(process.pid, scan.scan_process(self._keeper.files(process.pid)))
            self._update(process)
        except ProcessGoneError:
            raise
        except (GpschedError, OSError) as error:
            log.warning("cannot look for the channel groups of process %d: %s", process.pid, error)
        self._rescan.discard(process.pid)  # what this scan could not tell, the next would not either

    def unclear(self) -> set[int]:
        """Return, once, the processes that only a scan tells the GPU of a group of."""
        pids, self._rescan = self._rescan, set()
        return pids

    def forget_groups(self, process: Process) -> None:
        """It became another program, whose groups are yet to come."""
        self._keeper.forget(process)
        process.groups.clear()
        self._watcher.forget(process.pid)

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._watcher.forget(pid)
        self._rescan.discard(pid)

    def _update(self, process: Process) -> None:
        """Take over what the watcher knows, and ask for the GPU of groups whose creation did not tell it."""
        for gone in self._registry.set_groups(process.pid, self._watcher.groups(process.pid)):
            self._keeper.drop(process, gone)
        for group in process.compute_groups():
            if group.group.gpu_id is None:
                self._identify(process, group)

    def _identify(self, process: Process, group: Group) -> None:
        if group.group.subdevice is None:
            self._rescan.add(process.pid)  # its device was made before we watched: only a scan tells
            return
        try:
            group.group = replace(group.group, gpu_id=self._keeper.control_of(process, group).gpu_id(group.group))
        except GpschedError as error:
            log.info("%s", error)  # None counts as a GPU of its own: all processes on unknown GPUs share it
