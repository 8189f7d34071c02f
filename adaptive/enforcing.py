"""Gives each process the slices that were decided, and says which level is in force, and why."""

from collections.abc import Callable, Mapping

from gpsched.adaptive.model import Level
from gpsched.adaptive.policy.timeslice import Decision
from gpsched.adaptive.slices import SliceKeeper
from gpsched.adaptive.workloads.registry import Process


_THROUGH_MODULE = "slices by the driver module, which undoes them should gpsched die"


def enforce(
    process: Process,
    decisions: Mapping[tuple[int, int | None], Decision],
    keeper: SliceKeeper,
    launches: Callable[[int], bool],
) -> None:
    """Set the slices of its compute groups; ``level``, ``reason`` and ``out_of_control`` say what came of it.

    ``decisions``: by pid and GPU; ``launches`` tells whether a process uses a GPU, be its groups known or not.
    """
    groups = process.compute_groups()
    reasons = []
    reached = bool(groups)
    failures = keeper.failures
    for group in groups:
        decision = decisions[process.pid, group.group.gpu_id]
        reached &= keeper.want(process, group, decision.timeslice_us)
        reasons.append(decision.reason)
    through_module = bool(groups) and all(keeper.in_module(process, group) for group in groups)
    process.level = _level(process, through_module) if reached else "observe"
    if groups and not reached:
        process.reason = f"control failed: {keeper.last_failure}"
    else:
        reasons += [process.hint_reason, process.restraint, _THROUGH_MODULE if through_module else ""]
        process.reason = "; ".join(filter(None, dict.fromkeys(reasons))) or "no GPU context yet"
    process.out_of_control = keeper.failures > failures or (not groups and launches(process.pid))
    if process.out_of_control and not groups:
        process.reason = "launches GPU work, but no channel group of it is known"


def _level(process: Process, through_module: bool) -> Level:
    """A reservation's rung says more about its latency than the way its slices take."""
    if process.runs_as == "unmanaged":
        return "observe"
    return "module" if through_module and process.mechanism == "timeslice" else process.mechanism
