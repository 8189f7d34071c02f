"""StockControl: what it sends, what it makes of the answers, and that nothing stays disabled unknown to it."""

import errno
from dataclasses import replace

import pytest
from fake_rm import FakeFiles, FakeRm, Obj
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.driver import (
    Channel,
    ControlAbsentError,
    ControlError,
    HandleGoneError,
    NoSubdeviceError,
    PrivilegeError,
    StockControl,
    scan_process,
)
from gpsched.adaptive.driver.calls import RmCalls
from gpsched.adaptive.driver.errors import DescriptorGoneError, DescriptorLimitError
from gpsched.adaptive.driver.status import NAMES, TIMEOUT, code, status_name
from gpsched.adaptive.errors import ProcessGoneError


CLIENT = 0xC1D00003
SET, GET, PREEMPT, DISABLE, RESTART, INTERLEAVE, SCHEDULE = (
    0xA06C0103, 0xA06C0104, 0xA06C0105, 0x2080110B, 0xA06F0111, 0xA06C0107, 0xA06C0101,
)  # fmt: skip


@pytest.fixture
def rm():
    fake = FakeRm()
    fake.context()
    return fake


@pytest.fixture
def group(rm):
    return next(each for each in scan_process(FakeFiles(), RmCalls(rm)) if each.engine == "compute")


@pytest.fixture
def control(rm):
    return StockControl(FakeFiles(), RmCalls(rm))


def many_channels(rm, group, count):
    for index in range(count - len(group.channels)):
        rm.clients[CLIENT].objects[0x5C001000 + index] = Obj(0xC86F, group.handle)
    return replace(
        group, channels=tuple(Channel(CLIENT, handle) for handle in rm.members(rm.clients[CLIENT], group.handle))
    )


@given(us=st.integers(1, 2**64 - 1))
def test_a_timeslice_reads_back_as_set(us):
    fake = FakeRm()
    fake.context()
    one = scan_process(FakeFiles(), RmCalls(fake))[0]
    control = StockControl(FakeFiles(), RmCalls(fake))
    control.set_timeslice(one, us)
    assert control.get_timeslice(one) == us
    assert control.last_cost_us > 0


@pytest.mark.parametrize("us", [0, -1])
def test_a_timeslice_under_one_is_refused(control, group, us):
    with pytest.raises(ValueError, match="at least 1"):
        control.set_timeslice(group, us)


def test_interleave_restart_preempt_and_gpu_id(control, group, rm):
    control.set_interleave(group, 2)
    assert control.get_interleave(group) == 2
    control.restart_runlist(group)
    assert rm.calls[-1] == (CLIENT, group.channels[0].handle, RESTART)
    control.preempt(group, wait=True, timeout_us=500)
    assert rm.calls[-1] == (CLIENT, group.handle, PREEMPT)
    assert control.gpu_id(group) == 0x4100
    with pytest.raises(ValueError, match="interleave level 3"):
        control.set_interleave(group, 3)
    with pytest.raises(ValueError, match="1000000"):
        control.preempt(group, timeout_us=2_000_000)


@pytest.mark.parametrize("size", [2, 3])
def test_schedule_finds_the_size_its_driver_takes_once(group, size):
    rm = FakeRm(schedule_size=size)
    rm.context()
    control = StockControl(FakeFiles(), RmCalls(rm))
    control.schedule(group, enabled=True)
    control.schedule(group, enabled=False)
    assert len(rm.calls) == (3 if size == 2 else 2)


@pytest.mark.parametrize(("scheduling_only", "mark"), [(False, "full"), (True, "scheduling")])
def test_disable_and_enable(control, group, rm, scheduling_only, mark):
    control.disable([group], scheduling_only=scheduling_only)
    assert {rm.object(CLIENT, each.handle).disabled for each in group.channels} == {mark}
    assert control.disabled == frozenset(group.channels)
    control.enable(group)
    assert rm.disabled() == set()
    assert control.disabled == frozenset()


@pytest.mark.parametrize(("first", "mark"), [(False, "full"), (True, "scheduling")])
def test_what_is_off_is_not_put_off_in_another_way(control, group, rm, first, mark):
    """On an H200 such a channel never works again, whatever is asked then."""
    part = replace(group, channels=group.channels[:2])
    control.disable(part, scheduling_only=first)
    control.disable(group, scheduling_only=not first)
    assert {rm.object(CLIENT, each.handle).disabled for each in part.channels} == {mark}
    assert control.disabled == frozenset(group.channels)
    control.enable(group)
    assert rm.disabled() == set()
    control.disable(group, scheduling_only=not first)
    assert {rm.object(CLIENT, each.handle).disabled for each in part.channels} != {mark}
    control.enable(group)


@pytest.mark.parametrize("count", [8, 64, 65, 200])
def test_channels_go_in_batches_of_64(control, group, rm, count):
    large = many_channels(rm, group, count)
    control.disable(large)
    assert len(rm.disabled()) == count
    assert [len(channels) for _, _, channels in rm.switches] == [64] * (count // 64) + (
        [count % 64] if count % 64 else []
    )
    control.enable_all()
    assert rm.disabled() == set()


def test_part_of_a_group(control, group, rm):
    part = replace(group, channels=group.channels[:2])
    control.disable(part)
    assert rm.disabled() == {(each.client, each.handle) for each in part.channels}
    control.enable(group)
    assert control.disabled == frozenset()


def test_one_dead_channel_does_not_save_the_others(control, group, rm):
    del rm.clients[CLIENT].objects[group.channels[3].handle]
    control.disable(group)
    alive = {(each.client, each.handle) for each in group.channels} - {(CLIENT, group.channels[3].handle)}
    assert rm.disabled() == alive
    assert control.disabled == {Channel(*each) for each in alive}
    del rm.clients[CLIENT].objects[group.channels[0].handle]
    control.enable_all()
    assert rm.disabled() == set()
    assert control.disabled == frozenset()


def test_a_dead_process_is_forgotten(control, group, rm):
    control.disable(group)
    rm.clients.clear()
    with pytest.raises(HandleGoneError):
        control.enable(group)
    assert control.disabled == frozenset()


def test_a_refused_disable_counts_as_disabled_until_enabled(control, group, rm):
    rm.answers[DISABLE] = [code("INVALID_STATE")]
    with pytest.raises(ControlError):
        control.disable(group)
    assert control.disabled == frozenset(group.channels)
    control.enable_all()
    assert control.disabled == frozenset()


def test_a_refused_enable_leaves_it_known_and_tries_the_rest(control, group, rm):
    other = next(each for each in scan_process(FakeFiles(), RmCalls(rm)) if each.engine == "copy")
    control.disable([group, other])
    rm.answers[DISABLE] = [code("INVALID_STATE")]
    with pytest.raises(ControlError):
        control.enable([group, other])
    assert control.disabled == frozenset(group.channels)
    assert rm.disabled() == {(each.client, each.handle) for each in group.channels}


def test_without_a_subdevice_nothing_is_changed(control, group, rm):
    with pytest.raises(NoSubdeviceError, match="scan its process again"):
        control.disable([group, replace(group, subdevice=None)])
    assert rm.switches == []
    assert control.disabled == frozenset()


@pytest.mark.parametrize("name", ["INVALID_OBJECT_HANDLE", "INVALID_CLIENT", "OBJECT_NOT_FOUND", "INVALID_CHANNEL"])
def test_dead_handles(control, group, rm, name):
    rm.answers[SET] = [code(name)]
    with pytest.raises(HandleGoneError) as caught:
        control.set_timeslice(group, 5)
    assert caught.value.status_name == f"NV_ERR_{name}"


def test_an_error_names_control_process_handles_and_status(control, group, rm):
    rm.answers[SET] = [code("INVALID_STATE")]
    with pytest.raises(ControlError) as caught:
        control.set_timeslice(group, 5)
    error = caught.value
    assert type(error) is ControlError
    assert (error.control, error.pid, error.client, error.object) == ("SET_TIMESLICE", 4321, CLIENT, group.handle)
    for part in ("SET_TIMESLICE", "4321", hex(CLIENT), hex(group.handle), "NV_ERR_INVALID_STATE"):
        assert part in str(error)
    assert "\n" not in str(error)


def test_missing_privilege_and_missing_control(control, group, rm):
    rm.nice = False
    with pytest.raises(PrivilegeError, match="CAP_SYS_NICE"):
        control.restart_runlist(group)
    rm.absent = {INTERLEAVE}
    with pytest.raises(ControlAbsentError):
        control.set_interleave(group, 0)


@pytest.mark.parametrize("number", [errno.EBADF, errno.ESRCH, errno.ENODEV])
def test_errnos_of_a_dead_target(control, group, rm, number):
    rm.answers[GET] = [OSError(number, "")]
    with pytest.raises(HandleGoneError) as caught:
        control.get_timeslice(group)
    assert caught.value.status is None
    assert caught.value.status_name == errno.errorcode[number]


def test_other_errnos_are_named(control, group, rm):
    rm.answers[GET] = [OSError(errno.ENOTTY, "")]
    with pytest.raises(ControlError, match="ENOTTY") as caught:
        control.get_timeslice(group)
    assert not isinstance(caught.value, HandleGoneError)


@pytest.mark.parametrize("error", [ProcessGoneError(4321), DescriptorGoneError(4321, 10)])
def test_a_gone_process_or_descriptor(group, rm, error):
    with pytest.raises(HandleGoneError):
        StockControl(FakeFiles(error=error), RmCalls(rm)).get_timeslice(group)


@pytest.mark.parametrize(
    "busy", [code("BUSY_RETRY"), code("TIMEOUT_RETRY"), OSError(errno.EINTR, ""), OSError(errno.EBUSY, "")]
)
@pytest.mark.parametrize("times", [1, 4])
def test_a_busy_driver_is_asked_again(control, group, rm, busy, times):
    rm.answers[GET] = [busy] * times
    assert control.get_timeslice(group) == 2048


def test_a_driver_that_stays_busy_is_an_error_after_five_calls(control, group, rm):
    rm.answers[GET] = [code("BUSY_RETRY")] * 50
    with pytest.raises(ControlError, match="BUSY_RETRY"):
        control.get_timeslice(group)
    assert len(rm.answers[GET]) == 45


def test_a_timeout_is_retried_for_disable_but_not_for_preempt(control, group, rm):
    rm.answers = {DISABLE: [TIMEOUT], PREEMPT: [TIMEOUT]}
    control.disable(group)
    with pytest.raises(ControlError, match="NV_ERR_TIMEOUT"):
        control.preempt(group, wait=True)


def test_an_ioctl_that_writes_nothing_is_not_success(group):
    control = StockControl(FakeFiles(), RmCalls(lambda *_: 0))
    with pytest.raises(ControlError, match="NV_ERR_GENERIC"):
        control.set_timeslice(group, 5)


def test_restart_asks_through_a_channel_that_lives(control, group, rm):
    for channel in group.channels[:2]:
        del rm.clients[CLIENT].objects[channel.handle]
    control.restart_runlist(group)
    assert rm.calls[-1] == (CLIENT, group.channels[2].handle, RESTART)


def test_enable_goes_on_where_a_descriptor_cannot_be_copied(group, rm):
    files = FakeFiles()
    control = StockControl(files, RmCalls(rm))
    control.disable(group)
    files.error = DescriptorLimitError(4321)
    with pytest.raises(DescriptorLimitError):
        control.enable_all()
    assert control.disabled == frozenset(group.channels)
    files.error = None
    control.enable_all()
    assert rm.disabled() == set()


def test_a_group_without_channels_cannot_restart(control, group):
    with pytest.raises(HandleGoneError, match="no channel"):
        control.restart_runlist(replace(group, channels=()))


@given(number=st.integers(0, 2**32 - 1))
def test_every_status_has_a_name(number):
    name = status_name(number)
    assert name == NAMES.get(number, f"NV_STATUS {number:#x}")
    assert name
