"""Turns what was decided for each process into the actuator's plans: pure, no I/O."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from gpsched.adaptive.actuator.plans import GpuPlan, Mechanism, Member, Plan, PlanSet, Role, Trigger
from gpsched.adaptive.config import Reservations
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.hints.model import Trigger as Hint
from gpsched.adaptive.hints.observations import WakeKind
from gpsched.adaptive.probes.events import Call, Kind
from gpsched.adaptive.workloads.registry import Group, Process


Gpu = int | None

_MECHANISMS = {"reserve": Mechanism.DISABLE | Mechanism.START_ON_LAUNCH, "hold": Mechanism.HOLD}
#: Made by the daemon from what the learner predicts; the actuator is told by ``announce``.
ANNOUNCED = frozenset({WakeKind.CLOCK, WakeKind.EXPLICIT, WakeKind.BURST_END})
_MAX_TRIGGERS = 4


def sharing(processes: Iterable[Process]) -> dict[Gpu, tuple[list[Process], list[Process]]]:
    """Return the latency-critical and the best-effort processes of each GPU on which a best-effort one computes."""
    shared: dict[Gpu, tuple[list[Process], list[Process]]] = {}
    for process in processes:
        for gpu in process.gpus():
            shared.setdefault(gpu, ([], []))[process.class_ == "be"].append(process)
    return {gpu: (lc, be) for gpu, (lc, be) in shared.items() if be}


def build(
    processes: Iterable[Process],
    choices: Mapping[int, Choice],
    settings: Reservations,
    tuned: Mapping[Gpu, Reservations] = MappingProxyType({}),
) -> PlanSet:
    """Return plans for every GPU on which best-effort work gives way to others, or takes turns.

    ``tuned``: settings of single GPUs, in place of ``settings``.
    All groups whose slices were changed are members, so that the actuator restores them should the daemon be killed.
    """
    gpus: list[GpuPlan] = []
    members: list[Member] = []
    plans: list[Plan] = []
    for gpu, (lc, be) in sharing(processes).items():
        if not lc and len(be) < 2:
            continue
        index = len(gpus)
        own = tuned.get(gpu, settings)
        gpus.append(GpuPlan(_turns(be, own), 1.0 - own.be_floor))
        for turn, process in enumerate(be):
            members += _members(process, gpu, Role.BE, index, turn)
        for process in lc:
            members += _members(process, gpu, Role.LC, index, 0)
            if process.mechanism in _MECHANISMS and process.pid in choices:
                plans.append(_plan(process, choices[process.pid], index, own))
    return PlanSet(tuple(gpus), tuple(members), tuple(plans))


def _turns(be: list[Process], settings: Reservations) -> tuple[int, ...]:
    """Where best-effort work has but a share of the time, the rest is a turn of nobody."""
    turns = tuple(settings.turn_us for _ in be)
    idle = round(sum(turns) * (1.0 / settings.be_share - 1.0))
    if len(be) < 2 and not idle:
        return ()
    return (*turns, idle) if idle else turns


def _members(process: Process, gpu: Gpu, role: Role, index: int, turn: int) -> list[Member]:
    groups: list[Group] = [group for group in process.compute_groups() if group.group.gpu_id == gpu]
    return [Member(process.pid, group.group, role, index, turn, group.original_us or 0) for group in groups]


def _plan(process: Process, choice: Choice, index: int, settings: Reservations) -> Plan:
    limit = min(choice.burst_limit_us, settings.limit_us)
    waits = [hint.limit_us - hint.offset_us for hint in choice.triggers]
    return Plan(
        pid=process.pid,
        gpu=index,
        triggers=tuple(trigger for hint in choice.triggers for trigger in _triggers(hint, settings.offset_shift_us))[
            :_MAX_TRIGGERS
        ],
        mechanism=_MECHANISMS[process.mechanism],
        limit_us=round(limit),
        launch_within_us=round(min(limit, max(waits, default=limit))),
        quiet_us=round(choice.quiet_us) + settings.quiet_extra_us,
        release_calls=frozenset({Call.GRAPH_LAUNCH}),  # one launch is the burst; else a sync tells that all is queued
        max_per_second=settings.max_per_second,
    )


def _triggers(hint: Hint, shift_us: int) -> list[Trigger]:
    matcher, offset = hint.matcher, max(0, round(hint.offset_us) + shift_us)
    if matcher.kind in ANNOUNCED:
        return [Trigger(kind=Kind.HINT, offset_us=0)]
    if matcher.kind == WakeKind.FIRST_LAUNCH:
        return [Trigger(kind=Kind.CUDA_ENTER, call=call) for call in (Call.LAUNCH, Call.GRAPH_LAUNCH)]
    size = _bytes(matcher.sizes) if matcher.sizes else None
    if matcher.kind == WakeKind.COPY_H2D:
        return [Trigger(Kind.CUDA_ENTER, Call.COPY_H2D, matcher.tid, None, size, offset)]
    return [Trigger(Kind.WAKE, matcher.kind, matcher.tid, matcher.descriptor, size, offset)]  # type: ignore[arg-type]


def _bytes(buckets: tuple[int, int]) -> tuple[int, int]:
    """Buckets are numbers of bits: bucket 3 is 4 to 7 bytes."""
    low, high = buckets
    return (1 << (low - 1) if low else 0, (1 << high) - 1)
