"""What has shown itself about the processes of the node, and how several are weighed: input of plans and slices."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gpsched.adaptive.config import Policy
from gpsched.adaptive.policy.order import Contender, Means, Standing, standings
from gpsched.adaptive.policy.turns import Participant
from gpsched.adaptive.workloads.registry import Process


Gpu = int | None


@dataclass(frozen=True)
class Situation:
    """Burst lengths in µs by pid; GPUs whose services leave less than the floor (and that floor); idle best-effort.

    ``together``: slices in µs on GPUs whose several best-effort processes run together instead of in turns.
    ``control_us``: how long keeping a process off the GPU takes; ``switch_us``: a change of context. ``actuator``:
    whether there is one, so that crowded GPUs can have breaks.
    """

    policy: Policy = field(default_factory=Policy)
    tenants: Mapping[str, float] = field(default_factory=dict)
    burst_us: Mapping[int, float] = field(default_factory=dict)
    crowded: Mapping[Gpu, float] = field(default_factory=dict)
    idle: Collection[int] = frozenset()
    together: Mapping[Gpu, int] = field(default_factory=dict)
    control_us: float = 700.0
    switch_us: float = 190.0
    actuator: bool = True

    def standings(
        self, lc: Sequence[Process], *, best_effort: bool, first_us: int = 1_000_000, gives_way_us: int = 1
    ) -> Mapping[int, Standing]:
        """Return the order of the latency-critical processes of a GPU; empty when there are fewer than two."""
        if len(lc) < 2:
            return {}
        members = Counter(each.family for each in lc)  # a service gains no weight by more processes
        contenders = [
            Contender(
                each.pid,
                each.slo_us,
                self.burst_us.get(each.pid, 0.0),
                each.priority,
                each.weight / members[each.family],
            )
            for each in lc
        ]
        means = Means(first_us, gives_way_us, self.control_us)
        return standings(contenders, self.policy, means, best_effort=best_effort)


def participants(be: Sequence[Process]) -> list[Participant]:
    """Return best-effort processes as those who take turns."""
    return [Participant(each.pid, each.tenant, each.weight) for each in be]


def refused_on(processes: Collection[Process]) -> frozenset[Gpu]:
    """Return the GPUs on which a process computes that was not admitted and is left alone."""
    return frozenset(gpu for each in processes if each.stand_in == "unmanaged" for gpu in each.gpus())


def on_gpus(processes: Collection[Process]) -> dict[Gpu, tuple[list[Process], list[Process]]]:
    """Return the processes that are treated as latency-critical and as best-effort on each GPU."""
    found: dict[Gpu, tuple[list[Process], list[Process]]] = {}
    for process in processes:
        if process.runs_as in ("lc", "be"):
            for gpu in process.gpus():
                found.setdefault(gpu, ([], []))[process.runs_as == "be"].append(process)
    return found
