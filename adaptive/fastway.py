"""Whose events the kernel copies to the actuator's ring, and which of them the daemon is told of, or woken by."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from gpsched.adaptive.actuator.plans import Plan, PlanSet
from gpsched.adaptive.probes.events import ALL_WAKES, ALL_WAKINGS, AtOnce, Kind


#: A reservation that is due so soon after its event is late where the actuator's CPU has to wake first. µs.
_SOON_US = 200


class Way(NamedTuple):
    """Of one process: whether the actuator is told, when the daemon is, and which thread is nobody's (0: none).

    ``wakes``: bits of the kinds of wakes that the actuator is told of.
    """

    copied: bool = False
    at_once: AtOnce = "nothing"
    agent: int = 0
    wakes: int = 0


Send = Callable[[int, Way], None]
"""send(pid, way)"""


class Needs(NamedTuple):
    """What the daemon has to do by itself.

    ``watched``: processes for which it must stop somebody; ``predicts``: whether it tells the actuator at each burst
    what no event of the kernel does; ``resting``: processes that it knows well enough for now; ``agent``: a process'
    hold agent.
    """

    watched: frozenset[int]
    predicts: Callable[[Plan], bool]
    resting: frozenset[int]
    agent: Callable[[int], int | None]


class FastWay:
    """Asks the kernel only for what is new."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sent: dict[int, Way] = {}
        self._of: tuple[Collection[int], Collection[int]] = frozenset(), frozenset()

    @property
    def wakes(self) -> bool:
        """Whether any process' events wake the daemon at once."""
        return any(way.at_once in ("bursts", "all") for way in self._sent.values())

    def is_behind(self, watched: Collection[int], resting: Collection[int]) -> bool:
        """Whether others are watched or rest than ``follow`` was told."""
        return self._of != (watched, resting)

    def follow(self, plan_set: PlanSet, needs: Needs) -> None:
        """Only processes with a plan pay for the second copy of their events, jobs in turns for that of their pauses.

        It need not wake us, unless we have to be quick, too.
        """
        self._of = needs.watched, needs.resting
        wanted = dict.fromkeys(needs.watched, Way(at_once="all"))
        wanted |= {plan.pid: _way(plan, needs) for plan in plan_set.plans}
        wanted |= dict.fromkeys(plan_set.in_turns, Way(copied=True))
        for pid in self._sent.keys() | wanted.keys():
            before, now = (each.get(pid, Way()) for each in (self._sent, wanted))
            if now != before:
                self._send(pid, now)
        self._sent = wanted

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._sent.pop(pid, None)


def _way(plan: Plan, needs: Needs) -> Way:
    """Who is to answer a wake at once is told that the thread is being woken, too, and wakes meanwhile."""
    wakes = 0
    for trigger in plan.triggers:
        if trigger.kind == Kind.WAKE:
            wakes |= ALL_WAKES if trigger.call is None else 1 << trigger.call
            wakes |= ALL_WAKINGS if trigger.offset_us < _SOON_US else 0
    return Way(True, _at_once(plan, needs), needs.agent(plan.pid) or 0, wakes)


def _at_once(plan: Plan, needs: Needs) -> AtOnce:
    if plan.pid in needs.watched:
        return "all"
    if plan.pid in needs.resting:
        return "never"
    return "bursts" if needs.predicts(plan) else "nothing"
