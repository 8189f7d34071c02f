"""Repeats what learners make of a trace, as if its events came now: same events, same choices."""

from collections import defaultdict

from msgspec.structs import replace

from gpsched.adaptive.hints.adapter import EventAdapter
from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Tick
from gpsched.adaptive.probes.events import CudaEvent, Event, HintEvent, WakeEvent
from gpsched.adaptive.trace import Trace


_TICK_US = 4000.0


def replay(trace: Trace, costs: Costs = LEVELS["hold"]) -> dict[int, HintLearner]:
    """Return a learner for each process of which the trace has a burst. ``costs`` are µs of the GPU's clock."""
    learners: dict[int, HintLearner] = {}
    for pid, events in by_process(trace).items():
        learner, adapter = HintLearner(costs=costs, pid=pid), EventAdapter()
        now = 0.0
        for event in events:
            for observation in adapter.convert(event):
                while now and observation.time_us - now > _TICK_US:
                    now += _TICK_US
                    learner.observe(Tick(now))
                learner.observe(observation)
                now = max(now, observation.time_us)
        if learner.report().outcome.bursts:
            learners[pid] = learner
    return learners


def by_process(trace: Trace) -> dict[int, list[Event]]:
    """Return what learners listen to, by pid, on the GPU's clock."""
    found: dict[int, list[Event]] = defaultdict(list)
    for event in trace.events:
        if isinstance(event, CudaEvent | WakeEvent | HintEvent):
            scaled = {"time_ns": round(event.time_ns / trace.header.scale)}
            if isinstance(event, HintEvent):
                scaled["in_us"] = round(event.in_us / trace.header.scale)
            found[event.pid].append(replace(event, **scaled))
    return found
