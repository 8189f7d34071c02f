"""The watcher against a naive model: after any sequence of events both know the same groups."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gpsched.adaptive.driver import (
    AllocationWatcher,
    Channel,
    ChannelGroup,
    GroupAdded,
    GroupChanged,
    GroupRemoved,
    SliceSetByOwner,
    watcher,
)


CLIENT, DEVICE, SUBDEVICE, GROUP, CHANNEL, COMPUTE, COPY, OTHER, MEMORY = (
    0x41, 0x80, 0x2080, 0xA06C, 0xC86F, 0xCBC0, 0xC8B5, 0x902D, 0x40,
)  # fmt: skip
SET_TIMESLICE = 0xA06C0103


@dataclass
class _Event:
    pid: int
    client: int = 0
    parent: int = 0
    object: int = 0
    code: int = 0
    value: int = 0
    fd: int = 10
    result: int = 0


class RmAlloc(_Event): ...


class RmFree(_Event): ...


class RmControl(_Event): ...


class RmDup(_Event): ...


class ProcExit(_Event): ...


class ProcExec(_Event): ...


class CudaEvent(_Event): ...


def context(feed, pid=1, client=0xC1D00001, base=0x5C000000, channels=8):
    feed(RmAlloc(pid, 0, 0, client, CLIENT))
    feed(RmAlloc(pid, client, client, base + 1, DEVICE))
    feed(RmAlloc(pid, client, base + 1, base + 2, SUBDEVICE))
    feed(RmAlloc(pid, client, base + 1, base + 3, GROUP, fd=12))
    for index in range(channels):
        feed(RmAlloc(pid, client, base + 3, base + 10 + 2 * index, CHANNEL))
        feed(RmAlloc(pid, client, base + 10 + 2 * index, base + 11 + 2 * index, COMPUTE))
    return base + 3


def test_a_context_is_followed_from_birth_to_death():
    seen, sut = [], AllocationWatcher()
    handle = context(lambda event: seen.extend(sut.feed(event)))
    assert [type(change) for change in seen[:3]] == [GroupAdded, GroupChanged, GroupChanged]
    (group,) = sut.groups(1)
    assert group == ChannelGroup(
        0xC1D00001,
        handle,
        "compute",
        tuple(Channel(0xC1D00001, 0x5C00000A + 2 * i) for i in range(8)),
        0x5C000002,
        None,
        12,
    )
    assert sut.feed(RmControl(1, 0xC1D00001, 0, handle, SET_TIMESLICE, 2048)) == [SliceSetByOwner(1, group, 2048)]
    assert sut.feed(RmControl(1, 0xC1D00001, 0, handle, SET_TIMESLICE, 2048, result=0x40)) == []
    assert sut.feed(RmFree(1, 0xC1D00001, 0xC1D00001, 0x5C000001)) == [GroupRemoved(1, group)]
    assert sut.groups(1) == []


def test_memory_objects_are_not_kept_and_leaves_nothing_behind():
    sut = AllocationWatcher()
    context(sut.feed)
    kept = len(sut._trees[1].objects)
    for index in range(10_000):
        sut.feed(RmAlloc(1, 0xC1D00001, 0x5C000001, 0x5C010000 + index, MEMORY))
    assert len(sut._trees[1].objects) == kept
    sut.feed(RmFree(1, 0xC1D00001, 0, 0xC1D00001))
    assert sut._trees == {}


def test_a_process_with_too_many_objects_is_bounded_and_counted(monkeypatch):
    monkeypatch.setattr(watcher, "MAX_OBJECTS", 8)
    sut = AllocationWatcher()
    context(sut.feed)
    assert len(sut._trees[1].objects) == 8
    assert sut.dropped > 0


def test_compute_beats_the_copy_object_beside_it():
    sut = AllocationWatcher()
    context(sut.feed, channels=1)
    for handle, class_ in ((0x5C000100, COPY), (0x5C000101, OTHER)):
        assert sut.feed(RmAlloc(1, 0xC1D00001, 0x5C00000A, handle, class_)) == []
    assert sut.groups(1)[0].engine == "compute"


def test_a_duplicated_group_is_one_group():
    sut = AllocationWatcher()
    handle = context(sut.feed)
    assert sut.feed(RmDup(1, 0xC1D00001, 0xC1D00001, 0x5C000200, handle)) == []
    assert sut.feed(RmFree(1, 0xC1D00001, 0, 0x5C000200)) == []
    assert len(sut.groups(1)) == 1
    sut.feed(RmDup(1, 0xC1D00001, 0xC1D00001, 0x5C000200, handle, value=0x5C000001))
    sut.feed(RmFree(1, 0xC1D00001, 0, 0x5C000001))
    assert set(sut._trees[1].objects) == {(0xC1D00001, 0xC1D00001)}


def test_a_duplicate_below_a_group_or_device_counts_for_nothing():
    sut = AllocationWatcher()
    handle = context(sut.feed, channels=1)
    before = sut.groups(1)
    for source, parent in ((0x5C00000A, handle), (0x5C00000B, 0x5C00000A), (0x5C000002, 0x5C000001)):
        assert sut.feed(RmDup(1, 0xC1D00001, 0xC1D00001, 0x100 + source, source, value=parent)) == []
    assert sut.groups(1) == before


def test_a_reused_handle_is_a_new_group_even_if_the_free_was_lost():
    sut = AllocationWatcher()
    handle = context(sut.feed)
    (old,) = sut.groups(1)
    changes = sut.feed(RmAlloc(1, 0xC1D00001, 0x5C000001, handle, GROUP))
    assert changes == [GroupRemoved(1, old), GroupAdded(1, sut.groups(1)[0])]
    assert sut.groups(1)[0].channels == ()


def test_a_reused_client_handle_drops_the_old_clients_groups():
    sut = AllocationWatcher()
    context(sut.feed)
    (old,) = sut.groups(1)
    assert sut.feed(RmAlloc(1, 0, 0, 0xC1D00001, CLIENT)) == [GroupRemoved(1, old)]


def test_failed_calls_and_foreign_events_change_nothing():
    sut = AllocationWatcher()
    handle = context(sut.feed)
    before = sut.groups(1)
    for event in (
        RmAlloc(1, 0xC1D00001, 0x5C000001, 0x5C000300, GROUP, result=0x51),
        RmFree(1, 0xC1D00001, 0, handle, result=0x33),
        RmFree(2, 0xC1D00001, 0, handle),
        RmDup(1, 0xC1D00001, 0xC1D00001, 0x5C000200, handle, result=0x1F),
        CudaEvent(1, 0xC1D00001, 0, handle),
        ProcExit(2),
    ):
        assert sut.feed(event) == []
    assert sut.groups(1) == before


def test_exit_and_exec_remove_every_group():
    for end in (ProcExit, ProcExec):
        sut = AllocationWatcher()
        context(sut.feed)
        (group,) = sut.groups(1)
        assert sut.feed(end(1)) == [GroupRemoved(1, group)]
        assert sut.groups(1) == []


def test_a_scanned_group_is_followed_by_events():
    sut = AllocationWatcher()
    group = ChannelGroup(0xC1D00001, 0x5C000003, "compute", (Channel(0xC1D00001, 0x5C00000A),), 0x5C000002, 0x4100, 12)
    assert sut.seed(1, [group]) == [GroupAdded(1, group)]
    assert sut.seed(1, [group]) == []
    (changed,) = sut.feed(RmAlloc(1, 0xC1D00001, 0x5C000003, 0x5C000010, CHANNEL))
    assert changed.group.engine == "compute"
    assert (changed.group.subdevice, changed.group.gpu_id) == (0x5C000002, 0x4100)
    assert len(changed.group.channels) == 2
    assert [type(change) for change in sut.feed(RmFree(1, 0xC1D00001, 0, 0xC1D00001))] == [GroupRemoved]


def test_scanned_groups_on_two_gpus_keep_theirs():
    sut = AllocationWatcher()
    groups = [ChannelGroup(7, 10 + gpu, "compute", (), 20 + gpu, 0x4100 * gpu, 3) for gpu in (1, 2)]
    sut.seed(1, groups)
    for gpu in (1, 2):
        sut.feed(RmAlloc(1, 7, 10 + gpu, 30 + gpu, CHANNEL))
    assert [(group.subdevice, group.gpu_id) for group in sut.groups(1)] == [(21, 0x4100), (22, 0x8200)]


class AgainstModel(RuleBasedStateMachine):
    """The model keeps every object in one flat list and looks for groups anew after each event."""

    handles = Bundle("handles")

    def __init__(self):
        super().__init__()
        self.sut = AllocationWatcher()
        self.model = {}  # (pid, client, handle) -> (class, parent handle)
        self.engines = {}  # sticky per living group
        self.told = {}

    def feed(self, event):
        for change in self.sut.feed(event):
            key = change.pid, change.group.client, change.group.handle
            match change:
                case GroupAdded():
                    assert key not in self.told
                    self.told[key] = change.group
                case GroupChanged():
                    assert self.told[key] != change.group
                    self.told[key] = change.group
                case GroupRemoved():
                    assert self.told.pop(key) == change.group

    def drop(self, key):
        self.model.pop(key, None)
        self.engines.pop(key, None)
        for child, (_, parent) in list(self.model.items()):
            if child[:2] == key[:2] and parent == key[2] and child[2] != key[2]:
                self.drop(child)

    def alloc(self, pid, client, handle, class_, parent):
        self.drop((pid, client, handle))
        self.model[pid, client, handle] = class_, parent
        self.feed(RmAlloc(pid, client, parent, handle, class_))

    @rule(target=handles, pid=st.integers(1, 2), client=st.integers(1, 2))
    def new_client(self, pid, client):
        client += 0xC1D00000
        self.alloc(pid, client, client, CLIENT, client)
        return pid, client, client

    @rule(
        target=handles, parent=handles, handle=st.integers(1, 12), kind=st.sampled_from((COMPUTE, COPY, MEMORY, OTHER))
    )
    def new_child(self, parent, handle, kind):
        pid, client, above = parent
        if parent not in self.model:
            return parent
        class_ = {CLIENT: DEVICE, DEVICE: GROUP, GROUP: CHANNEL}.get(self.model[parent][0], kind)
        if self.model[parent][0] == DEVICE and handle % 3 == 0:
            class_ = SUBDEVICE
        if (
            self.model[parent][0] in (SUBDEVICE, COMPUTE, COPY, MEMORY, OTHER)
            or handle == above
            or self.above(parent, handle)
        ):
            return parent
        self.alloc(pid, client, handle, class_, above)
        return pid, client, handle

    def above(self, key, handle):
        """Whether ``handle`` is an ancestor of ``key``: the driver could not give it out again."""
        for _ in range(6):
            if key not in self.model or key[2] == handle:
                return key in self.model
            key = (*key[:2], self.model[key][1])
        return False

    @rule(key=consumes(handles))
    def free(self, key):
        if key in self.model:
            parent = self.model[key][1]
            self.drop(key)
            self.feed(RmFree(*key[:2], parent, key[2]))

    @rule(pid=st.integers(1, 2))
    def exit(self, pid):
        for key in [key for key in self.model if key[0] == pid]:
            self.drop(key)
        self.feed(ProcExit(pid))

    @rule(key=handles, parent=handles)
    def dup(self, key, parent):
        if key[:2] == parent[:2]:
            self.feed(RmDup(key[0], key[1], key[1], 0x7000, key[2], value=parent[2]))

    @invariant()
    def same_groups(self):
        rank = ("unknown", "other", "copy", "compute")
        expected = {}
        for (pid, client, handle), (class_, parent) in self.model.items():
            if class_ != GROUP:
                continue
            channels = sorted(k[2] for k, v in self.model.items() if k[:2] == (pid, client) and v == (CHANNEL, handle))
            kinds = {COMPUTE: "compute", COPY: "copy"}
            on = [kinds.get(c, "other") for k, (c, p) in self.model.items() if k[:2] == (pid, client) and p in channels]
            engine = max([*on, self.engines.get((pid, client, handle), "unknown")], key=rank.index)
            self.engines[pid, client, handle] = engine
            subs = [k[2] for k, v in self.model.items() if k[:2] == (pid, client) and v == (SUBDEVICE, parent)]
            expected[pid, client, handle] = ChannelGroup(
                client,
                handle,
                engine,
                tuple(Channel(client, each) for each in channels),
                min(subs, default=None),
                None,
                10,
            )
        assert self.told == expected
        assert {(pid, *g.key): g for pid in (1, 2) for g in self.sut.groups(pid)} == expected


AgainstModel.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_model = AgainstModel.TestCase


def test_the_probes_own_events_are_understood():
    """The driver room does not import the probes: this holds the two together."""
    events = pytest.importorskip("gpsched.adaptive.probes.events")
    sut, head = AllocationWatcher(), (0, 1, 1)
    client = 0xC1D00001
    for parent, handle, class_ in (
        (client, 1, DEVICE),
        (1, 2, SUBDEVICE),
        (1, 3, GROUP),
        (3, 4, CHANNEL),
        (4, 5, COMPUTE),
    ):
        sut.feed(events.RmAlloc(*head, client, parent, handle, class_, 0, 10, 0))
    (group,) = sut.groups(1)
    assert group == ChannelGroup(client, 3, "compute", (Channel(client, 4),), 2, None, 10)
    assert sut.feed(events.RmControl(*head, client, 0, 3, SET_TIMESLICE, 77, 10, 0)) == [SliceSetByOwner(1, group, 77)]
    assert sut.feed(events.RmDup(*head, client, client, 9, 3, 1, 10, 0)) == []
    assert [type(change) for change in sut.feed(events.RmFree(*head, client, 1, 4, 0, 0, 10, 0))] == [GroupChanged]
    assert [type(change) for change in sut.feed(events.ProcExit(*head, 0))] == [GroupRemoved]
