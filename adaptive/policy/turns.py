"""How long each of several best-effort processes has the GPU in turn: in proportion to its weight.

A tenant's weight is shared by its processes, so that starting more of them gains nothing. The actuator passes on the
turn of a process that pauses, and shortens all turns where somebody would wait for longer than ``longest_wait``. One
that has launched nothing for a while gets the shortest turn, in case its pauses are not seen; its first launch brings
its turn back.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


SHORTEST_US = 5_000  # ten times what passing a turn on takes
LONGEST_US = 1_000_000
_WAIT = 0.65  # of a round, reservations included: they stretch it
TOGETHER_US = 200  # slices of those that take no turns: in shorter ones they starve each other


@dataclass(frozen=True, slots=True)
class Participant:
    """A best-effort process, whose it is, and its weight among those of its tenant."""

    pid: int
    tenant: str
    weight: float = 1.0


def shares(participants: Sequence[Participant], tenants: Mapping[str, float]) -> dict[int, float]:
    """Return each one's share, 0 to 1; tenants without a weight weigh 1."""
    of_tenant: dict[str, float] = {}
    for each in participants:
        of_tenant[each.tenant] = of_tenant.get(each.tenant, 0.0) + each.weight
    total = sum(tenants.get(name, 1.0) for name in of_tenant)
    return {
        each.pid: tenants.get(each.tenant, 1.0) / total * each.weight / of_tenant[each.tenant] for each in participants
    }


def turns(
    participants: Sequence[Participant], tenants: Mapping[str, float], turn_us: int, idle: Collection[int] = ()
) -> tuple[int, ...]:
    """Return the turns in µs, in the order of the participants; those of two last ``turn_us`` on average.

    More than two share what two would have, so that nobody waits longer. The smallest share gets no less than the
    shortest turn: the others' turns are longer then, up to a second each.
    """
    busy = [each for each in participants if each.pid not in idle]
    if len(busy) < 2:  # nobody to be in proportion to
        return tuple(turn_us if each in busy else SHORTEST_US for each in participants)
    parts = shares(busy, tenants)
    round_us = max(2 * turn_us, SHORTEST_US / min(parts.values()))
    lengths = {pid: min(LONGEST_US, max(SHORTEST_US, round(part * round_us))) for pid, part in parts.items()}
    return tuple(lengths.get(each.pid, SHORTEST_US) for each in participants)


def longest_wait(lengths: Sequence[int], *, alone: bool) -> int:
    """Return for how long, in µs by the clock on the wall, a turn may wait for these.

    Beside latency-critical work, whose reservations would stretch it; alone nobody waits for longer than a round.
    """
    return round(sum(lengths) * (1.0 if alone else _WAIT))
