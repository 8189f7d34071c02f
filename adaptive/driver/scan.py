"""Finds the channel groups of a process that was already running when the daemon came.

The RM offers no list of a client's objects, but handles are dense, and CLIENT_GET_HANDLE_INFO tells the class and the
parent of each: a lookup in the driver's own tables, without the GPU's lock and without a side effect. So a scan builds
the same tree that the watcher builds from events. A driver that refuses that control is asked another way (probing.py).
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Protocol

from gpsched.adaptive.driver import abi, classes
from gpsched.adaptive.driver.calls import RmCalls
from gpsched.adaptive.driver.errors import DescriptorGoneError
from gpsched.adaptive.driver.probing import probe_groups
from gpsched.adaptive.driver.query import Bounds, Query
from gpsched.adaptive.driver.status import NV_OK
from gpsched.adaptive.driver.tree import ObjectTree, RmObject
from gpsched.adaptive.driver.types import ChannelGroup


log = logging.getLogger(__name__)


class Files(Protocol):
    """The descriptor copies of one process: DriverFiles, or a stand-in."""

    pid: int

    def find(self) -> tuple[int, ...]:
        """Return the numbers of the process's driver descriptors."""

    def get(self, fd: int) -> int:
        """Return our copy of one of them."""


def scan_process(files: Files, calls: RmCalls | None = None, bounds: Bounds | None = None) -> list[ChannelGroup]:
    """Return the channel groups of a running process, with their channels, engines and GPUs.

    A process without a GPU context has none. Ends when ``bounds`` are reached, with what was found until then.
    Raises as ``files`` does, and OSError when an ioctl fails.
    """
    calls = calls or RmCalls()
    query = Query(calls, bounds or Bounds())
    groups: dict[tuple[int, int], ChannelGroup] = {}
    for number in files.find():
        try:
            copy = files.get(number)
        except DescriptorGoneError:
            continue  # closed since it was listed
        newest = cache(partial(calls.newest_client, f"/proc/{files.pid}/fd/{number}"))
        for group in _listed_groups(query, copy, number, newest) or probe_groups(query, copy, number, newest):
            # After dup() two numbers stand for one open file: the first is kept.
            groups.setdefault(group.key, group)
    if not query.complete:
        log.warning("the scan of process %d was cut short: it may have more channel groups", files.pid)
    return list(groups.values())


def _info(query: Query, fd: int, client: int, handle: int, index: int) -> int | None:
    params = abi.HandleInfoParams(handle, index)
    if query.ask(fd, client, client, abi.GET_HANDLE_INFO, params) != NV_OK:
        return None
    return int(params.result)


def _listed_groups(query: Query, fd: int, number: int, newest: Callable[[], int | None]) -> list[ChannelGroup]:
    def exists(client: int) -> bool:
        return _info(query, fd, client, client, abi.HANDLE_INFO_CLASS) is not None

    groups: list[ChannelGroup] = []
    for client in query.clients(exists, newest):
        tree = _tree_of(query, fd, client, number)
        found = [key for key, made in tree.objects.items() if made.is_group]
        groups += [_with_gpu(query, fd, tree.describe(key)) for key in sorted(found)]
    return groups


def _tree_of(query: Query, fd: int, client: int, number: int) -> ObjectTree:
    tree = ObjectTree()
    tree.add((client, client), RmObject(classes.ROOT_CLIENT, (client, client), number))
    # A parent may have the higher handle, so that parents are added first.
    for handle, made in sorted(_objects(query, fd, client, number), key=lambda entry: classes.depth(entry[1].class_)):
        if tree.matters(made):
            tree.add((client, handle), made)
    return tree


def _objects(query: Query, fd: int, client: int, number: int) -> Iterator[tuple[int, RmObject]]:
    classes_seen: dict[int, int] = {}

    def exists(handle: int) -> bool:
        class_ = _info(query, fd, client, handle, abi.HANDLE_INFO_CLASS)
        if class_ is not None:
            classes_seen[handle] = class_
        return class_ is not None

    for handle in query.objects(exists):
        parent = _info(query, fd, client, handle, abi.HANDLE_INFO_PARENT)
        if parent is not None:
            yield handle, RmObject(classes_seen[handle], (client, parent), number)


def _with_gpu(query: Query, fd: int, group: ChannelGroup) -> ChannelGroup:
    params = abi.GpuIdParams()
    if group.subdevice is None or query.ask(fd, group.client, group.subdevice, abi.GPU_GET_ID, params) != NV_OK:
        return group
    return replace(group, gpu_id=int(params.gpuId))
