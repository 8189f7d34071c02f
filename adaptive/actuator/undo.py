"""What the survivor does when the actuator was killed: every channel enabled, every timeslice restored."""

import contextlib
from collections.abc import Iterable, Iterator

from gpsched.adaptive.actuator.plans import Member
from gpsched.adaptive.driver.control import StockControl
from gpsched.adaptive.driver.errors import HandleGoneError
from gpsched.adaptive.driver.files import DriverFiles
from gpsched.adaptive.errors import GpschedError


def undo(touched: Iterable[tuple[Member, DriverFiles]]) -> list[GpschedError]:
    """Enable first (a disabled process does nothing at all), then restore the slices; return what failed.

    Whatever fails, all are tried. A group whose process or handle is gone needs nothing.
    """
    members = list(touched)
    errors: list[GpschedError] = []
    for member, files in members:
        if member.may_be_off:
            with _collected(errors):
                StockControl(files).enable(member.group)
    for member, files in members:
        if member.original_us:
            with _collected(errors):
                StockControl(files).set_timeslice(member.group, member.original_us)
    return errors


@contextlib.contextmanager
def _collected(errors: list[GpschedError]) -> Iterator[None]:
    try:
        yield
    except HandleGoneError:
        pass
    except GpschedError as error:
        errors.append(error)
