"""What the stock driver lets one process do to another's GPU time, issued on a copied descriptor.

What each control does on an H200, and what it costs there, is in docs/driver.md. All of them end in a synchronous call
to the GPU's firmware with the GPU lock held: hundreds of µs, so never issue them for many processes in a row where it
matters.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NoReturn, Protocol

from gpsched.adaptive.driver import abi
from gpsched.adaptive.driver.calls import RmCalls
from gpsched.adaptive.driver.errors import (
    ControlAbsentError,
    ControlError,
    DescriptorGoneError,
    HandleGoneError,
    NoSubdeviceError,
    PrivilegeError,
)
from gpsched.adaptive.driver.status import (
    ABSENT,
    GONE,
    INSUFFICIENT_PERMISSIONS,
    INVALID_PARAM_STRUCT,
    NV_OK,
)
from gpsched.adaptive.driver.types import Channel, ChannelGroup
from gpsched.adaptive.errors import GpschedError, ProcessGoneError


_GONE_ERRNO = frozenset({errno.EBADF, errno.ESRCH, errno.ENODEV, errno.ENOTCONN})


class Descriptors(Protocol):
    """Where a control finds the descriptor to act on: DriverFiles, or a stand-in."""

    pid: int

    def get(self, fd: int) -> int:
        """Return our copy of the target's descriptor ``fd``."""


class StockControl:
    """The controls of one process.

    Every method raises HandleGoneError when the process or the object died, PrivilegeError without CAP_SYS_NICE where
    the driver wants it, ControlAbsentError when this driver lacks the control, ControlError for any other refusal, and
    DescriptorAccessError or DescriptorLimitError when the descriptor cannot be copied. ``last_cost_us`` is the
    duration of the last control in µs. Safe to share between threads; close ``files`` only when no control runs.
    """

    def __init__(self, files: Descriptors, calls: RmCalls | None = None) -> None:
        self.files = files
        self._calls = calls or RmCalls()
        self._disabled: dict[Channel, ChannelGroup] = {}
        self._unscheduled: set[Channel] = set()  # those of them that were only taken off the runlist
        self._schedule = abi.SCHEDULE

    @property
    def last_cost_us(self) -> float:
        """Duration of the last control in µs."""
        return self._calls.last_cost_us

    @property
    def disabled(self) -> frozenset[Channel]:
        """The channels that this object disabled, or may have disabled, and has not enabled since."""
        return frozenset(self._disabled)

    def get_timeslice(self, group: ChannelGroup) -> int:
        """Return the group's timeslice in µs: the driver's own record, not proof of what the GPU does."""
        params = abi.TimesliceParams()
        self._issue(group, group.handle, abi.GET_TIMESLICE, params)
        return int(params.timesliceUs)

    def set_timeslice(self, group: ChannelGroup, us: int) -> None:
        """Set the group's timeslice in µs, from 1. Zero is refused here: the driver takes it and it acts like 1."""
        if us < 1:
            raise ValueError(f"a timeslice of {us} µs; give at least 1")
        self._issue(group, group.handle, abi.SET_TIMESLICE, abi.TimesliceParams(us))

    def preempt(self, group: ChannelGroup, *, wait: bool = False, timeout_us: int = 0) -> None:
        """Take the group off the GPU once; it returns at its next turn.

        With ``wait`` the call returns when the GPU has switched, or fails with NV_ERR_TIMEOUT after ``timeout_us``
        (0: the driver's own limit; at most 1 s). Without it, wait by other means before preempting the group again.
        """
        if not 0 <= timeout_us <= abi.PREEMPT_MAX_TIMEOUT_US:
            raise ValueError(f"a timeout of {timeout_us} µs; give 0 to {abi.PREEMPT_MAX_TIMEOUT_US}")
        self._issue(group, group.handle, abi.PREEMPT, abi.PreemptParams(wait, timeout_us > 0, timeout_us))

    def set_interleave(self, group: ChannelGroup, level: int) -> None:
        """Set how often the group appears in the runlist: 0 low, 1 medium, 2 high. Needs CAP_SYS_NICE."""
        if level not in abi.INTERLEAVE_LEVELS:
            raise ValueError(f"interleave level {level}; give 0, 1 or 2")
        self._issue(group, group.handle, abi.SET_INTERLEAVE, abi.InterleaveParams(level))

    def get_interleave(self, group: ChannelGroup) -> int:
        """Return the group's interleave level: 0 low, 1 medium, 2 high."""
        params = abi.InterleaveParams()
        self._issue(group, group.handle, abi.GET_INTERLEAVE, params)
        return int(params.tsgInterleaveLevel)

    def restart_runlist(self, group: ChannelGroup, *, force: bool = False, wait: bool = False) -> None:
        """Expire the slice that runs now and begin the runlist anew; asked through one of the group's own channels.

        Without ``force`` the driver skips it when this group is the one that runs. Needs CAP_SYS_NICE.
        """
        gone = self._gone(group, group.handle, abi.RESTART_RUNLIST, "no channel left")
        for channel in group.channels:
            try:
                self._issue(group, channel.handle, abi.RESTART_RUNLIST, abi.RestartRunlistParams(force, not wait))
                return
            except HandleGoneError as error:
                gone = error
        raise gone

    def schedule(self, group: ChannelGroup, *, enabled: bool) -> None:
        """Schedule a group, or take it out. On the H200 the latter did nothing to a group that runs: use disable().

        The parameters grew from 2 to 3 bytes with branch 575; which one this driver takes is found by trying.
        """
        try:
            self._issue(group, group.handle, self._schedule, self._schedule.params(enabled))
        except ControlError as error:
            if error.status != INVALID_PARAM_STRUCT or self._schedule is abi.SCHEDULE_570:
                raise
            self._schedule = abi.SCHEDULE_570
            self._issue(group, group.handle, self._schedule, self._schedule.params(enabled))

    def gpu_id(self, group: ChannelGroup) -> int:
        """Return the RM's id of the group's GPU, the same in every process. Raises NoSubdeviceError."""
        params = abi.GpuIdParams()
        self._issue(group, _subdevice(group), abi.GPU_GET_ID, params)
        return int(params.gpuId)

    def disable(self, groups: ChannelGroup | Iterable[ChannelGroup], *, scheduling_only: bool = False) -> None:
        """Stop all channels of the groups until enable(); their state stays intact.

        With ``scheduling_only`` what runs now is not preempted: it runs on, and once switched out it stays out.
        A channel that is off is not put off in the other way, after which it would never work again (docs/driver.md).
        Raises NoSubdeviceError before anything is changed when a group's GPU is not known.
        """
        todo = [self._without(group, off_otherwise=not scheduling_only) for group in _as_list(groups)]
        for group in todo:
            _subdevice(group)
        for batch in (batch for group in todo for batch in _batches(group)):
            # Known as disabled before the call: a call that fails half-way may have disabled some.
            self._disabled.update(dict.fromkeys(batch.channels, batch))
            self._unscheduled.update(batch.channels if scheduling_only else ())
            self._switch(batch, disable=True, scheduling_only=scheduling_only)

    def enable(self, groups: ChannelGroup | Iterable[ChannelGroup]) -> None:
        """Let all channels of the groups run again. Enabling what is enabled changes nothing.

        All groups are tried, whatever fails; the first error is raised at the end. Channels that died are forgotten.
        """
        first: Exception | None = None
        for batch in (batch for group in _as_list(groups) for batch in _batches(group)):
            try:
                self._switch(batch, disable=False, scheduling_only=False)
            except HandleGoneError as error:
                first = first or error
                self._forget(batch.channels)
            except (GpschedError, OSError) as error:
                first = first or error
            else:
                self._forget(batch.channels)
        if first is not None:
            raise first

    def enable_all(self) -> None:
        """Enable everything in ``disabled``, also channels whose group the caller has forgotten. Raises as enable()."""
        batches: dict[ChannelGroup, list[Channel]] = {}
        for channel, batch in self._disabled.items():
            batches.setdefault(batch, []).append(channel)
        self.enable([replace(batch, channels=tuple(channels)) for batch, channels in batches.items()])

    def _switch(self, batch: ChannelGroup, *, disable: bool, scheduling_only: bool) -> None:
        params = abi.DisableChannelsParams(disable, len(batch.channels), scheduling_only)
        for index, channel in enumerate(batch.channels):
            params.hClientList[index], params.hChannelList[index] = channel.client, channel.handle
        try:
            self._issue(batch, _subdevice(batch), abi.DISABLE_CHANNELS, params)
        except HandleGoneError:
            if len(batch.channels) == 1:
                self._forget(batch.channels)
                raise
            self._switch_each(batch, disable=disable, scheduling_only=scheduling_only)

    def _switch_each(self, batch: ChannelGroup, *, disable: bool, scheduling_only: bool) -> None:
        """One dead channel fails its whole batch: treat the others one by one, and fail only when none is left."""
        dead: HandleGoneError | None = None
        alive = 0
        for channel in batch.channels:
            try:
                self._switch(replace(batch, channels=(channel,)), disable=disable, scheduling_only=scheduling_only)
                alive += 1
            except HandleGoneError as error:
                dead = error
        if dead is not None and not alive:
            raise dead

    def _without(self, group: ChannelGroup, *, off_otherwise: bool) -> ChannelGroup:
        """The group without channels that are off already, in the other way than that is now asked for."""
        off = self._unscheduled if off_otherwise else self._disabled.keys() - self._unscheduled
        return replace(group, channels=tuple(each for each in group.channels if each not in off))

    def _forget(self, channels: Iterable[Channel]) -> None:
        for channel in channels:
            self._disabled.pop(channel, None)
            self._unscheduled.discard(channel)

    def _issue(self, group: ChannelGroup, object_: int, control: abi.Control, params: abi.Params) -> None:
        try:
            fd = self.files.get(group.fd)
            status = self._calls.control(fd, group.client, object_, control, params)
        except (ProcessGoneError, DescriptorGoneError) as error:
            raise self._gone(
                group, object_, control, "ESRCH" if isinstance(error, ProcessGoneError) else "EBADF"
            ) from error
        except OSError as error:
            self._refuse_errno(group, object_, control, error)
        if status != NV_OK:
            self._refuse(group, object_, control, status)

    def _gone(self, group: ChannelGroup, object_: int, control: abi.Control, reason: str) -> HandleGoneError:
        return HandleGoneError(control.name, self.files.pid, group.client, object_, None, reason)

    def _refuse_errno(self, group: ChannelGroup, object_: int, control: abi.Control, error: OSError) -> NoReturn:
        name = errno.errorcode.get(error.errno or 0, os.strerror(error.errno or 0))
        if error.errno in _GONE_ERRNO:
            raise self._gone(group, object_, control, name) from error
        raise ControlError(control.name, self.files.pid, group.client, object_, None, name) from error

    def _refuse(self, group: ChannelGroup, object_: int, control: abi.Control, status: int) -> NoReturn:
        kind: type[ControlError] = ControlError
        if status in GONE:
            kind = HandleGoneError
        elif status == INSUFFICIENT_PERMISSIONS:
            kind = PrivilegeError
        elif status in ABSENT:
            kind = ControlAbsentError
        raise kind(control.name, self.files.pid, group.client, object_, status)


def _subdevice(group: ChannelGroup) -> int:
    if group.subdevice is None:
        raise NoSubdeviceError(group.client, group.handle)
    return group.subdevice


def _as_list(groups: ChannelGroup | Iterable[ChannelGroup]) -> list[ChannelGroup]:
    return [groups] if isinstance(groups, ChannelGroup) else list(groups)


def _batches(group: ChannelGroup) -> Iterator[ChannelGroup]:
    """Split a group's channels into as many groups as one control can carry."""
    for start in range(0, len(group.channels), abi.DISABLE_MAX_CHANNELS):
        yield replace(group, channels=group.channels[start : start + abi.DISABLE_MAX_CHANNELS])
