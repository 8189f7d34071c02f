"""What gpsched does to the jobs of a virtual GPU: slices, reservations, holds, turns and shares, as the actuator does.

Only the execution is modelled: which settings are in force is the business of whoever is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpsched.adaptive.simgpu.virtual import DISABLE, ENABLE, World
from gpsched.bench.tuner.actors import ScriptedJob, ScriptedService


_PERIOD_US = 100_000.0  # of shares
_LIMIT_US = 100_000.0  # the longest reservation
_RESERVED_MOST = 0.9  # of any second: best-effort work keeps the rest
_REACTION_US = 50.0  # from an event to the control
_OWN_US = 2048  # the driver's default slice
_EARLY_US = {"reserve": 700.0, "hold": 200.0}  # what the mechanism needs until the GPU is free


LevelName = Literal["observe", "timeslice", "reserve", "hold"]


@dataclass(frozen=True)
class Actuation:
    """Settings in force; None for a slice means the program's own. ``offset_us`` shifts where reservations start."""

    level: LevelName = "observe"
    lc_slice_us: int | None = None
    be_slice_us: int | None = None
    offset_us: float = 0.0
    quiet_us: float = 0.0
    turn_us: float | None = None
    be_share: float = 1.0


class Control:
    """Executes an actuation. One control at a time, as the driver's lock has it."""

    def __init__(self, world: World, services: Sequence[ScriptedService], jobs: Sequence[ScriptedJob]) -> None:
        self._world, self._services, self._jobs = world, services, list(jobs)
        self._now = Actuation()
        self._reserved: dict[ScriptedService, int] = {}
        self._numbers = 0
        self._expected: dict[ScriptedService, int] = {}
        self._busy = self._shut = False
        self._turn = self._generation = 0
        self._credit_us, self._credited = _RESERVED_MOST * 1e6, 0.0
        for service in services:
            service.on_trigger, service.on_launch, service.on_end = self._trigger, self._launch, self._end

    def apply(self, actuation: Actuation, jobs: Sequence[ScriptedJob]) -> None:
        """Put settings in force for these jobs, from now on."""
        if actuation == self._now and list(jobs) == self._jobs:
            return
        self._now, self._jobs = actuation, list(jobs)
        self._generation += 1
        for service in self._services:
            service.timeslice(actuation.lc_slice_us or _OWN_US)
        for job in self._jobs:
            job.timeslice(actuation.be_slice_us or _OWN_US)
        self._shut = False
        if actuation.be_share < 1.0:
            self._open(self._generation)
        if actuation.turn_us is not None and len(self._jobs) > 1:
            generation = self._generation
            self._world.after(actuation.turn_us, lambda: self._next_turn(generation))
        self._update()

    # ---- turns and shares

    def _next_turn(self, generation: int) -> None:
        if generation != self._generation or self._now.turn_us is None:
            return
        if self._reserved or self._shut:  # the clock of turns stands still
            self._world.after(1000.0, lambda: self._next_turn(generation))
            return
        self._turn += 1
        self._world.after(self._now.turn_us, lambda: self._next_turn(generation))
        self._update()

    def _open(self, generation: int) -> None:
        if generation == self._generation:
            self._shut = False
            self._world.after(_PERIOD_US * self._now.be_share, lambda: self._close(generation))
            self._update()

    def _close(self, generation: int) -> None:
        if generation == self._generation:
            self._shut = True
            self._world.after(_PERIOD_US * (1 - self._now.be_share), lambda: self._open(generation))
            self._update()

    # ---- reservations

    def _trigger(self, service: ScriptedService) -> None:
        level = self._now.level
        if level not in _EARLY_US:
            return
        number = self._expect(service)
        lead = service.lc.prep_us
        delay = max(0.0, lead - _EARLY_US[level] + self._now.offset_us) + _REACTION_US
        if level == "reserve":
            self._world.after(delay, lambda: self._begin(service, number))
        else:
            self._world.after(delay, lambda: self._hold(service, number))

    def _expect(self, service: ScriptedService) -> int:
        self._numbers += 1
        self._expected[service] = self._numbers
        return self._numbers

    def _hold(self, service: ScriptedService, number: int) -> None:
        if self._expected.get(service) == number:  # not launched meanwhile
            service.hold()

    def _begin(self, service: ScriptedService, number: int) -> None:
        if self._expected.get(service) == number:
            self._reserve(service)

    def _launch(self, service: ScriptedService) -> None:
        if self._now.level == "hold":
            self._expected.pop(service, None)
        elif self._now.level == "reserve":
            number = self._expect(service)
            self._world.after(_REACTION_US, lambda: self._begin(service, number))

    def _reserve(self, service: ScriptedService) -> None:
        self._refill()
        if service in self._reserved or self._credit_us < 0.25 * _RESERVED_MOST * 1e6:
            return
        self._numbers += 1
        self._reserved[service] = number = self._numbers
        self._world.after(min(_LIMIT_US, self._credit_us), lambda: self._expire(service, number))
        self._update()

    def _end(self, service: ScriptedService) -> None:
        self._expected.pop(service, None)
        if service in self._reserved:
            number = self._reserved[service]
            self._world.after(_REACTION_US + self._now.quiet_us, lambda: self._quiet(service, number))

    def _quiet(self, service: ScriptedService, number: int) -> None:
        if service not in self._expected:  # no new request announced itself
            self._expire(service, number)

    def _expire(self, service: ScriptedService, number: int) -> None:
        if self._reserved.get(service) == number:
            self._refill()
            del self._reserved[service]
            self._update()

    def _refill(self) -> None:
        elapsed, self._credited = self._world.now - self._credited, self._world.now
        spent = elapsed if self._reserved else 0.0
        self._credit_us = min(self._credit_us + _RESERVED_MOST * elapsed - spent, _RESERVED_MOST * 1e6)

    # ---- who of the jobs is on

    def _update(self) -> None:
        """Issue one control after another, those that take the GPU away first, until every job is as it should be."""
        if self._busy:
            return
        turns = self._now.turn_us is not None and len(self._jobs) > 1
        for index, job in enumerate(self._jobs):
            own_turn = not turns or index == self._turn % len(self._jobs)
            job.wanted = own_turn and not self._reserved and not self._shut
        for job in sorted(self._jobs, key=lambda job: job.wanted):
            if job.wanted != job.enabled:
                self._busy, job.enabled = True, job.wanted
                kind = ENABLE if job.wanted else DISABLE
                self._world.at(self._world.control(kind, job.channels), self._answered)
                return

    def _answered(self) -> None:
        self._busy = False
        self._update()
