"""Finds channel groups by what objects answer to, on a driver that does not tell their classes.

GET_TIMESLICE succeeds only on a group, GET_WORK_SUBMIT_TOKEN only on a channel (it also stores the same token in the
channel's notifier again), GPU_GET_ID only on a subdevice. This way found all groups and channels of a process on the
H200.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gpsched.adaptive.driver import abi, classes
from gpsched.adaptive.driver.query import Query
from gpsched.adaptive.driver.status import GONE, INSUFFICIENT_PERMISSIONS, NV_OK, OBJECT_NOT_FOUND
from gpsched.adaptive.driver.types import Channel, ChannelGroup, Subdevice


# The driver logs a line for each handle that is not on the channel it is asked about: ask about the next few only.
_ENGINE_CANDIDATES = 4

_Identity = tuple[Subdevice | None, frozenset[int]]  # where a group is, and its channels' unique ids


@dataclass(slots=True)
class _Client:
    """What one client holds, in the order of handles, and so of allocation."""

    query: Query
    fd: int
    handle: int
    groups: list[int] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    subdevices: list[Subdevice] = field(default_factory=list)
    others: list[int] = field(default_factory=list)

    def ask(self, object_: int, control: abi.Control, params: abi.Params) -> int:
        return self.query.ask(self.fd, self.handle, object_, control, params)

    def sort(self) -> None:
        for handle in self.query.objects(self._exists):
            if self.groups[-1:] == [handle]:
                continue
            gpu = abi.GpuIdParams()
            if self.ask(handle, abi.GET_WORK_SUBMIT_TOKEN, abi.WorkSubmitTokenParams()) == NV_OK:
                self.channels.append(handle)
            elif self.ask(handle, abi.GPU_GET_ID, gpu) == NV_OK:
                self.subdevices.append(Subdevice(self.handle, handle, int(gpu.gpuId)))
            else:
                self.others.append(handle)

    def _exists(self, handle: int) -> bool:
        status = self.ask(handle, abi.GET_TIMESLICE, abi.TimesliceParams())
        if status == NV_OK:
            self.groups.append(handle)
        return _is_there(status)

    def unique_ids(self, subdevice: Subdevice, handle: int) -> frozenset[int] | None:
        """Return the ids of a channel, or of all channels of a group; None when the driver does not say (before
        570)."""
        params = abi.UniqueIdParams(self.handle, handle)
        if self.ask(subdevice.handle, abi.GET_UNIQUE_ID_INFO, params) != NV_OK:
            return None
        return frozenset(params.channelUniqueID[: min(params.numChannels, abi.MAX_CHANNELS_PER_GROUP)])

    def identify(self, group: int) -> _Identity:
        """Return where a group is: on the only GPU that knows it, else on the one opened last before the group."""
        known = {subdevice: ids for subdevice in self.subdevices if (ids := self.unique_ids(subdevice, group))}
        before = [subdevice for subdevice in self.subdevices if subdevice.handle < group] or self.subdevices
        where = next(iter(known)) if len(known) == 1 else next(iter(before[-1:]), None)
        return where, known.get(where, frozenset()) if where else frozenset()

    def owner(self, channel: int, identities: dict[int, _Identity]) -> int | None:
        """Return the channel's group: by the driver's ids, else the last group made before it."""
        for subdevice in dict.fromkeys(where for where, ids in identities.values() if where is not None and ids):
            own = self.unique_ids(subdevice, channel)
            for group, (where, ids) in identities.items():
                if own and where == subdevice and own <= ids:
                    return group
        return max((group for group in self.groups if group < channel), default=None)

    def engine(self, channels: list[int]) -> str:
        """Return the engine of the first object found on the group's first channel."""
        for handle in [other for other in self.others if channels and other > channels[0]][:_ENGINE_CANDIDATES]:
            params = abi.ClassEngineIdParams(handle)
            if self.ask(channels[0], abi.GET_CLASS_ENGINEID, params) == NV_OK:
                return classes.engine_of(int(params.classID))
        return "unknown"


def probe_groups(query: Query, fd: int, number: int, newest: Callable[[], int | None]) -> list[ChannelGroup]:
    """Return the groups of all clients that our descriptor ``fd``, the target's ``number``, owns.

    ``newest`` is as for Query.clients(). Raises OSError when an ioctl fails.
    """

    def exists(client: int) -> bool:
        # Whatever is said of its object, a client that is there is not called invalid.
        status = query.ask(fd, client, client, abi.GET_TIMESLICE, abi.TimesliceParams())
        return status == OBJECT_NOT_FOUND or _is_there(status)

    groups: list[ChannelGroup] = []
    for handle in query.clients(exists, newest):
        client = _Client(query, fd, handle)
        client.sort()
        groups += _guess_engine([replace(group, fd=number) for group in _groups_of(client)])
    return groups


def _is_there(status: int) -> bool:
    return status not in GONE and status != INSUFFICIENT_PERMISSIONS


def _groups_of(client: _Client) -> list[ChannelGroup]:
    identities = {group: client.identify(group) for group in client.groups}
    members: dict[int | None, list[int]] = {}
    for channel in client.channels:
        members.setdefault(client.owner(channel, identities), []).append(channel)
    groups = []
    for handle, (subdevice, _) in identities.items():
        own = members.get(handle, [])
        channels = tuple(Channel(client.handle, channel) for channel in own)
        where = (subdevice.handle, subdevice.gpu_id) if subdevice else (None, None)
        groups.append(ChannelGroup(client.handle, handle, client.engine(own), channels, *where))
    return groups


def _guess_engine(groups: list[ChannelGroup]) -> list[ChannelGroup]:
    """Where the driver named none: CUDA gives its compute group the most channels (8 against 4 on the H200)."""
    unknown = [group for group in groups if group.engine == "unknown"]
    most = max((len(group.channels) for group in unknown), default=0)
    largest = [group for group in unknown if len(group.channels) == most]
    if len(largest) != 1 or any(group.engine == "compute" for group in groups):
        return groups
    return [replace(group, engine="compute") if group is largest[0] else group for group in groups]
