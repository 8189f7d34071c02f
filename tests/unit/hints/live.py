"""Events as a daemon has them: read in batches, each of which takes time to handle while more come."""

from collections.abc import Iterator

from gpsched.adaptive.hints.adapter import EventAdapter
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Observation, Tick
from gpsched.adaptive.hints.outputs import Output
from gpsched.adaptive.hints.replay import by_process
from gpsched.adaptive.trace import Trace


EVERY_US = 20_000.0  # between reads of events that wake nobody


def observations(part: Trace) -> list[Observation]:
    """What the one service of a trace did, in order of time, on the GPU's clock."""
    adapter = EventAdapter()
    service = max(by_process(part).values(), key=len)
    return [observation for event in service for observation in adapter.convert(event)]


def in_batches(
    learner: HintLearner, observed: list[Observation], *, handling_us: float
) -> Iterator[tuple[float, Output]]:
    """Feed the learner as the daemon's loop does, ``handling_us`` an event; yield when something follows, and what."""
    now, place = observed[0].time_us, 0
    while place < len(observed):
        read_us = now
        while place < len(observed) and observed[place].time_us <= read_us:
            now += handling_us
            yield from ((now, output) for output in learner.observe(observed[place]))
            place += 1
        yield from ((now, output) for output in learner.observe(Tick(read_us)))
        now += EVERY_US
