"""The driver's version file, and which controls a driver offers."""

import pytest
from fake_rm import FakeFiles, FakeRm

from gpsched.adaptive.driver import HandleGoneError, StockControl, scan_process
from gpsched.adaptive.driver.calls import RmCalls
from gpsched.adaptive.driver.errors import UnsupportedDriverError
from gpsched.adaptive.driver.probe import DriverVersion, driver_version, probe_controls, require_known_abi


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs)  Tue\nGCC: gcc\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\nGCC version:\n"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (OPEN, DriverVersion("580.159.04", True)),
        (CLOSED, DriverVersion("470.256.02", False)),
        ("?", DriverVersion("unknown", False)),
    ],
)
def test_version_file(tmp_path, text, version):
    file = tmp_path / "version"
    file.write_text(text)
    assert driver_version(file) == version


def test_no_driver(tmp_path):
    assert driver_version(tmp_path / "none") is None
    require_known_abi(None)


def test_an_old_driver_is_refused_with_a_remedy():
    with pytest.raises(UnsupportedDriverError, match=r"470\.256\.02 \(proprietary\).*install driver branch 535"):
        require_known_abi(DriverVersion("470.256.02", False))
    require_known_abi(DriverVersion("580.159.04", True))
    require_known_abi(DriverVersion("unknown", False))


def test_probing_changes_nothing_and_names_what_is_missing():
    rm = FakeRm()
    rm.context()
    group = scan_process(FakeFiles(), RmCalls(rm))[0]
    control = StockControl(FakeFiles(), RmCalls(rm))
    before = {handle: vars(each).copy() for handle, each in rm.clients[group.client].objects.items()}
    offer = probe_controls(control, group)
    assert (offer.timeslice, offer.interleave, offer.enable, offer.restart, offer.reasons) == (
        True,
        True,
        True,
        True,
        {},
    )
    rm.nice, rm.absent = False, {0x2080110B}
    offer = probe_controls(control, group)
    assert (offer.timeslice, offer.interleave, offer.enable, offer.restart) == (True, False, False, False)
    assert "CAP_SYS_NICE" in offer.reasons["restart"]
    assert "another level" in offer.reasons["enable"]
    assert {handle: vars(each) for handle, each in rm.clients[group.client].objects.items()} == before


def test_a_group_that_dies_while_probed():
    rm = FakeRm()
    rm.context()
    group = scan_process(FakeFiles(), RmCalls(rm))[0]
    rm.clients.clear()
    with pytest.raises(HandleGoneError):
        probe_controls(StockControl(FakeFiles(), RmCalls(rm)), group)
