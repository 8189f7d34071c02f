"""The level `module`: the controls of StockControl, asked of the patched driver module."""

import errno
import os
import time
from collections.abc import Iterable
from typing import NoReturn, Protocol

from gpsched.adaptive.driver import module_abi as abi
from gpsched.adaptive.driver.errors import (
    ControlAbsentError,
    ControlError,
    HandleGoneError,
    ModuleError,
    NoSubdeviceError,
    PrivilegeError,
)
from gpsched.adaptive.driver.module_abi import Action, ActionResult, Done, ModuleGroup, ModuleInfo, Op
from gpsched.adaptive.driver.types import ChannelGroup


_KINDS: dict[int, type[ControlError]] = {
    errno.ESRCH: HandleGoneError,
    errno.EACCES: PrivilegeError,
    errno.EOPNOTSUPP: ControlAbsentError,
}


class Link(Protocol):
    """What is used of ModuleLink; a protocol, so that pyroute2 is imported only where there is a module."""

    lease_ms: int
    info: ModuleInfo

    def groups(self, pid: int | None = None) -> list[ModuleGroup]: ...  # noqa: D102
    def timeslice(self, number: int) -> int: ...  # noqa: D102
    def apply(self, actions: Iterable[Action], *, asynchronous: bool = False) -> Done: ...  # noqa: D102
    def renew(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class ModuleControl:
    """The controls of one process, with the interface and the errors of StockControl, and those of ModuleLink.

    What StockControl keeps to clean up after itself (``disabled``, ``enable_all``) is the kernel's business here.
    ``groups`` passed in are found in the module by client and handle. ``last_cost_us`` is the last control's duration.
    """

    def __init__(self, link: Link, pid: int) -> None:
        self.link, self.pid = link, pid
        self.last_cost_us = 0.0
        self._known: dict[tuple[int, int], ModuleGroup] = {}

    def knows(self, group: ChannelGroup) -> bool:
        """Tell whether the module has the group: the companion module misses clients older than itself."""
        return self._find(group) is not None

    def gpu_id(self, group: ChannelGroup) -> int:
        """Return the RM's id of the group's GPU, the same in every process. Raises NoSubdeviceError."""
        known = self._find(group)
        if known is None or known.group.gpu_id is None:
            self.forget(group)  # its subdevice may come
            raise NoSubdeviceError(group.client, group.handle)
        return known.group.gpu_id

    def forget(self, group: ChannelGroup) -> None:
        """The group died: its handle may name another one."""
        self._known.pop(group.key, None)

    def get_timeslice(self, group: ChannelGroup) -> int:
        """Return the group's timeslice in µs, as the driver says."""
        try:
            return self.link.timeslice(self._number(group, "NVA06C_CTRL_CMD_GET_TIMESLICE"))
        except ModuleError as error:
            self._known.pop(group.key, None)
            if error.code == errno.ESRCH:
                raise self._gone("get timeslice", group) from error
            raise

    def set_timeslice(self, group: ChannelGroup, us: int) -> None:
        """Set the group's timeslice in µs, 1 to 10 s."""
        if not 1 <= us <= abi.MAX_TIMESLICE_US:
            raise ValueError(f"a timeslice of {us} µs; give 1 to {abi.MAX_TIMESLICE_US}")
        self._do([group], Op.TIMESLICE, us)

    def restore_timeslice(self, group: ChannelGroup) -> None:
        """Give the group the timeslice that it had before this link changed it."""
        self._do([group], Op.TIMESLICE_UNDO)

    def preempt(self, group: ChannelGroup, *, wait: bool = False, timeout_us: int = 0) -> None:
        """Take the group off the GPU once. With ``wait``, until it is, at most ``timeout_us`` (0: 1 s)."""
        if not 0 <= timeout_us <= abi.MAX_PREEMPT_US:
            raise ValueError(f"a timeout of {timeout_us} µs; give 0 to {abi.MAX_PREEMPT_US}")
        self._do([group], Op.PREEMPT, (timeout_us or abi.MAX_PREEMPT_US) if wait else 0)

    def set_interleave(self, group: ChannelGroup, level: int) -> None:
        """Set how often the group appears in the runlist: 0 low, 1 medium, 2 high."""
        if level not in (0, 1, 2):
            raise ValueError(f"interleave level {level}; give 0, 1 or 2")
        self._do([group], Op.INTERLEAVE, level)

    def restart_runlist(self, group: ChannelGroup, *, force: bool = False, wait: bool = False) -> None:
        """Expire the slice that runs now and begin the runlist anew."""
        self._do([group], Op.RESTART, abi.RESTART_FORCE * force | abi.RESTART_WAIT * wait)

    def disable(self, groups: ChannelGroup | Iterable[ChannelGroup], *, scheduling_only: bool = False) -> None:
        """Stop the groups until enable(), until the lease ends, or until this link closes."""
        self._do(groups, Op.DISABLE, abi.DISABLED_SCHEDULING if scheduling_only else abi.DISABLED)

    def enable(self, groups: ChannelGroup | Iterable[ChannelGroup]) -> None:
        """Give up this link's own disable. Another controller's stays."""
        self._do(groups, Op.ENABLE)

    def actions(self, groups: Iterable[ChannelGroup], op: Op, value: int = 0) -> list[Action]:
        """Return the actions for a plan."""
        return [Action(self._number(group, op.name), op, value) for group in groups]

    def _find(self, group: ChannelGroup) -> ModuleGroup | None:
        if group.key not in self._known:
            self._known = {known.group.key: known for known in self.link.groups(self.pid)}
        return self._known.get(group.key)

    def _number(self, group: ChannelGroup, control: str) -> int:
        known = self._find(group)
        if known is None:
            raise self._gone(control, group)
        return known.number

    def _do(self, groups: ChannelGroup | Iterable[ChannelGroup], op: Op, value: int = 0) -> None:
        todo = [groups] if isinstance(groups, ChannelGroup) else list(groups)
        for start in range(0, len(todo), abi.MAX_ACTIONS):
            part = todo[start : start + abi.MAX_ACTIONS]
            actions = self.actions(part, op, value)
            began = time.perf_counter()
            done = self.link.apply(actions)
            self.last_cost_us = (time.perf_counter() - began) * 1e6
            for group, result in zip(part, done.results, strict=True):
                if result.error:
                    self._refuse(op, group, result)

    def _gone(self, control: str, group: ChannelGroup) -> HandleGoneError:
        return HandleGoneError(control, self.pid, group.client, group.handle, None, "ESRCH")

    def _refuse(self, op: Op, group: ChannelGroup, result: ActionResult) -> NoReturn:
        self._known.pop(group.key, None)
        kind = _KINDS.get(-result.error, ControlError)
        reason = (
            ""
            if result.status not in (0, abi.SUSPENDED)
            else errno.errorcode.get(-result.error, os.strerror(-result.error))
        )
        raise kind(op.name.lower(), self.pid, group.client, group.handle, result.status or None, reason)
