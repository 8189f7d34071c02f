"""Who reserves too much loses its reservations until it behaves.

Judged second by second, by three bounds: the time it kept reserved (``lc_budget``), what of that was idle
(``waste_budget`` with a wide margin: the learner keeps it by itself), and how often it asked (``max_per_second``).
It has to keep them for a whole probation before it may reserve again, and the next probation is twice as long.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpsched.adaptive.config import Reservations


_PATIENCE = 2  # seconds in a row
_PROBATION_S = 10.0
_LONGEST_S = 640.0
_WASTE = 10.0  # times the budget,
_LEAST_WASTE = 0.05  # or this share, where the budget is next to nothing


@dataclass
class _Process:
    reserved_us: dict[int, float] = field(default_factory=dict)  # by GPU
    idle_us: dict[int, float] = field(default_factory=dict)
    asked: int = 0
    bad: int = 0
    reason: str = ""
    probation_s: float = _PROBATION_S
    next_s: float = _PROBATION_S
    until: float | None = None  # while it has no reservations
    good_since: float = 0.0


class Conduct:
    """Fed with what was asked for and reserved; times in seconds, durations in µs."""

    def __init__(self) -> None:
        self._processes: defaultdict[int, _Process] = defaultdict(_Process)

    @property
    def suspended(self) -> Mapping[int, str]:
        """The processes that have lost their reservations, and the reason for people."""
        return {pid: each.reason for pid, each in self._processes.items() if each.until is not None}

    def asked(self, pid: int, times: int = 1) -> None:
        """Reservations were asked for, whether or not they were made."""
        self._processes[pid].asked += times

    def reserved(self, pid: int, length_us: float, idle_us: float, gpu: int = 0) -> None:
        """A reservation ended; for ``idle_us`` of it the GPU waited. Each GPU is judged by itself."""
        process = self._processes[pid]
        for sums, us in ((process.reserved_us, length_us), (process.idle_us, idle_us)):
            sums[gpu] = sums.get(gpu, 0.0) + us

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._processes.pop(pid, None)

    def close(self, now: float, elapsed_s: float, used: Mapping[int, float], settings: Reservations) -> None:
        """End a window. ``used``: the share of it in which each process was in a burst."""
        for pid, process in self._processes.items():
            fault = _fault(process, elapsed_s, used.get(pid, 0.0), settings)
            process.reserved_us.clear()
            process.idle_us.clear()
            process.asked = 0
            if process.until is None:
                self._judge(process, fault, now)
            elif fault:
                process.until = now + process.probation_s
                process.reason = _lost(fault, process.probation_s)
            elif now >= process.until:
                process.until, process.bad, process.good_since = None, 0, now

    def _judge(self, process: _Process, fault: str, now: float) -> None:
        process.bad = process.bad + 1 if fault else 0
        if process.bad >= _PATIENCE:
            process.probation_s, process.next_s = process.next_s, min(2 * process.next_s, _LONGEST_S)
            process.until = now + process.probation_s
            process.reason = _lost(fault, process.probation_s)
        elif now - process.good_since > 2 * process.next_s:
            process.next_s = _PROBATION_S


def _fault(process: _Process, elapsed_s: float, used: float, settings: Reservations) -> str:
    """While it may not reserve, its bursts tell how much it would."""
    kept = max(process.reserved_us.values(), default=0.0) / (elapsed_s * 1e6)
    reserved = max(kept, used if process.until is not None else 0.0)
    idle = max(process.idle_us.values(), default=0.0) / (elapsed_s * 1e6)
    asked = process.asked / elapsed_s
    if asked > settings.max_per_second:
        return f"asked for {asked:.0f} a second, more than reservations.max_per_second = {settings.max_per_second}"
    if reserved > settings.lc_budget:
        return f"kept the GPU for {reserved:.0%} of the time, more than reservations.lc_budget = {settings.lc_budget:g}"
    if idle > max(_WASTE * settings.waste_budget, _LEAST_WASTE):
        return f"left the GPU idle for {idle:.0%} of the time, reserved for nothing"
    return ""


def _lost(fault: str, probation_s: float) -> str:
    return f"has no reservations: it {fault}; again once it behaves for {probation_s:.0f} s"
