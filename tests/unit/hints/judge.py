"""What the actuator would do by a learner's choices, on observations as a daemon has them, and how well that foresees.

The states are those of adaptive/actuator/native/burst.c. A hold is launched some time after it is due, and once the
actuator is awake, which takes a while after an event. What is foretold it awaits awake.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from gpsched.adaptive.hints.adapter import EventAdapter
from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.leads import quantile
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.model import Choice, Trigger
from gpsched.adaptive.hints.observations import (
    UNKNOWN,
    Copy,
    Launch,
    Observation,
    SyncEnter,
    SyncReturn,
    Tick,
    Wake,
    WakeKind,
)
from gpsched.adaptive.hints.outputs import BurstBegan, ChoiceChanged, Output, Reserve
from gpsched.adaptive.hints.replay import by_process
from gpsched.adaptive.trace import Trace


EARLY_US = 200.0
NEED_US = 190.8  # an H200's hold, as calibrated
WAKE_US, LAUNCH_US = 10.0, 40.0  # their medians
READ_EVERY_US = 100_000.0  # events of a service with plans wake nobody
PLANNING_US = 5_000.0
WARM_UP = 50  # bursts within which everything must have been learned
_TRIGGERS = 4
_FORETOLD = (WakeKind.CLOCK, WakeKind.BURST_END)
INF = math.inf


def wake(rng: random.Random) -> float:
    """From an event until the actuator acts on it: as measured on an H200, p50 4 to 16, p99 96 to 290 µs."""
    asleep = rng.uniform(60.0, 200.0) if rng.random() < 0.03 else 0.0
    return rng.lognormvariate(math.log(WAKE_US), 0.5) + asleep


def launch(rng: random.Random) -> float:
    """From there until the hold is launched, with its tail."""
    late = rng.uniform(20.0, 150.0) if rng.random() < 0.01 else 0.0
    return rng.lognormvariate(math.log(LAUNCH_US), 0.2) + late


def usual_and_most(reaction: Callable[[random.Random], float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    rng = random.Random(0)
    ordered = sorted(reaction(rng) for _ in range(20_000))
    return quantile(ordered, 50), quantile(ordered, 99)


def reckoned() -> Costs:
    """What a daemon reckons with once it has seen many reactions, to events and to what was awaited."""
    sudden, sudden_most = usual_and_most(lambda rng: wake(rng) + launch(rng))
    awaited, awaited_most = usual_and_most(launch)
    return Costs(
        switch_us=180.8,
        residual_us=15.0,
        need_us=NEED_US + awaited,
        late_us=165.8,
        spread_us=awaited_most - awaited,
        wake_us=sudden - awaited,
        wake_most_us=sudden_most - awaited_most,
    )


COSTS = reckoned()
ALLOWED_US = EARLY_US - NEED_US + COSTS.lead_us  # the natural lead that allows to be early


@dataclass
class Judged:
    """µs. ``margins``: from the hold to the launch of each burst, -1 where nothing was reserved."""

    launches: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    reservations: int = 0
    vain: int = 0
    waste_us: float = 0.0

    def early(self, allowed: set[float]) -> list[bool]:
        """Of the bursts that were counted and allowed it, by their launches: which were reserved early."""
        pairs = list(zip(self.launches, self.margins, strict=True))[WARM_UP:]
        return [margin >= EARLY_US for launch, margin in pairs if launch in allowed]

    @property
    def counted_us(self) -> float:
        return self.launches[-1] - self.launches[WARM_UP]


class Actuator:
    """One plan's state machine. ``NEED_US`` of each reservation are not wasted: the switch's own."""

    def __init__(self, rng: random.Random, judged: Judged) -> None:
        self._rng, self._judged = rng, judged
        self.choice = Choice("learning")
        self._phase = "idle"
        self._start = self._begin = self._until = self._quiet = INF
        self._awake = 0.0
        self._launched = self._again = False
        self._inside = 0
        self._ahead: float | None = None

    def take(self, observation: Observation) -> None:
        now = observation.time_us
        self._pass(now)
        if (trigger := self._trigger(observation)) is not None:
            self._announce(now, now + trigger.offset_us, isinstance(observation, Wake), now + wake(self._rng))
        if isinstance(observation, SyncEnter):
            self._quiet, self._inside = INF, self._inside + 1
        elif isinstance(observation, Launch):
            self._quiet = INF
            self._launch(now)
        elif isinstance(observation, SyncReturn):
            self._inside = max(self._inside - 1, 0)
            if self._phase == "reserved" and self._launched and not self._inside:
                self._end_or_wait(now)

    def first_launch(self, now: float) -> None:
        """Judge a burst as it begins, before the launch is taken."""
        self._pass(now)
        reserved = self._phase == "reserved" and self._begin < now
        self._judged.launches.append(now)
        self._judged.margins.append(now - self._begin if reserved else -1.0)
        self._judged.choices.append(self.choice)
        if reserved and not self._launched and self._counting:
            self._judged.waste_us += max(now - self._begin - NEED_US, 0.0)

    @property
    def _counting(self) -> bool:
        return len(self._judged.launches) > WARM_UP

    def _trigger(self, observation: Observation) -> Trigger | None:
        wake = observation
        if isinstance(observation, Copy) and observation.to_device:
            wake = Wake(observation.time_us, observation.tid, WakeKind.COPY_H2D, UNKNOWN, observation.size)
        if not isinstance(wake, Wake):
            return None
        triggers = (t for t in self.choice.triggers[:_TRIGGERS] if t.matcher.kind not in _FORETOLD)
        return next((trigger for trigger in triggers if trigger.matcher.matches(wake)), None)

    def foretell(self, now: float, start: float) -> None:
        """The daemon says when; the actuator keeps one such time for when the present burst is over."""
        self._pass(now)
        if self._phase != "idle" and start > now:
            self._ahead = start
        else:
            self._announce(now, start, request=True)

    def _announce(self, now: float, start: float, request: bool, awake: float = 0.0) -> None:
        if start + self._patience < now:
            return  # it tells of a burst that is over
        if self._phase == "reserved":
            self._again = request
            return
        if self._phase == "waiting":
            if start < self._start:
                self._start, self._awake = start, awake
        else:
            self._phase, self._start, self._launched, self._again = "waiting", start, False, False
            self._awake = awake
        self._pass(now)

    def _pass(self, now: float) -> None:
        if self._phase == "idle" and self._ahead is not None:
            start, self._ahead = self._ahead, None
            self._announce(now, start, request=False)
        if self._phase == "waiting" and self._start <= now:
            self._phase, self._begin = "reserved", max(self._start, self._awake) + launch(self._rng)
            self._expect(self._start)
            self._judged.reservations += self._counting
        if self._phase == "reserved" and self._until <= now:
            self._judged.vain += self._counting
            self._judged.waste_us += self._counting * max(self._until - self._begin - NEED_US, 0.0)
            self._end()
        if self._phase == "reserved" and self._quiet <= now:
            self._end()

    def _expect(self, start: float) -> None:
        self._launched = self._again = False
        self._until = start + self._patience

    @property
    def _patience(self) -> float:
        waits = [trigger.limit_us - trigger.offset_us for trigger in self.choice.triggers]
        return min(max(waits, default=INF), self.choice.burst_limit_us)

    def _launch(self, now: float) -> None:
        if self._phase == "waiting":
            self._end()  # missed
        elif self._phase == "reserved":
            self._launched, self._again, self._until = True, False, INF

    def _end_or_wait(self, now: float) -> None:
        if self.choice.quiet_us:
            self._quiet = now + self.choice.quiet_us
        else:
            self._end()

    def _end(self) -> None:
        self._phase = "idle"
        self._start = self._begin = self._until = self._quiet = INF


def judge(
    learner: HintLearner,
    observed: list[Observation],
    launches: Iterable[float],
    *,
    handling_us: float = 60.0,
    seed: int = 1,
) -> Judged:
    """Let the learner see the observations in batches, and an actuator act by what it chose so far."""
    judged = Judged()
    actuator = Actuator(random.Random(seed), judged)
    first = set(launches)
    batches = in_batches(learner, observed, handling_us)
    pending = next(batches, None)
    for observation in observed:
        while pending is not None and pending[0] <= observation.time_us:
            _follow(actuator, *pending)
            pending = next(batches, None)
        if isinstance(observation, Launch) and observation.time_us in first:
            actuator.first_launch(observation.time_us)
        actuator.take(observation)
    return judged


def _follow(actuator: Actuator, now: float, output: Output) -> None:
    if isinstance(output, ChoiceChanged):
        actuator.choice = output.choice
    elif isinstance(output, Reserve) and output.trigger.kind in _FORETOLD and _foretells(actuator.choice):
        actuator.foretell(now, output.start_us)


def _foretells(choice: Choice) -> bool:
    return any(trigger.matcher.kind in _FORETOLD for trigger in choice.triggers)


def in_batches(learner: HintLearner, observed: list[Observation], handling_us: float) -> Iterator[tuple[float, Output]]:
    """What follows, and when. Choices are in force once the batch is through; who foretells is woken by each event."""
    now, place, in_force = observed[0].time_us, 0, learner.chosen()
    while place < len(observed):
        read_us = now
        while place < len(observed) and observed[place].time_us <= read_us:
            now += handling_us
            for output in learner.observe(observed[place]):
                if not isinstance(output, ChoiceChanged):
                    yield now, output
            place += 1
        for output in learner.observe(Tick(read_us)):
            if not isinstance(output, ChoiceChanged):
                yield now, output
        if learner.chosen().generation != in_force.generation:
            now, in_force = now + PLANNING_US, learner.chosen()
            yield now, ChoiceChanged(in_force)
        then = now + READ_EVERY_US
        if _foretells(in_force) and place < len(observed):
            then = min(max(now, observed[place].time_us), then)
        now = then


def first_launches(observed: list[Observation]) -> list[float]:
    """Where bursts begin, as a learner that sees each event at once has it."""
    learner = HintLearner()
    return [output.time_us for each in observed for output in learner.observe(each) if isinstance(output, BurstBegan)]


def observations(part: Trace) -> list[Observation]:
    """What the one service of a trace did, in order of time, on the GPU's clock."""
    adapter = EventAdapter()
    service = max(by_process(part).values(), key=len)
    return [observation for event in service for observation in adapter.convert(event)]
