"""Every driver call of a life fails once, in turn: nothing may stay disabled unknown.

A life: scan, note the slices, change them, disable all but one, restart, enable, put the slices back.
"""

import errno
import importlib.util
from pathlib import Path

import pytest

from gpsched.adaptive.driver import ControlError, HandleGoneError, StockControl, scan_process
from gpsched.adaptive.driver.calls import RmCalls
from gpsched.adaptive.driver.status import code


def _load_fake():
    path = Path(__file__).parents[1] / "unit" / "driver" / "fake_rm.py"
    spec = importlib.util.spec_from_file_location("driver_fake_rm", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fake = _load_fake()

FAULTS = {
    "busy once": (code("BUSY_RETRY"), False),
    "refused": (code("INVALID_STATE"), False),
    "gone for good": (code("INVALID_OBJECT_HANDLE"), True),
    "GPU lost for good": (code("GPU_IS_LOST"), True),
    "no such device": (OSError(errno.ENODEV, "No such device"), True),
    "interrupted": (OSError(errno.EINTR, "Interrupted"), False),
    "no memory": (OSError(errno.ENOMEM, "Cannot allocate memory"), False),
}
KILLS = ("gone for good", "no such device")  # what these disabled went with its process


class FailNth:
    """Passes calls on to the fake driver; call ``nth`` fails, and all after it when the fault lasts."""

    def __init__(self, rm, nth, fault, lasting):
        self.rm, self.nth, self.fault, self.lasting, self.count = rm, nth, fault, lasting, 0

    def __call__(self, fd, request, argument):
        self.count += 1
        if self.count == self.nth or (self.lasting and self.count > self.nth):
            if isinstance(self.fault, OSError):
                raise self.fault
            argument.status = self.fault
            return 0
        return self.rm(fd, request, argument)


def live(control, groups):
    """One life; returns whether it went through. Errors are answered as the daemon does: undo, then go on."""
    original = {}
    try:
        for group in groups:
            original[group] = control.get_timeslice(group)
            control.set_timeslice(group, 1)
        control.disable(groups[1:])
        control.restart_runlist(groups[0])
        control.enable(groups[1:])
        for group, us in original.items():
            control.set_timeslice(group, us)
    except ControlError:
        return False
    return True


def start():
    rm = fake.FakeRm()
    rm.context()
    return rm, scan_process(fake.FakeFiles(), RmCalls(rm))


def calls_of_a_life():
    rm, groups = start()
    counter = FailNth(rm, 0, 0, lasting=False)
    assert live(StockControl(fake.FakeFiles(), RmCalls(counter)), groups)
    return counter.count


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_stays_disabled_unknown(name):
    fault, lasting = FAULTS[name]
    total = calls_of_a_life()
    assert total >= 15
    for nth in range(1, total + 1):
        rm, groups = start()
        control = StockControl(fake.FakeFiles(), RmCalls(FailNth(rm, nth, fault, lasting)))
        live(control, groups)
        known = {(channel.client, channel.handle) for channel in control.disabled}
        gone = lasting and name in KILLS
        if not gone:
            assert rm.disabled() <= known, f"call {nth} of {total}"
        if not lasting:
            control.enable_all()
            assert rm.disabled() == set(), f"call {nth} of {total}"
            assert control.disabled == frozenset()


@pytest.mark.parametrize("name", ["busy once", "interrupted"])
def test_a_passing_fault_is_not_noticed(name):
    fault, _ = FAULTS[name]
    for nth in range(1, calls_of_a_life() + 1):
        rm, groups = start()
        assert live(StockControl(fake.FakeFiles(), RmCalls(FailNth(rm, nth, fault, lasting=False))), groups)
        assert rm.disabled() == set()
        assert {each.slice_us for each in rm.clients[groups[0].client].objects.values()} == {2048}


@pytest.mark.parametrize("name", FAULTS)
def test_enable_all_tries_everything_whatever_fails(name):
    fault, _ = FAULTS[name]
    for nth in range(1, 5):
        rm, groups = start()
        faulty = FailNth(rm, 0, fault, lasting=False)
        control = StockControl(fake.FakeFiles(), RmCalls(faulty))
        control.disable(groups)
        faulty.nth = faulty.count + nth
        try:
            control.enable_all()
        except ControlError:
            control.enable_all()
        assert rm.disabled() == set()
        assert control.disabled == frozenset()


@pytest.mark.parametrize("name", FAULTS)
def test_a_scan_that_fails_anywhere_ends_in_one_clear_way(name):
    fault, lasting = FAULTS[name]
    whole = len(start()[1])
    rm = fake.FakeRm()
    rm.context()
    counter = FailNth(rm, 0, 0, lasting=False)
    scan_process(fake.FakeFiles(), RmCalls(counter))
    for nth in range(1, counter.count + 1, 61):
        rm = fake.FakeRm()
        rm.context()
        try:
            groups = scan_process(fake.FakeFiles(), RmCalls(FailNth(rm, nth, fault, lasting)))
        except OSError as error:
            outcome = error.errno
        else:
            outcome = len(groups)
        # Either the kernel's own error, or what could be found: never more, never another error.
        assert outcome == getattr(fault, "errno", None) or outcome <= whole


def test_a_dead_handle_is_told_from_a_fault():
    rm, groups = start()
    rm.clients.clear()
    with pytest.raises(HandleGoneError):
        StockControl(fake.FakeFiles(), RmCalls(rm)).get_timeslice(groups[0])
