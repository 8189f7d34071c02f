"""Sets timeslices and puts them back: every change has its original value on disk first."""

import logging
import select
from collections.abc import Callable

from gpsched.adaptive.driver.control import StockControl
from gpsched.adaptive.driver.errors import HandleGoneError, ModuleAbsentError, ModuleError
from gpsched.adaptive.driver.files import DriverFiles
from gpsched.adaptive.driver.module_control import ModuleControl
from gpsched.adaptive.driver.module_level import ModuleLevel
from gpsched.adaptive.driver.types import Channel, ChannelGroup
from gpsched.adaptive.errors import GpschedError, ProcessGoneError
from gpsched.adaptive.thaw import restore_frozen
from gpsched.adaptive.undo import Setting, UndoLog
from gpsched.adaptive.workloads import procinfo
from gpsched.adaptive.workloads.registry import Group, Process


log = logging.getLogger(__name__)


class SliceKeeper:
    """Knows for each process how to reach its channel groups, and what to put back.

    A group that the driver module knows is controlled through the module, any other by the stock control. Whoever set a
    slice gives it back. The original is on disk in both cases: the module undoes what it did, but may itself be gone.
    ``failures`` counts controls that failed although their handle lives; ``last_failure`` is the latest message.
    """

    def __init__(
        self,
        undo: UndoLog,
        opener: Callable[[int], DriverFiles] = DriverFiles,
        module: ModuleLevel | None = None,
    ) -> None:
        self._undo, self._opener, self._module = undo, opener, module
        self._in_module: dict[tuple[int, int, int], Group | None] = {}  # None: left to the stock control
        self._files: dict[int, DriverFiles] = {}
        self._exits = select.epoll()
        self._pid_of: dict[int, int] = {}
        self._controls: dict[int, StockControl] = {}
        self.failures = 0
        self.last_failure: str | None = None

    def files(self, pid: int) -> DriverFiles:
        """Copies of the process' driver descriptors, kept until ``forget``."""
        if pid not in self._files:
            files = self._files[pid] = self._opener(pid)
            self._pid_of[files.pidfd] = pid
            self._exits.register(files.pidfd, select.EPOLLIN)  # closing the pidfd takes it out again
        return self._files[pid]

    def fileno(self) -> int:
        """Descriptor that is readable when ``exited`` has something to tell."""
        return self._exits.fileno()

    def exited(self) -> list[int]:
        """Processes that have ended while their descriptors are kept here; ``forget`` them."""
        return [self._pid_of[pidfd] for pidfd, _ in self._exits.poll(0)]

    def control(self, pid: int) -> StockControl:
        """The controls of the process' own client."""
        if pid not in self._controls:
            self._controls[pid] = StockControl(self.files(pid))
        return self._controls[pid]

    def control_of(self, process: Process, group: Group) -> StockControl | ModuleControl:
        """The control that this group is under."""
        return self._module_control(process, group) or self.control(process.pid)

    def in_module(self, process: Process, group: Group) -> bool:
        """Whether the group is under the driver module's control."""
        return self._module_control(process, group) is not None

    def renew(self) -> None:
        """Let what the module holds live on. What it gave up has its own slice again, and is set anew by ``want``."""
        if self._module is None:
            return
        before = self._module.present
        if not self._module.renew():
            self._lost()
        elif self._module.present and not before:
            self._in_module = {key: group for key, group in self._in_module.items() if group is not None}

    def close(self, process: Process) -> None:
        """Close the copies: a copy that is kept would keep a dead program's GPU memory allocated."""
        self._controls.pop(process.pid, None)
        files = self._files.pop(process.pid, None)
        if files is not None:
            files.close()

    def forget(self, process: Process) -> None:
        """The groups are gone or have their own settings: close the copies, nothing is left to restore."""
        self.close(process)
        for group in process.groups.values():
            self.drop(process, group)
        if self._module is not None:
            self._module.forget(process.pid)

    def drop(self, process: Process, group: Group) -> None:
        """The group died: nothing is left to restore."""
        self.unguard(process, group)
        self._in_module.pop(_key(process, group), None)
        if (control := self._module_of(process.pid)) is not None:
            control.forget(group.group)
        if group.original_us is not None:
            self._undo.restored(_setting(process, group))

    def guard(self, process: Process, group: Group) -> None:
        """Keep on disk that the group's channels may be disabled from now on."""
        self._undo.changing(_channels(process, group))

    def unguard(self, process: Process, group: Group) -> None:
        """Nobody disables the group's channels any more, and they are enabled."""
        self._undo.restored(_channels(process, group))

    def want(self, process: Process, group: Group, us: int | None) -> bool:
        """Give the group this slice, its own when None. Return whether it has it now.

        Failures are counted and logged.
        """
        try:
            self._release(process, group) if us is None else self._set(process, group, us)
        except HandleGoneError:
            return False
        except ProcessGoneError:
            return False
        except GpschedError as error:
            if isinstance(error, ModuleAbsentError):
                self._lost(error.reason)
            elif isinstance(error, ModuleError) and not error.transient and _untouched(group):
                self._in_module[_key(process, group)] = None  # the stock control may do better
            self.failures += 1
            again, self.last_failure = self.last_failure == str(error), str(error)
            log.log(logging.DEBUG if again else logging.WARNING, "%s", error)
            return False
        return True

    def owner_set(self, process: Process, group: Group, us: int) -> None:
        """The program set its own slice (CUDA does so after it creates a group): that is now what to put back."""
        group.timeslice_us = us
        if group.original_us is not None and group.original_us != us:
            self._undo.restored(_setting(process, group))
            group.original_us = us
            self._undo.changing(_setting(process, group))

    def _set(self, process: Process, group: Group, us: int) -> None:
        if group.timeslice_us == us and group.intended_us == us:
            return
        control = self.control_of(process, group)
        if group.original_us is None:
            group.original_us = control.get_timeslice(group.group)
            self._undo.changing(_setting(process, group))
        control.set_timeslice(group.group, us)
        log.info(
            "pid %d group %#x: timeslice %d µs (was %s µs)",
            process.pid,
            group.group.handle,
            us,
            group.timeslice_us or group.original_us,
        )
        group.timeslice_us = group.intended_us = us

    def _release(self, process: Process, group: Group) -> None:
        if group.original_us is None:
            return
        if (module := self._module_control(process, group)) is not None:
            module.restore_timeslice(group.group)
        else:
            self.control(process.pid).set_timeslice(group.group, group.original_us)
            self._in_module.pop(_key(process, group), None)  # from now on the module may have it
        log.info("pid %d group %#x: timeslice %d µs, its own again", process.pid, group.group.handle, group.original_us)
        group.timeslice_us = group.original_us
        self._undo.restored(_setting(process, group))
        group.original_us = group.intended_us = None

    def _module_control(self, process: Process, group: Group) -> ModuleControl | None:
        """A slice that the stock control has set stays with it: the module would take it for the program's own."""
        control = self._module_of(process.pid)
        if control is None:
            return None
        key = _key(process, group)
        if key not in self._in_module:
            self._in_module[key] = group if _untouched(group) and self._known(control, group) else None
        return control if self._in_module[key] is not None else None

    def _module_of(self, pid: int) -> ModuleControl | None:
        return self._module.control(pid) if self._module is not None else None

    def _known(self, control: ModuleControl, group: Group) -> bool:
        try:
            return control.knows(group.group)
        except GpschedError as error:
            log.info("%s", error)
            return False

    def _lost(self, reason: str | None = None) -> None:
        if reason is not None and self._module is not None:
            self._module.lose(reason)
        for group in self._in_module.values():
            if group is not None and group.original_us is not None:
                group.timeslice_us = group.original_us
        self._in_module.clear()


def restore_pending(undo: UndoLog, opener: Callable[[int], DriverFiles] = DriverFiles) -> int:
    """Put back what a daemon that died left changed, and thaw what it left frozen; return how many changes that were.

    Settings of processes and groups that are gone are struck off. One that cannot be restored stays in the undo log.
    """
    return restore_frozen(undo) + sum(_restore_one(undo, setting, opener) for setting in undo.pending())


def _restore_one(undo: UndoLog, setting: Setting, opener: Callable[[int], DriverFiles]) -> bool:
    channels = tuple(Channel(setting.client, handle) for handle in setting.channels)
    group = ChannelGroup(
        client=setting.client, handle=setting.handle, channels=channels, subdevice=setting.subdevice, fd=setting.fd
    )
    try:
        if procinfo.start_ticks(setting.pid) != setting.start_ticks:
            raise ProcessGoneError(setting.pid)
        files = opener(setting.pid)
        try:
            if setting.kind == "channels":
                StockControl(files).enable(group)
            else:
                StockControl(files).set_timeslice(group, setting.original_us)
        finally:
            files.close()
    except (ProcessGoneError, HandleGoneError):
        undo.restored(setting)
        return False
    except GpschedError as error:
        log.warning("cannot restore pid %d: %s", setting.pid, error)
        return False
    undo.restored(setting)
    log.info("pid %d group %#x: %s restored", setting.pid, setting.handle, setting.kind)
    return True


def _untouched(group: Group) -> bool:
    """Whether the driver has the program's own slice."""
    return group.original_us is None or group.timeslice_us in (None, group.original_us)


def _key(process: Process, group: Group) -> tuple[int, int, int]:
    return (process.pid, *group.key)


def _setting(process: Process, group: Group) -> Setting:
    assert group.original_us is not None
    return Setting(
        pid=process.pid,
        start_ticks=process.info.start_ticks,
        fd=group.group.fd,
        client=group.group.client,
        handle=group.group.handle,
        original_us=group.original_us,
    )


def _channels(process: Process, group: Group) -> Setting:
    return Setting(
        pid=process.pid,
        start_ticks=process.info.start_ticks,
        fd=group.group.fd,
        client=group.group.client,
        handle=group.group.handle,
        kind="channels",
        subdevice=group.group.subdevice,
        channels=tuple(channel.handle for channel in group.group.channels),
    )
