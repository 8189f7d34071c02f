"""Compares what the driver has with what was intended: another tool, or the program itself, may have changed it."""

from gpsched.adaptive.driver.errors import HandleGoneError
from gpsched.adaptive.errors import GpschedError, ProcessGoneError
from gpsched.adaptive.model import SettingCheck
from gpsched.adaptive.slices import SliceKeeper
from gpsched.adaptive.workloads.registry import Group, Process, Registry


def verify(registry: Registry, keeper: SliceKeeper) -> list[SettingCheck]:
    """Ask the driver for every compute group's slice; groups that die meanwhile are left out."""
    checks = [_check(process, group, keeper) for process in registry for group in process.compute_groups()]
    return [check for check in checks if check is not None]


def _check(process: Process, group: Group, keeper: SliceKeeper) -> SettingCheck | None:
    live, problem = None, None
    try:
        live = keeper.control_of(process, group).get_timeslice(group.group)
    except (HandleGoneError, ProcessGoneError):
        return None
    except GpschedError as error:
        problem = str(error)
    client, handle = group.key
    return SettingCheck(
        pid=process.pid, client=client, handle=handle, intended_us=group.intended_us, live_us=live, problem=problem
    )
