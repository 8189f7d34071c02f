"""What is learned about the bursts of latency-critical processes: one learner each, fed with the kernel's events."""

from collections.abc import Iterator, Sequence

from gpsched.adaptive.hints.adapter import EventAdapter
from gpsched.adaptive.hints.aside import Learned, SetAside
from gpsched.adaptive.hints.costs import Costs
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.hints.observations import Observation
from gpsched.adaptive.hints.outputs import Output
from gpsched.adaptive.probes.events import Event
from gpsched.adaptive.workloads.registry import Process, Registry


class Learners:
    """A learner is made when its process is first asked for; ``costs`` are those it begins with."""

    def __init__(self, registry: Registry, costs: Costs) -> None:
        self._registry, self._costs = registry, costs
        self._learned: dict[int, Learned] = {}
        self._aside = SetAside()

    def of(self, pid: int) -> HintLearner | None:
        """Return the learner of a latency-critical process; None for others."""
        learned = self._of(pid)
        return learned[0] if learned else None

    def known(self, pid: int) -> HintLearner | None:
        """Return the learner of a process that has one already."""
        learned = self._learned.get(pid)
        return learned[0] if learned else None

    def choices(self) -> dict[int, Choice]:
        """Return what is in force for each process that has a learner."""
        return {pid: learner.chosen() for pid, (learner, _) in self._learned.items()}

    def observe(self, event: Event) -> Sequence[Output] | None:
        """Feed an event to the learner of its process; return what follows, None where there is no learner."""
        learned = self._learned.get(event.pid) or self._of(event.pid)
        if learned is None:
            return None
        learner, adapter = learned
        observations = adapter.convert(event)
        if len(observations) == 1:
            return learner.observe(observations[0])
        return [output for observation in observations for output in learner.observe(observation)]

    def tell(self, pid: int, observation: Observation) -> Sequence[Output]:
        """Feed what concerns one process, if it has a learner; return what follows."""
        learner = self.known(pid)
        return learner.observe(observation) if learner else ()

    def tell_all(self, observation: Observation) -> Iterator[tuple[int, Output]]:
        """Feed what concerns every process (time passes, events were lost); yield what follows, and for whom."""
        for pid, (learner, _) in list(self._learned.items()):
            for output in learner.observe(observation):
                yield pid, output

    def set_aside(self, process: Process) -> None:
        """Keep what was learned about a process that is left alone, for it may soon be managed again."""
        if process.pid in self._learned:
            self._aside.put(process.pid, process.info.start_ticks, self._learned[process.pid])

    def forget(self, pid: int) -> None:
        """The process ended or is left alone."""
        self._learned.pop(pid, None)

    def _of(self, pid: int) -> Learned | None:
        if pid not in self._learned:
            process = self._registry.get(pid)
            if process is None or process.class_ != "lc":
                return None
            kept = self._aside.take(pid, process.info.start_ticks)
            self._learned[pid] = kept or (HintLearner(pid=pid, costs=self._costs), EventAdapter())
        return self._learned[pid]
