"""Generic netlink to the patched driver module, by pyroute2.

One ModuleLink is one controller in the kernel: when its socket closes, also by SIGKILL, or when a lease runs out, the
module undoes what was changed through it. So renew() has to be called well within ``lease_ms``. Plans are for what must
happen fast, also from a BPF program.

pyroute2 takes a third of a second to import: ask module_abi.available() first.
"""

import errno
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, genlmsg
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.generic import GenericNetlinkSocket

from gpsched.adaptive.driver import module_abi as abi
from gpsched.adaptive.driver.errors import ModuleAbsentError, ModuleError
from gpsched.adaptive.driver.module_abi import (
    Action,
    Command,
    Done,
    Feature,
    GroupEvent,
    ModuleGroup,
    ModuleInfo,
)
from gpsched.adaptive.driver.types import Channel, ChannelGroup


_OF_PLANS = frozenset({Command.PLAN_BEGIN, Command.PLAN_END, Command.PLAN_DROP})


class Message(genlmsg):  # type: ignore[misc]
    """A message of the family, either way."""

    prefix = "GS_A_"
    nla_map = tuple((number, name, kind) for number, (name, kind) in enumerate(abi.ATTRIBUTES))


class ModuleLink:
    """A socket to the module: one controller. Close it, or leave its ``with`` block, to undo everything.

    Every method raises ModuleAbsentError when there is no module to talk to (any more), ModuleError when it refuses.
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
            raise ModuleAbsentError(abi.ABSENT) from error
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
            code = abs(error.code)
            if code == errno.ENOENT and command not in _OF_PLANS:
                raise ModuleAbsentError("the module was unloaded") from error
            raise ModuleError(command.name.lower().replace("_", " "), code) from error
        except OSError as error:
            raise ModuleAbsentError(f"no answer from the module ({error.strerror or error})") from error


class ModuleEvents:
    """What the module tells everyone: a socket of its own, so that it is no controller. Needs CAP_SYS_ADMIN."""

    def __init__(self) -> None:
        self._socket = GenericNetlinkSocket()
        try:
            self._socket.bind(abi.FAMILY, Message)
            self._socket.add_membership(abi.EVENTS)
        except NetlinkError as error:
            self._socket.close()
            raise ModuleAbsentError(abi.ABSENT) from error
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
