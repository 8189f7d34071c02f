"""What the choice in force says of a wake, kept for each context until the next choice."""

from typing import NamedTuple

from gpsched.adaptive.hints.announced import Announcements
from gpsched.adaptive.hints.candidates import CandidateTable
from gpsched.adaptive.hints.chooser import Chooser
from gpsched.adaptive.hints.model import Trigger
from gpsched.adaptive.hints.observations import Wake


class Match(NamedTuple):
    """The chosen triggers that mean a context, and whether its wakes queue requests or take them.

    ``tells``: whether its wakes announce bursts, chosen for it or not; ``idle``: only while the process is idle.
    """

    triggers: tuple[Trigger, ...]
    queues: bool
    takes: bool
    tells: bool
    idle: bool


NO_MATCH = Match((), False, False, False, False)


class Matching:
    """Asked for every wake of a process."""

    def __init__(self, chooser: Chooser, announced: Announcements) -> None:
        self._chooser, self._announced = chooser, announced
        self._by_context: dict[tuple[int, int, int, int], Match] = {}

    def of(self, key: tuple[int, int, int, int], wake: Wake) -> Match:
        """Return what is known of the context ``key`` of a wake."""
        found = self._by_context.get(key)
        if found is None:
            if len(self._by_context) >= CandidateTable.GROUPS:
                self._by_context.clear()
            found = self._by_context[key] = self._look(wake)
        return found

    def clear(self) -> None:
        """Another choice is in force."""
        self._by_context.clear()

    def _look(self, wake: Wake) -> Match:
        choice = self._chooser.choice
        inferred = () if self._announced.active else choice.triggers
        triggers = tuple(trigger for trigger in inferred if trigger.matcher.matches(wake))
        queues = choice.source is not None and choice.source.matcher.matches(wake)
        takes = choice.taker is not None and choice.taker.matcher.matches(wake)
        telling = [trigger.matcher for trigger in triggers]
        if (earliest := self._chooser.earliest) is not None and earliest.matches(wake):
            telling.append(earliest)
        if not (telling or queues or takes):
            return NO_MATCH
        return Match(triggers, queues, takes, bool(telling), all(matcher.idle for matcher in telling))
