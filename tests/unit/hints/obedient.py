"""An independent actuator: does what the learner's outputs say and measures the result against the truth."""

from dataclasses import dataclass, field

from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Observation, Tick
from gpsched.adaptive.hints.outputs import ChoiceChanged, Claimed, Output, Release, Reserve
from tests.unit.hints.streams import Stream


@dataclass
class Quality:
    """What was measured after the warm-up. µs."""

    bursts: int = 0
    possible: int = 0
    in_time: int = 0
    reserved: int = 0
    false: int = 0
    waste_us: float = 0.0
    first_us: float = 0.0
    last_us: float = 0.0
    margins: list[float] = field(default_factory=list)

    @property
    def in_time_share(self) -> float:
        return self.in_time / max(self.possible, 1)

    @property
    def false_share(self) -> float:
        return self.false / max(self.false + self.reserved, 1)

    @property
    def waste_share(self) -> float:
        return self.waste_us / max(self.last_us - self.first_us, 1.0)

    def __str__(self) -> str:
        return (
            f"{self.bursts} bursts, in time {self.in_time_share:.2%} of {self.possible}, "
            f"false {self.false_share:.2%}, waste {self.waste_share:.2%}"
        )


class Actuator:
    """Keeps the reservations that the outputs ask for; ``need`` µs of each are not wasted: the mechanism's own."""

    def __init__(self, need: float = 200.0, switch: float = 190.0) -> None:
        self.need, self.switch = need, switch
        self.quality = Quality()
        self.counting = False
        self._windows: list[tuple[float, float]] = []

    def obey(self, output: Output) -> None:
        if isinstance(output, Reserve):
            self._windows.append((output.start_us, output.until_us))
        elif isinstance(output, Claimed):
            self._windows.clear()
        elif isinstance(output, Release):
            self.pass_time(output.time_us)

    def pass_time(self, now: float) -> None:
        """Reservations whose time is over were false, unless another one that overlaps goes on."""
        gone = [window for window in self._windows if window[1] < now]
        self._windows = [window for window in self._windows if window[1] >= now]
        if not gone:
            return
        start, until = min(start for start, _ in gone), max(until for _, until in gone)
        if any(start_ <= until for start_, _ in self._windows):
            self._windows = [(min(start, start_), until_) for start_, until_ in self._windows]
        elif self.counting:
            self.quality.false += 1
            self.quality.waste_us += max(until - start - self.need, 0.0) + self.switch

    def launch(self, now: float, lead: float, gap: float) -> None:
        self.pass_time(now)
        margin = max((now - start for start, _ in self._windows), default=-1.0)
        self._windows.clear()
        if self.counting:
            self._count(now, margin, lead, gap)

    def _count(self, now: float, margin: float, lead: float, gap: float) -> None:
        quality = self.quality
        quality.first_us = quality.first_us or now
        quality.last_us = now
        quality.bursts += 1
        quality.possible += lead >= self.need + 30.0
        quality.in_time += margin >= self.need and lead >= self.need + 30.0
        quality.reserved += margin >= 0.0
        quality.waste_us += max(min(margin, gap) - self.need, 0.0)
        quality.margins.append(margin)


def run(
    learner: HintLearner, stream: Stream, *, warm_up: int = 50, need: float = 200.0, tick_us: float = 4_000.0
) -> Quality:
    """Feed the stream, with ticks where it is idle; measure from the burst number ``warm_up`` on."""
    actuator = Actuator(need)
    truths = {truth.launch_us: truth for truth in stream.bursts}
    begun, ended = 0, 0.0
    for observation in with_ticks(stream.sorted(), tick_us):
        truth = truths.pop(observation.time_us, None)
        if truth is not None:
            actuator.counting = begun >= warm_up
            begun += 1
            actuator.launch(truth.launch_us, truth.lead_us, truth.launch_us - ended)
            ended = truth.end_us
        for output in learner.observe(observation):
            actuator.obey(output)
    return actuator.quality


def with_ticks(observations: list[Observation], every: float) -> list[Observation]:
    """Insert Ticks wherever nothing happens for ``every`` µs."""
    result: list[Observation] = []
    for observation in observations:
        while result and observation.time_us - result[-1].time_us > every:
            result.append(Tick(result[-1].time_us + every))
        result.append(observation)
    return result


def generations(outputs: list[Output]) -> list[int]:
    return [output.choice.generation for output in outputs if isinstance(output, ChoiceChanged)]
