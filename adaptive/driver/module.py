"""The level `module`: the same controls as StockControl, asked of the patched driver module over generic netlink.

One ModuleLink is one controller in the kernel: when its socket closes, also by SIGKILL, or when a lease runs out, the
module undoes what was changed through it. So renew() has to be called well within ``lease_ms``. ModuleControl gives one
process's groups the interface of StockControl; plans are for what must happen fast, also from a BPF program.

pyroute2 takes a while to import: ask module_abi.available() first.
"""

import errno
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, Self

from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, genlmsg
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.generic import GenericNetlinkSocket

from gpsched.adaptive.driver import module_abi as abi
from gpsched.adaptive.driver.errors import ControlAbsentError, ControlError, HandleGoneError, PrivilegeError
from gpsched.adaptive.driver.module_abi import Action, ActionResult, Command, Feature, Op
from gpsched.adaptive.driver.types import Channel, ChannelGroup
from gpsched.adaptive.errors import GpschedError, UnsupportedHostError


_REMEDY = "use another level, or install the patched module (docs/kmod.md)"


class ModuleAbsentError(UnsupportedHostError):
    """The running driver has no gpsched in it, or one that is too old. Field: ``reason``."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"level module: {reason}", _REMEDY)


class ModuleError(GpschedError):
    """The module refused a request. Fields: ``request`` (str), ``code`` (errno)."""

    def __init__(self, request: str, code: int, hint: str = "") -> None:
        self.request, self.code = request, code
        reason = hint or _HINTS.get(code, "see the kernel log")
        super().__init__(f"the gpsched module refused {request} ({errno.errorcode.get(code, code)}): {reason}")


_HINTS = {
    errno.EPERM: "it needs CAP_SYS_ADMIN in the initial user namespace; run the daemon as root",
    errno.EBUSY: "too many requests at once; wait and try again",
    errno.ENOSPC: "a limit of the module is reached; drop plans or stop other controllers",
    errno.ENOENT: "there is no such plan any more; prepare it again",
}


class Message(genlmsg):  # type: ignore[misc]
    """A message of the family, either way."""

    prefix = "GS_A_"
    nla_map = tuple((number, name, kind) for number, (name, kind) in enumerate(abi.ATTRIBUTES))


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """What is loaded: ``driver`` is its version, empty for the companion module."""

    version: int
    driver: str
    features: Feature
    counters: dict[str, int]


@dataclass(frozen=True, slots=True)
class ModuleGroup:
    """A channel group as the module knows it; ``number`` is never used again while the module is loaded."""

    number: int
    pid: int
    uid: int
    cgroup: int
    device: int
    disabled: int
    group: ChannelGroup


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a request: ``error`` is the first action's that failed, as negative errno."""

    cookie: int
    error: int
    status: int
    results: tuple[ActionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """A group came, its engine became known (``added``), or it went."""

    added: bool
    group: ModuleGroup


class ModuleLink:
    """A socket to the module: one controller. Close it, or leave its ``with`` block, to undo everything.

    Raises ModuleAbsentError when there is no module to talk to.
    """

    def __init__(self, lease_ms: int = abi.DEFAULT_LEASE_MS) -> None:
        if not abi.MIN_LEASE_MS <= lease_ms <= abi.MAX_LEASE_MS:
            raise ValueError(f"a lease of {lease_ms} ms; give {abi.MIN_LEASE_MS} to {abi.MAX_LEASE_MS}")
        self.lease_ms = lease_ms
        self._cookie = 0
        self._socket = GenericNetlinkSocket()
        try:
            self._socket.bind(abi.FAMILY, Message)
        except NetlinkError as error:
            self._socket.close()
            raise ModuleAbsentError("the loaded NVIDIA driver has no gpsched in it") from error
        self.info = self.read_info()
        if self.info.version < abi.VERSION:
            self.close()
            raise ModuleAbsentError(f"the loaded module speaks version {self.info.version}, this daemon {abi.VERSION}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up everything that is held: the kernel undoes it."""
        self._socket.close()

    # ---- reading ----

    def read_info(self) -> ModuleInfo:
        """Return version, features and counters as they are now."""
        reply = self._ask(Command.INFO)[0]
        return ModuleInfo(
            reply.get_attr("GS_A_VERSION"),
            reply.get_attr("GS_A_DRIVER") or "",
            Feature(reply.get_attr("GS_A_FEATURES")),
            abi.unpack_counters(reply.get_attr("GS_A_COUNTERS")),
        )

    def groups(self, pid: int | None = None) -> list[ModuleGroup]:
        """Return the groups of all processes, or of one."""
        attributes = {} if pid is None else {"GS_A_PID": pid}
        return [_group(reply) for reply in self._ask(Command.LIST, attributes, dump=True)]

    def timeslice(self, number: int) -> int:
        """Return a group's timeslice in µs, as the driver says. Raises ModuleError (ESRCH) when the group is gone."""
        return int(self._ask(Command.GET, {"GS_A_GROUP": number})[0].get_attr("GS_A_TIMESLICE"))

    # ---- changing ----

    def apply(self, actions: Iterable[Action], *, asynchronous: bool = False) -> Done:
        """Do up to 64 things in order, consecutive disables and enables in one call of the driver.

        An asynchronous request returns at once, with a cookie; events() yields its Done. What is changed lasts
        until it is undone, at most ``lease_ms``. Raises ModuleError when the request as a whole is refused.
        """
        self._cookie += 1
        attributes: dict[str, Any] = {
            "GS_A_ACTIONS": abi.pack_actions(list(actions)),
            "GS_A_LEASE_MS": self.lease_ms,
            "GS_A_COOKIE": self._cookie,
        }
        if asynchronous:
            attributes["GS_A_ASYNC"] = True
        replies = [reply for reply in self._ask(Command.CONTROL, attributes) if reply.get("cmd") == Command.DONE]
        return Done(self._cookie, 0, 0) if asynchronous else _done(replies[0])

    def renew(self) -> None:
        """Let everything held outside of plans live for another ``lease_ms``."""
        self._ask(Command.RENEW, {"GS_A_LEASE_MS": self.lease_ms})

    def release(self) -> None:
        """Undo everything now, and drop all plans."""
        self._ask(Command.RELEASE)

    def prepare(self, actions: Iterable[Action], lease_ms: int) -> int:
        """Store a plan; return its number. Once begun it ends by itself after ``lease_ms``."""
        attributes = {"GS_A_ACTIONS": abi.pack_actions(list(actions)), "GS_A_LEASE_MS": lease_ms}
        return int(self._ask(Command.PLAN_SET, attributes)[0].get_attr("GS_A_PLAN"))

    def begin(self, plan: int) -> None:
        """Do what a plan says; for one that has begun, only its lease starts anew."""
        self._ask(Command.PLAN_BEGIN, {"GS_A_PLAN": plan})

    def end(self, plan: int) -> None:
        """Undo what a plan did."""
        self._ask(Command.PLAN_END, {"GS_A_PLAN": plan})

    def drop(self, plan: int) -> None:
        """Undo and forget a plan."""
        self._ask(Command.PLAN_DROP, {"GS_A_PLAN": plan})

    def _ask(self, command: Command, attributes: dict[str, Any] | None = None, *, dump: bool = False) -> list[Any]:
        message = Message()
        message["cmd"], message["version"] = int(command), abi.VERSION
        message["attrs"] = list((attributes or {}).items())
        flags = NLM_F_REQUEST | (NLM_F_DUMP if dump else NLM_F_ACK)
        try:
            return list(self._socket.nlm_request(message, msg_type=self._socket.prid, msg_flags=flags))
        except NetlinkError as error:
            raise ModuleError(command.name.lower().replace("_", " "), abs(error.code)) from error


class ModuleEvents:
    """What the module tells everyone: a socket of its own, so that it is no controller. Needs CAP_SYS_ADMIN."""

    def __init__(self) -> None:
        self._socket = GenericNetlinkSocket()
        try:
            self._socket.bind(abi.FAMILY, Message)
            self._socket.add_membership(abi.EVENTS)
        except NetlinkError as error:
            self._socket.close()
            raise ModuleAbsentError("the loaded NVIDIA driver has no gpsched in it") from error
        except PermissionError as error:
            self._socket.close()
            raise ModuleError("to subscribe", errno.EPERM) from error

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return int(self._socket.fileno())

    def read(self) -> Iterator[GroupEvent | Done]:
        """Yield the events of one read; waits for one when there is none."""
        for message in self._socket.get():
            if message.get("cmd") == Command.DONE:
                yield _done(message)
            elif message.get("cmd") in (Command.ADDED, Command.REMOVED):
                yield GroupEvent(message["cmd"] == Command.ADDED, _group(message))

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


class ModuleControl:
    """The controls of one process, with the interface and the errors of StockControl.

    ``groups`` passed in are found in the module by client and handle. ``last_cost_us`` is the last control's duration.
    """

    def __init__(self, link: ModuleLink, pid: int) -> None:
        self.link, self.pid = link, pid
        self.last_cost_us = 0.0
        self._numbers: dict[tuple[int, int], int] = {}

    def get_timeslice(self, group: ChannelGroup) -> int:
        """Return the group's timeslice in µs, as the driver says."""
        try:
            return self.link.timeslice(self._number(group, "NVA06C_CTRL_CMD_GET_TIMESLICE"))
        except ModuleError as error:
            self._numbers.pop(group.key, None)
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

    def _number(self, group: ChannelGroup, control: str) -> int:
        if group.key not in self._numbers:
            self._numbers = {known.group.key: known.number for known in self.link.groups(self.pid)}
        try:
            return self._numbers[group.key]
        except KeyError:
            raise self._gone(control, group) from None

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
        self._numbers.pop(group.key, None)
        kind = _KINDS.get(-result.error, ControlError)
        reason = (
            ""
            if result.status not in (0, abi.SUSPENDED)
            else errno.errorcode.get(-result.error, os.strerror(-result.error))
        )
        raise kind(op.name.lower(), self.pid, group.client, group.handle, result.status or None, reason)


_KINDS: dict[int, type[ControlError]] = {
    errno.ESRCH: HandleGoneError,
    errno.EACCES: PrivilegeError,
    errno.EOPNOTSUPP: ControlAbsentError,
}


def _group(message: Any) -> ModuleGroup:
    client = message.get_attr("GS_A_CLIENT")
    channels = abi.unpack_channels(message.get_attr("GS_A_CHANNELS") or b"")
    engine = message.get_attr("GS_A_ENGINE") or 0
    return ModuleGroup(
        message.get_attr("GS_A_GROUP"),
        message.get_attr("GS_A_PID"),
        message.get_attr("GS_A_UID"),
        message.get_attr("GS_A_CGROUP"),
        message.get_attr("GS_A_DEVICE"),
        message.get_attr("GS_A_DISABLED") or 0,
        ChannelGroup(
            client,
            message.get_attr("GS_A_HANDLE"),
            abi.ENGINES[engine] if engine < len(abi.ENGINES) else "unknown",
            tuple(Channel(*pair) for pair in channels),
            message.get_attr("GS_A_SUBDEVICE"),
            message.get_attr("GS_A_GPU"),
        ),
    )


def _done(message: Any) -> Done:
    results = abi.unpack_results(message.get_attr("GS_A_RESULTS") or b"")
    return Done(
        message.get_attr("GS_A_COOKIE"), message.get_attr("GS_A_ERROR"), message.get_attr("GS_A_STATUS"), tuple(results)
    )
