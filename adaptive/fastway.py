"""Whose events the kernel copies to the actuator's ring, and which of them wake the daemon at once."""

from collections.abc import Callable, Collection

from gpsched.adaptive.actuator.plans import Plan, PlanSet
from gpsched.adaptive.probes.events import AtOnce


Send = Callable[[int, bool, AtOnce], None]
"""send(pid, copied, at once)"""


class FastWay:
    """Asks the kernel only for what is new."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sent: dict[int, tuple[bool, AtOnce]] = {}
        self._watched: frozenset[int] = frozenset()

    @property
    def wakes(self) -> bool:
        """Whether any process' events wake the daemon at once."""
        return any(at_once != "nothing" for _, at_once in self._sent.values())

    def is_behind(self, watched: Collection[int]) -> bool:
        """Whether others are to be watched than ``follow`` was told."""
        return self._watched != watched

    def follow(self, plan_set: PlanSet, watched: frozenset[int], predicts: Callable[[Plan], bool]) -> None:
        """Only processes with a plan pay for the second copy of their events, jobs in turns for that of their pauses.

        It need not wake us, unless we must stop somebody ourselves (``watched``), or tell the actuator at each burst
        what no event of the kernel does (``predicts``): then we have to be quick, too.
        """
        self._watched = watched
        wanted: dict[int, tuple[bool, AtOnce]] = dict.fromkeys(watched, (False, "all"))
        for plan in plan_set.plans:
            at_once: AtOnce = "bursts" if predicts(plan) else "nothing"
            wanted[plan.pid] = True, "all" if plan.pid in watched else at_once
        wanted |= dict.fromkeys(plan_set.in_turns, (True, "nothing"))
        for pid in self._sent.keys() | wanted.keys():
            before, now = (each.get(pid, (False, "nothing")) for each in (self._sent, wanted))
            if now != before:
                self._send(pid, *now)
        self._sent = wanted

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._sent.pop(pid, None)
