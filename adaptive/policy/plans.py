"""Turns what was decided for each process into the actuator's plans: pure, no I/O."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from gpsched.adaptive.actuator.plans import GpuPlan, Mechanism, Member, Plan, PlanSet, Role, Trigger
from gpsched.adaptive.config import Reservations
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.hints.model import Trigger as Hint
from gpsched.adaptive.hints.observations import WakeKind
from gpsched.adaptive.policy import floor
from gpsched.adaptive.policy.order import Standing
from gpsched.adaptive.policy.situation import Situation, on_gpus, participants, refused_on
from gpsched.adaptive.policy.turns import longest_wait, turns
from gpsched.adaptive.probes.events import Call, Kind
from gpsched.adaptive.workloads.registry import Group, Process


Gpu = int | None

_MECHANISMS = {"reserve": Mechanism.DISABLE | Mechanism.START_ON_LAUNCH, "hold": Mechanism.HOLD}
#: Made by the daemon from what the learner predicts; the actuator is told by ``announce``.
ANNOUNCED = frozenset({WakeKind.CLOCK, WakeKind.BURST_END})
_MAX_TRIGGERS = 4


_FIRST_LAUNCH = tuple(Trigger(kind=Kind.CUDA_ENTER, call=call) for call in (Call.LAUNCH, Call.GRAPH_LAUNCH))
_ONE = Standing(None, "")


def sharing(processes: Iterable[Process]) -> dict[Gpu, tuple[list[Process], list[Process]]]:
    """Return the latency-critical and the best-effort processes of each GPU on which a best-effort one computes."""
    return {gpu: (lc, be) for gpu, (lc, be) in on_gpus(list(processes)).items() if be}


def ordered(processes: Collection[Process], situation: Situation) -> frozenset[int]:
    """Return the latency-critical processes whose reservations keep others of them off."""
    found: set[int] = set()
    for lc, be in on_gpus(processes).values():
        order = situation.standings(lc, best_effort=bool(be))
        found |= {pid for pid, standing in order.items() if standing.keeps_off}
    return frozenset(found)


def build(
    processes: Iterable[Process],
    choices: Mapping[int, Choice],
    settings: Reservations,
    tuned: Mapping[Gpu, Reservations] = MappingProxyType({}),
    situation: Situation | None = None,
) -> PlanSet:
    """Return plans for every GPU on which work gives way to other work, or takes turns.

    ``tuned``: settings of single GPUs, in place of ``settings``.
    All groups whose slices were changed are members, so that the actuator restores them should the daemon be killed.
    """
    gpus: list[GpuPlan] = []
    members: list[Member] = []
    plans: list[Plan] = []
    situation = situation or Situation()
    processes = list(processes)
    refused = refused_on(processes)
    for gpu, (lc, be) in on_gpus(processes).items():
        order = situation.standings(lc, best_effort=bool(be))
        if not (_is_needed(lc, be, order) or (lc and gpu in refused)):
            continue
        index = len(gpus)
        own = tuned.get(gpu, settings)
        crowded = bool(lc and be) and gpu in situation.crowded
        slo_us = min((process.slo_us for process in lc if process.slo_us is not None), default=None)
        rest = floor.breaks(situation.crowded[gpu], own.break_us, slo_us) if crowded else (0, 0)
        each = () if gpu in situation.together else _turns(be, own, situation, alone=not lc)
        gpus.append(GpuPlan(each, 1.0 - own.be_floor if be else None, *rest, _wait(each, be, alone=not lc)))
        for turn, process in enumerate(be):
            members += _members(process, gpu, Role.BE, index, turn)
        meet = any(standing.keeps_off for standing in order.values())
        for process in lc:
            members += _members(process, gpu, Role.LC, index, 0, waits=meet or crowded)
            if meet or (process.mechanism in _MECHANISMS and process.pid in choices):
                choice, standing = choices.get(process.pid, Choice("learning")), order.get(process.pid, _ONE)
                plans.append(_plan(process, choice, index, own, standing))
    return PlanSet(tuple(gpus), tuple(members), tuple(plans))


def _is_needed(lc: list[Process], be: list[Process], order: Mapping[int, Standing]) -> bool:
    """Whether slices are changed on this GPU, or anything is ever to be disabled."""
    if be:
        return bool(lc) or len(be) > 1
    return any(standing.slice_us is not None or standing.keeps_off for standing in order.values())


def _turns(be: list[Process], settings: Reservations, situation: Situation, *, alone: bool) -> tuple[int, ...]:
    """Where best-effort work has but a share of the time, the rest is a turn of nobody."""
    turn_us = settings.alone_turn_us if alone else settings.turn_us
    each = turns(participants(be), situation.tenants, turn_us, situation.idle)
    nobody = round(sum(each) * (1.0 / settings.be_share - 1.0))
    if len(be) < 2 and not nobody:
        return ()
    return (*each, nobody) if nobody else each


def _wait(each: tuple[int, ...], be: list[Process], *, alone: bool) -> int:
    """Where a turn is nobody's, best-effort work is to wait: that has no bound."""
    return longest_wait(each, alone=alone) if len(each) == len(be) else 0


def _members(process: Process, gpu: Gpu, role: Role, index: int, turn: int, *, waits: bool = False) -> list[Member]:
    groups: list[Group] = [group for group in process.compute_groups() if group.group.gpu_id == gpu]
    return [Member(process.pid, group.group, role, index, turn, group.original_us or 0, waits) for group in groups]


def _plan(process: Process, choice: Choice, index: int, settings: Reservations, standing: Standing) -> Plan:
    """A process without reservations of its own has one from its first launch on, for its place in the order."""
    reserves = process.mechanism in _MECHANISMS
    choice = choice if reserves else Choice("learning", quiet_us=choice.quiet_us)
    mechanism = _MECHANISMS.get(process.mechanism, Mechanism.START_ON_LAUNCH)
    if standing.keeps_off and not process.restraint:
        mechanism |= Mechanism.ORDER
    if choice.triggers and all(hint.matcher.idle or hint.matcher.kind in ANNOUNCED for hint in choice.triggers):
        mechanism |= Mechanism.WHEN_IDLE
    triggers = [trigger for hint in choice.triggers for trigger in _triggers(hint, settings.offset_shift_us)]
    limit = min(choice.burst_limit_us, settings.limit_us)
    waits = [hint.limit_us - hint.offset_us for hint in choice.triggers]
    return Plan(
        pid=process.pid,
        gpu=index,
        triggers=tuple(triggers[:_MAX_TRIGGERS]) if reserves else _FIRST_LAUNCH,
        mechanism=mechanism,
        limit_us=round(limit),
        launch_within_us=round(min(limit, max(waits, default=limit))),
        quiet_us=round(choice.quiet_us) + settings.quiet_extra_us,
        max_per_second=settings.max_per_second,
        rank=standing.rank,
        due_us=standing.due_us,
    )


def _triggers(hint: Hint, shift_us: int) -> list[Trigger]:
    matcher, offset = hint.matcher, max(0, round(hint.offset_us) + shift_us)
    if matcher.kind in ANNOUNCED:
        return [Trigger(kind=Kind.HINT, offset_us=0)]
    if matcher.kind == WakeKind.EXPLICIT:  # it counts from the announced time, and is negative
        return [Trigger(kind=Kind.HINT, before_us=max(0, -round(hint.offset_us) - shift_us))]
    if matcher.kind == WakeKind.FIRST_LAUNCH:
        return list(_FIRST_LAUNCH)
    size = _bytes(matcher.sizes) if matcher.sizes else None
    if matcher.kind == WakeKind.COPY_H2D:
        return [Trigger(Kind.CUDA_ENTER, Call.COPY_H2D, matcher.tid, None, size, offset)]
    return [Trigger(Kind.WAKE, matcher.kind, matcher.tid, matcher.descriptor, size, offset)]  # type: ignore[arg-type]


def _bytes(buckets: tuple[int, int]) -> tuple[int, int]:
    """Buckets are numbers of bits: bucket 3 is 4 to 7 bytes."""
    low, high = buckets
    return (1 << (low - 1) if low else 0, (1 << high) - 1)
