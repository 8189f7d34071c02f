"""The driver with the module in it, played by a dictionary: slices, holds with leases, sockets that close."""

import errno
from collections.abc import Iterable
from itertools import count

from gpsched.adaptive.driver import module_abi as abi
from gpsched.adaptive.driver.errors import ControlError, ModuleAbsentError, ModuleError
from gpsched.adaptive.driver.module_abi import Action, ActionResult, Done, Feature, ModuleGroup, ModuleInfo, Op
from gpsched.adaptive.driver.types import ChannelGroup


Key = tuple[int, int, int]
OWN = 2048


class Driver:
    """Slices by (pid, client, handle). ``loaded``: the module is there; ``missed``: processes older than it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slices: dict[Key, int] = {}
        self.groups: dict[Key, ModuleGroup] = {}
        self.loaded = True
        self.missed: set[int] = set()
        self.version = abi.VERSION
        self.features = Feature.KFUNCS
        self.refusal = 0  # errno of every request, or of those named so
        self.refused = ""
        self.links: list[Link] = []
        self.holds: dict[Key, tuple[Link, int, float]] = {}  # whose, original, end of the lease
        self.stock_calls: list[tuple[Key, int]] = []
        self.stock_fails = False
        self._numbers = count(1000)

    def program(self, pid: int, group: ChannelGroup) -> None:
        """A process makes a group."""
        key = (pid, *group.key)
        self.slices[key] = OWN
        self.holds.pop(key, None)
        self.groups[key] = ModuleGroup(next(self._numbers), pid, 0, 0, 0, 0, group)

    def owner_sets(self, key: Key, us: int) -> None:
        """The program sets its own slice: what is held stays, and gives that back later."""
        if key in self.holds:
            link, _, end = self.holds[key]
            self.holds[key] = (link, us, end)
        else:
            self.slices[key] = us

    def open(self) -> "Link":
        if not self.loaded:
            raise ModuleAbsentError(abi.ABSENT)
        if self.version < abi.VERSION:
            raise ModuleAbsentError(f"the loaded module speaks version {self.version}, this daemon {abi.VERSION}")
        return Link(self)

    def unload(self) -> None:
        self.loaded = False
        for key in list(self.holds):
            self.undo(key)

    def undo(self, key: Key) -> None:
        self.slices[key] = self.holds.pop(key)[1]

    def expire(self) -> None:
        for key, (_, _, end) in list(self.holds.items()):
            if self.now >= end:
                self.undo(key)

    def stock(self, pid: int) -> "Stock":
        return Stock(self, pid)


class Stock:
    """The stock driver's control of a process."""

    def __init__(self, driver: Driver, pid: int) -> None:
        self.driver, self.pid = driver, pid

    def get_timeslice(self, group: ChannelGroup) -> int:
        return self.driver.slices[self.pid, *group.key]

    def set_timeslice(self, group: ChannelGroup, us: int) -> None:
        if self.driver.stock_fails:
            raise ControlError("SET_TIMESLICE", self.pid, group.client, group.handle, 0x56)
        key = (self.pid, *group.key)
        self.driver.stock_calls.append((key, us))
        self.driver.owner_sets(key, us)

    def gpu_id(self, group: ChannelGroup) -> int:
        return 0x100


class Link:
    """A ModuleLink whose kernel is a Driver."""

    lease_ms = abi.DEFAULT_LEASE_MS

    def __init__(self, driver: Driver) -> None:
        self.driver, self.closed = driver, False
        self.info = ModuleInfo(driver.version, "550.163.01", driver.features, {})
        driver.links.append(self)

    def _ask(self, request: str) -> None:
        assert not self.closed
        self.driver.expire()
        if not self.driver.loaded:
            raise ModuleAbsentError("the module was unloaded")
        if self.driver.refusal and self.driver.refused in ("", request):
            raise ModuleError(request, self.driver.refusal)

    def groups(self, pid: int | None = None) -> list[ModuleGroup]:
        self._ask("list")
        return [group for group in self.driver.groups.values() if group.pid == pid and pid not in self.driver.missed]

    def _key(self, number: int) -> Key | None:
        return next((key for key, group in self.driver.groups.items() if group.number == number), None)

    def timeslice(self, number: int) -> int:
        self._ask("get")
        key = self._key(number)
        if key is None:
            raise ModuleError("get", errno.ESRCH)
        return self.driver.slices[key]

    def apply(self, actions: Iterable[Action], *, asynchronous: bool = False) -> Done:
        self._ask("control")
        results = tuple(self._do(action) for action in actions)
        error = next((result.error for result in results if result.error), 0)
        return Done(0, error, 0, results)

    def _do(self, action: Action) -> ActionResult:
        driver, key = self.driver, self._key(action.group)
        if key is None:
            return ActionResult(-errno.ESRCH, 0)
        if action.op == Op.TIMESLICE:
            original = driver.holds[key][1] if key in driver.holds else driver.slices[key]
            driver.holds[key] = (self, original, driver.now + self.lease_ms / 1000)
            driver.slices[key] = action.value
        elif action.op == Op.TIMESLICE_UNDO and key in driver.holds:
            driver.undo(key)
        return ActionResult(0, 0)

    def renew(self) -> None:
        self._ask("renew")
        for key, (link, original, _) in list(self.driver.holds.items()):
            if link is self:
                self.driver.holds[key] = (link, original, self.driver.now + self.lease_ms / 1000)

    def close(self) -> None:
        self.closed = True
        for key, (link, _, _) in list(self.driver.holds.items()):
            if link is self:
                self.driver.undo(key)
