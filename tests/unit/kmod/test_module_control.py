"""ModuleControl beside StockControl, and the link's own checks; the kernel's side is played by a list of answers."""

import errno
import inspect
from collections.abc import Iterable

import pytest

from gpsched.adaptive.driver import HandleGoneError, PrivilegeError, StockControl
from gpsched.adaptive.driver import module_abi as abi
from gpsched.adaptive.driver.errors import (
    ControlAbsentError,
    ControlError,
    ModuleAbsentError,
    ModuleError,
)
from gpsched.adaptive.driver.module_abi import Action, ActionResult, Op
from gpsched.adaptive.driver.module_control import ModuleControl
from gpsched.adaptive.driver.module_link import ModuleLink
from gpsched.adaptive.driver.types import Channel, ChannelGroup


def group(index: int) -> ChannelGroup:
    return ChannelGroup(0xC1D00001, 0x5C000000 + index, "compute", (Channel(0xC1D00001, 0x5C000100 + index),), 2)


class FakeLink:
    """Knows the first 100 groups under the numbers 1000 and up; every action succeeds unless told."""

    def __init__(self) -> None:
        self.asked: list[list[Action]] = []
        self.answer = ActionResult(0, 0)
        self.listed = 0
        self.known = 100

    def groups(self, pid: int) -> list[abi.ModuleGroup]:
        assert pid == 42
        self.listed += 1
        return [abi.ModuleGroup(1000 + index, pid, 0, 0, 0, 0, group(index)) for index in range(self.known)]

    def apply(self, actions: Iterable[Action]) -> abi.Done:
        self.asked.append(list(actions))
        return abi.Done(1, self.answer.error, self.answer.status, (self.answer,) * len(self.asked[-1]))

    def timeslice(self, number: int) -> int:
        if self.answer.error:
            raise ModuleError("get", -self.answer.error)
        return number


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
def control(link: FakeLink) -> ModuleControl:
    return ModuleControl(link, 42)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    ["get_timeslice", "set_timeslice", "preempt", "disable", "enable", "restart_runlist", "set_interleave", "gpu_id"],
)
def test_same_interface_as_the_stock_control(name: str) -> None:
    stock = inspect.signature(getattr(StockControl, name))
    assert inspect.signature(getattr(ModuleControl, name)) == stock


def test_each_control_is_one_action(control: ModuleControl, link: FakeLink) -> None:
    control.set_timeslice(group(3), 1)
    control.set_interleave(group(3), 2)
    control.preempt(group(3))
    control.preempt(group(3), wait=True)
    control.preempt(group(3), wait=True, timeout_us=500)
    control.restart_runlist(group(3), force=True, wait=True)
    control.restore_timeslice(group(3))
    control.disable(group(3))
    assert [ask[0] for ask in link.asked] == [
        Action(1003, Op.TIMESLICE, 1),
        Action(1003, Op.INTERLEAVE, 2),
        Action(1003, Op.PREEMPT, 0),
        Action(1003, Op.PREEMPT, abi.MAX_PREEMPT_US),
        Action(1003, Op.PREEMPT, 500),
        Action(1003, Op.RESTART, 3),
        Action(1003, Op.TIMESLICE_UNDO, 0),
        Action(1003, Op.DISABLE, abi.DISABLED),
    ]
    assert link.listed == 1, "numbers are remembered"
    assert control.last_cost_us > 0


def test_many_groups_go_in_few_requests(control: ModuleControl, link: FakeLink) -> None:
    control.disable([group(index) for index in range(100)], scheduling_only=True)
    assert [len(ask) for ask in link.asked] == [64, 36]
    assert {ask.value for part in link.asked for ask in part} == {abi.DISABLED_SCHEDULING}


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (errno.ESRCH, 0x57, HandleGoneError),
        (errno.EACCES, 0x1B, PrivilegeError),
        (errno.EOPNOTSUPP, 0x56, ControlAbsentError),
        (errno.EIO, 0x1F, ControlError),
        (errno.EAGAIN, abi.SUSPENDED, ControlError),
    ],
)
def test_refusals(control: ModuleControl, link: FakeLink, code: int, status: int, kind: type[ControlError]) -> None:
    link.answer = ActionResult(-code, status)
    with pytest.raises(kind) as caught:
        control.set_timeslice(group(1), 5)
    assert type(caught.value) is kind
    assert (caught.value.pid, caught.value.client, caught.value.object) == (42, 0xC1D00001, 0x5C000001)
    if status == abi.SUSPENDED:
        assert caught.value.status_name == "EAGAIN"


def test_unknown_group_is_gone_and_looked_for_again(control: ModuleControl, link: FakeLink) -> None:
    with pytest.raises(HandleGoneError):
        control.enable([group(100)])
    link.known = 101
    control.enable([group(100)])
    assert link.listed == 2


def test_number_is_forgotten_when_the_group_dies(control: ModuleControl, link: FakeLink) -> None:
    assert control.get_timeslice(group(7)) == 1007
    link.answer = ActionResult(-errno.ESRCH, 0x57)
    with pytest.raises(HandleGoneError):
        control.get_timeslice(group(7))
    link.answer = ActionResult(0, 0)
    control.get_timeslice(group(7))
    assert link.listed == 2


@pytest.mark.parametrize("us", [0, -1, abi.MAX_TIMESLICE_US + 1])
def test_timeslice_out_of_range(control: ModuleControl, link: FakeLink, us: int) -> None:
    with pytest.raises(ValueError, match="timeslice"):
        control.set_timeslice(group(1), us)
    assert link.asked == []


def test_no_module_here() -> None:
    """This machine has no NVIDIA driver: both ways to ask say so, the second with what to do."""
    assert not abi.available()
    with pytest.raises(ModuleAbsentError) as caught:
        ModuleLink()
    assert caught.value.exit_code == 77
    assert "docs/kmod.md" in str(caught.value)


@pytest.mark.parametrize("lease_ms", [0, 9, abi.MAX_LEASE_MS + 1])
def test_lease_out_of_range(lease_ms: int) -> None:
    with pytest.raises(ValueError, match="lease"):
        ModuleLink(lease_ms)
