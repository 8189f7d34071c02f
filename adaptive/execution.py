"""The actuator as the daemon uses it: started for the first plan, given plans as a whole, and again after it died."""

import logging
import select
import time
from collections.abc import Callable, Iterator

from gpsched.adaptive.actuator.actuator import Actuator
from gpsched.adaptive.actuator.errors import ActuatorGoneError, ActuatorMissingError, PlanLimitError, PlanRefusedError
from gpsched.adaptive.actuator.plans import PlanSet
from gpsched.adaptive.actuator.records import Record
from gpsched.adaptive.driver.files import DriverFiles
from gpsched.adaptive.errors import GpschedError, ProcessGoneError
from gpsched.adaptive.probes.events import Kind
from gpsched.adaptive.reckoning import Due
from gpsched.adaptive.slices import SliceKeeper
from gpsched.adaptive.workloads.registry import Group, Process, Registry


log = logging.getLogger(__name__)

_RETRY_S = 10.0  # an actuator that died is started again no sooner

StartActuator = Callable[[Callable[[int], DriverFiles], int], Actuator]


class Execution:
    """One actuator at a time. ``published`` is what is in force; ``start`` makes an actuator.

    ``started`` is told the pid of each; ``renew`` is called when what was decided has to be decided anew.
    """

    def __init__(
        self,
        registry: Registry,
        keeper: SliceKeeper,
        ring: Callable[[], int],
        start: StartActuator,
        *,
        started: Callable[[int], None],
        renew: Callable[[], None],
    ) -> None:
        self.start = start
        self.published = PlanSet(gpus=())
        self._registry, self._keeper, self._ring = registry, keeper, ring
        self._started, self._renew = started, renew
        self._actuator: Actuator | None = None
        self._not_before = 0.0
        self._ends = select.epoll()

    @property
    def may_run(self) -> bool:
        """Whether the actuator runs or may be started."""
        return self._actuator is not None or time.monotonic() >= self._not_before

    @property
    def runs(self) -> bool:
        """Whether it runs, now that it was started if it had to be."""
        return self._running() is not None

    @property
    def beside(self) -> int:
        """The process on whose thread's CPU the actuator waits for events, since that does not sleep; 0: on any."""
        return self._actuator.counters().beside if self._actuator is not None else 0

    def publish(self, plan_set: PlanSet) -> bool:
        """Put the plans in force; False where that failed, or nothing was to be done: best-effort work runs unhindered.

        Where no actuator runs, none is started for an empty set.
        """
        if plan_set == self.published or (self._actuator is None and not plan_set.gpus):
            return False
        actuator = self._running()
        if actuator is None:
            return False
        try:
            self._guard(plan_set)
            actuator.publish(plan_set)
            self._unguard(self.published, plan_set)
        except ActuatorGoneError as error:
            self._drop(error)
        except ProcessGoneError:
            self._renew()  # its exit will be told; the next plans are without it
        except (PlanLimitError, PlanRefusedError, GpschedError) as error:
            log.warning("%s", error)
        else:
            self.published = plan_set
            return True
        return False

    def announce(self, event: bytes) -> None:
        """Hand over an event that none in the kernel stands for, if an actuator runs."""
        if self._actuator is not None:
            try:
                self._actuator.announce(event)
            except ActuatorGoneError as error:
                self._drop(error)

    def records(self) -> list[Record]:
        """Return the reservations that ended since the last call."""
        return self._actuator.records() if self._actuator is not None else []

    def due(self, record: Record) -> Due | None:
        """When a reservation was to begin; the program's own hint names a time that the record does not have."""
        for plan in self.published.plans:
            if plan.pid == record.pid and record.trigger < len(plan.triggers):
                trigger = plan.triggers[record.trigger]
                return None if trigger.before_us else Due(float(trigger.offset_us), trigger.kind == Kind.HINT)
        return None

    def turns(self) -> list[list[int]] | None:
        """Return how many ns each turn of each GPU has had; None where nobody takes turns."""
        if self._actuator is None or not any(len(gpu.turns_us) > 1 for gpu in self.published.gpus):
            return None
        return self._actuator.turns()

    def fileno(self) -> int:
        """Descriptor that is readable when ``check`` is due."""
        return self._ends.fileno()

    def check(self) -> None:
        """See what the actuator says; when it died, everything it had done is undone."""
        if self._actuator is None:
            return
        try:
            self._actuator.check()
        except ActuatorGoneError as error:
            self._drop(error)
        except PlanRefusedError as error:
            log.warning("%s", error)

    def close(self) -> None:
        """End the actuator; it undoes everything."""
        if self._actuator is not None:
            self._actuator.stop()
            self._actuator = None
        self.published = PlanSet(gpus=())

    def _running(self) -> Actuator | None:
        if self._actuator is None and self.may_run:
            try:
                self._actuator = self.start(self._keeper.files, self._ring())
            except (ActuatorMissingError, OSError) as error:
                log.warning("%s; levels above timeslice are off", error)
                self._not_before = float("inf")
                return None
            self.published = PlanSet(gpus=())
            self._started(self._actuator.pid)
            self._ends.register(self._actuator.fileno(), select.EPOLLIN)
        return self._actuator

    def _drop(self, error: ActuatorGoneError) -> None:
        """It is gone and everything undone, slices included; another one is started after a while."""
        log.warning("%s", error)
        for member in self.published.members:
            process = self._registry.get(member.pid)
            group = process.groups.get(member.group.key) if process else None
            if group is not None and member.original_us:
                group.timeslice_us = member.original_us
        self.close()
        self._not_before = time.monotonic() + _RETRY_S
        self._renew()

    def _guard(self, plan_set: PlanSet) -> None:
        """On disk before it can happen: whose channels may be disabled."""
        for process, group in self._switched(plan_set):
            self._keeper.guard(process, group)

    def _unguard(self, before: PlanSet, now: PlanSet) -> None:
        kept = {member.key for member in now.members if member.may_be_off}
        for process, group in self._switched(before):
            if (process.pid, *group.key) not in kept:
                self._keeper.unguard(process, group)

    def _switched(self, plan_set: PlanSet) -> Iterator[tuple[Process, Group]]:
        """The groups whose channels may be disabled at times."""
        for member in plan_set.members:
            process = self._registry.get(member.pid)
            group = process.groups.get(member.group.key) if process else None
            if process is not None and group is not None and member.may_be_off:
                yield process, group
