"""A scan finds what a process has, by handle information and by probing, within its bounds."""

import logging

import pytest
from fake_rm import FakeFiles, FakeRm, Obj

from gpsched.adaptive.driver import scan_process
from gpsched.adaptive.driver.calls import RmCalls
from gpsched.adaptive.driver.errors import DescriptorGoneError
from gpsched.adaptive.driver.query import Bounds


CLIENT = 0xC1D00003
GET_HANDLE_INFO, UNIQUE, CLASS_OF = 0xD02, 0x20801123, 0x906F0101


def scan(rm, files=None, bounds=None):
    return scan_process(files or FakeFiles(), RmCalls(rm), bounds)


def expected(rm, client=CLIENT):
    owner = rm.clients[client]
    return {handle: rm.members(owner, handle) for handle, each in owner.objects.items() if each.class_ == 0xA06C}


def found(groups):
    return {group.handle: [channel.handle for channel in group.channels] for group in groups}


@pytest.mark.parametrize(
    "absent", [set(), {GET_HANDLE_INFO}, {GET_HANDLE_INFO, UNIQUE}, {GET_HANDLE_INFO, UNIQUE, CLASS_OF}]
)
def test_finds_all_groups_channels_engine_and_gpu(absent):
    rm = FakeRm()
    rm.absent = absent
    compute = rm.context(gpu_id=0x4100)
    groups = scan(rm)
    assert found(groups) == expected(rm)
    assert [group.handle for group in groups if group.engine == "compute"] == [compute]
    assert {group.gpu_id for group in groups} == {0x4100}
    assert {group.fd for group in groups} == {10}
    assert {rm.object(CLIENT, group.subdevice).class_ for group in groups} == {0x2080}
    if CLASS_OF not in absent:
        assert sorted(group.engine for group in groups) == ["compute", "copy", "copy", "copy"]


@pytest.mark.parametrize("absent", [set(), {GET_HANDLE_INFO}, {GET_HANDLE_INFO, UNIQUE}])
def test_two_gpus_in_one_client_and_two_clients(absent):
    rm = FakeRm()
    rm.absent = absent
    first = rm.context(gpu_id=0x4100)
    second = rm.context(gpu_id=0x8100, base=0x5C000200)
    other = rm.context(fd=101, client=0xC1D00009, gpu_id=0x8100)
    groups = {(group.client, group.handle): group for group in scan(rm, FakeFiles((10, 11)))}
    assert groups[CLIENT, first].gpu_id == 0x4100
    assert groups[CLIENT, second].gpu_id == 0x8100
    assert groups[0xC1D00009, other].fd == 11
    assert len(groups) == 12
    for group in groups.values():
        assert found([group])[group.handle] == expected(rm, group.client)[group.handle]


def test_channels_are_told_apart_by_ids_where_order_would_be_wrong():
    rm = FakeRm()
    rm.absent = {GET_HANDLE_INFO}
    compute = rm.context()
    rm.clients[CLIENT].objects[0x5C000190] = Obj(0xC86F, compute)  # a late channel of the first group
    assert found(scan(rm)) == expected(rm)


@pytest.mark.parametrize("absent", [set(), {GET_HANDLE_INFO}])
def test_handles_beyond_the_first_range_are_reached_through_a_run(absent):
    rm = FakeRm()
    rm.absent = absent
    rm.context(base=0x5C000000 + 2040)
    assert found(scan(rm)) == expected(rm)
    rm.context(base=0x5C000000 + 2400)
    assert found(scan(rm)) == expected(rm)


@pytest.mark.parametrize("absent", [set(), {GET_HANDLE_INFO}])
@pytest.mark.parametrize("index", [600, 5000, 40_000])
def test_a_client_made_after_many_others_is_found_from_the_newest_down(absent, index, tmp_path):
    rm = FakeRm()
    rm.absent = absent
    rm.context(client=0xC1D00000 + index)

    class Calls(RmCalls):
        def newest_client(self, path):
            assert path == "/proc/4321/fd/10"
            return super().newest_client(str(tmp_path / "nvidiactl"))

    (tmp_path / "nvidiactl").touch()
    rm.next_client = 0xC1D00000 + index + 900
    groups = scan_process(FakeFiles(), Calls(rm))
    assert found(groups) == expected(rm, 0xC1D00000 + index)
    assert {group.client for group in groups} == {0xC1D00000 + index}


def test_a_process_without_context_has_no_groups_and_costs_few_calls():
    rm = FakeRm()
    assert scan(rm) == []
    assert len(rm.calls) <= 2 * 512


@pytest.mark.parametrize("absent", [set(), {GET_HANDLE_INFO}])
def test_bounds_end_the_scan_and_say_so(absent, caplog):
    rm = FakeRm()
    rm.absent = absent
    rm.context()
    with caplog.at_level(logging.WARNING):
        scan(rm, bounds=Bounds(calls=700))
    assert len(rm.calls) <= 760
    assert "cut short" in caplog.text


def test_the_time_bound_ends_the_scan(caplog):
    rm = FakeRm()
    rm.context()
    assert scan(rm, bounds=Bounds(seconds=0.0)) == []
    assert "cut short" in caplog.text
    assert len(rm.calls) <= 2


def test_a_descriptor_that_closed_meanwhile_is_skipped():
    rm = FakeRm()
    rm.context()
    assert scan(rm, FakeFiles(error=DescriptorGoneError(4321, 10))) == []


def test_a_descriptor_listed_twice_gives_each_group_once():
    rm = FakeRm()
    rm.context()

    class Twice(FakeFiles):
        def get(self, fd):
            return 100

    groups = scan(rm, Twice((10, 12)))
    assert len(groups) == 4
    assert {group.fd for group in groups} == {10}


def test_scanning_changes_nothing():
    rm = FakeRm()
    rm.context()
    before = {handle: vars(each).copy() for handle, each in rm.clients[CLIENT].objects.items()}
    scan(rm)
    rm.absent = {GET_HANDLE_INFO}
    scan(rm)
    assert {handle: vars(each) for handle, each in rm.clients[CLIENT].objects.items()} == before
    assert {command for _, _, command in rm.calls} <= {
        GET_HANDLE_INFO,
        UNIQUE,
        CLASS_OF,
        0xA06C0104,
        0xC36F0108,
        0x20800142,
    }
