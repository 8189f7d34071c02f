"""What the daemon wants of the actuator: members (channel groups), plans for latency-critical processes, turns.

Durations are µs. Policy builds a ``PlanSet``; ``encode`` turns it into the shared structure.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

from gpsched.adaptive.actuator import abi
from gpsched.adaptive.actuator.errors import PlanLimitError
from gpsched.adaptive.driver.types import ChannelGroup
from gpsched.adaptive.probes.events import Call, Kind


class Role(IntEnum):
    """``enum ga_role``."""

    LC = 1
    BE = 2


class Mechanism(IntFlag):
    """``enum ga_mechanism``: what a reservation does; may be combined. NONE observes only."""

    NONE = 0
    DISABLE = 0x1
    DISABLE_SCHEDULING = 0x2
    PREEMPT = 0x4
    RESTART = 0x8
    HOLD = 0x10
    START_ON_LAUNCH = 0x20
    ORDER = 0x40
    WHEN_IDLE = 0x80


@dataclass(frozen=True, slots=True)
class Member:
    """One compute channel group on a GPU.

    ``gpu`` is the index of the GPU in ``PlanSet.gpus``, ``turn`` the turn in which a best-effort group runs,
    ``original_us`` the timeslice to restore should the daemon die (0: it was not changed). ``waits``: it is
    latency-critical and may be kept off, for another (``Mechanism.ORDER``) or in a break.
    """

    pid: int
    group: ChannelGroup
    role: Role
    gpu: int = 0
    turn: int = 0
    original_us: int = 0
    waits: bool = False

    @property
    def may_be_off(self) -> bool:
        """Whether its channels may be disabled at times."""
        return self.role is Role.BE or self.waits

    @property
    def key(self) -> tuple[int, int, int]:
        """Identifies the group on this node."""
        return self.pid, self.group.client, self.group.handle


@dataclass(frozen=True, slots=True)
class Trigger:
    """An event that announces a burst. None matches any; ``size`` is bytes, both ends included.

    The reservation starts ``offset_us`` after the event, of a hint ``before_us`` before the time that it announces.
    """

    kind: Kind | None = None
    call: Call | None = None
    tid: int | None = None
    handle: int | None = None
    size: tuple[int, int] | None = None
    offset_us: int = 0
    before_us: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do for one latency-critical process on one GPU; see ``struct ga_plan`` for each field.

    ``end_calls``: synchronous calls whose return ends a burst. ``release_us``: a hold ends that long after a launch, or
    a copy to the host, that no other call follows. ``rank`` and ``due_us``: who goes first where reservations with
    ``Mechanism.ORDER`` meet; the higher rank, then the earlier trigger plus ``due_us`` (0: never).
    """

    pid: int
    triggers: tuple[Trigger, ...]
    mechanism: Mechanism
    limit_us: int
    gpu: int = 0
    launch_within_us: int = 0
    quiet_us: int = 0
    end_calls: frozenset[Call] = frozenset({Call.STREAM_SYNC, Call.EVENT_SYNC, Call.CTX_SYNC, Call.COPY_D2H})
    release_us: int = 200
    hold_kernels: int = 2
    max_per_second: int = 0
    rank: int = 0
    due_us: int = 0


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """``turns_us``: how long each best-effort turn lasts at most; fewer than two: no turns, all are enabled.

    ``wait_us``: turns are shortened so that none waits for much longer, reservations included; 0: no bound.
    ``max_reserved``: the share of time (0 to 1) that all reservations together may take; None for no bound.
    ``break_us`` of every ``break_every_us`` latency-critical groups are off; 0: never.
    """

    turns_us: tuple[int, ...] = ()
    max_reserved: float | None = None
    break_us: int = 0
    break_every_us: int = 0
    wait_us: int = 0


@dataclass(frozen=True, slots=True)
class PlanSet:
    """Everything in force, for all GPUs of the node. A new set replaces the one before as a whole."""

    gpus: tuple[GpuPlan, ...] = (GpuPlan(),)
    members: tuple[Member, ...] = ()
    plans: tuple[Plan, ...] = field(default=())

    @property
    def in_turns(self) -> frozenset[int]:
        """Return the best-effort processes that take turns on any GPU."""
        return frozenset(
            member.pid for member in self.members if member.role is Role.BE and len(self.gpus[member.gpu].turns_us) > 1
        )


@dataclass(frozen=True, slots=True)
class AgentSlot:
    """Where the actuator finds a program's hold agent: the slot of its page and the tid of its thread."""

    slot: int
    tid: int


def encode(
    plan_set: PlanSet, out: abi.Plans, driver_slot: Callable[[Member], int], agent: Callable[[Plan], AgentSlot | None]
) -> None:
    """Write the set into ``out``. Raises PlanLimitError before anything is written when there is no room for it."""
    entries = [entry for member in plan_set.members for entry in _batches(member)]
    _check("GPUs", len(plan_set.gpus), abi.MAX_GPUS)
    _check("channel groups", len(entries), abi.MAX_GROUPS)
    _check("latency-critical processes", len(plan_set.plans), abi.MAX_PLANS)
    for gpu in plan_set.gpus:
        _check("turns", len(gpu.turns_us), abi.MAX_TURNS)
    for plan in plan_set.plans:
        _check("triggers", len(plan.triggers), abi.MAX_TRIGGERS)
    out.gpu_count, out.group_count, out.plan_count = len(plan_set.gpus), len(entries), len(plan_set.plans)
    for index, gpu in enumerate(plan_set.gpus):
        _encode_gpu(gpu, out.gpus[index])
    for index, (member, channels) in enumerate(entries):
        _encode_group(member, channels, driver_slot(member), out.groups[index])
    for index, plan in enumerate(plan_set.plans):
        own = (i for i, (m, _) in enumerate(entries) if (m.role, m.pid, m.gpu) == (Role.LC, plan.pid, plan.gpu))
        _encode_plan(plan, next(own, abi.NO_INDEX), agent(plan), out.plans[index])


def _check(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise PlanLimitError(what, count, limit)


def _batches(member: Member) -> Iterator[tuple[Member, list[int]]]:
    """A group with more channels than one control takes is given as several."""
    handles = [channel.handle for channel in member.group.channels]
    for start in range(0, max(1, len(handles)), abi.MAX_CHANNELS):
        yield member, handles[start : start + abi.MAX_CHANNELS]


def _encode_gpu(gpu: GpuPlan, out: abi.Gpu) -> None:
    out.turn_count = len(gpu.turns_us)
    # A bound of nothing is still a bound, and 0 says "none".
    out.max_reserved_permille = 0 if gpu.max_reserved is None else max(1, round(gpu.max_reserved * 1000))
    out.break_us, out.break_every_us = gpu.break_us, gpu.break_every_us
    out.wait_us = gpu.wait_us
    for index, us in enumerate(gpu.turns_us):
        out.turn_us[index] = us


def _encode_group(member: Member, channels: list[int], slot: int, out: abi.Group) -> None:
    group = member.group
    out.pid, out.slot, out.gpu, out.role, out.turn = member.pid, slot, member.gpu, member.role, member.turn
    out.client, out.handle, out.subdevice = group.client, group.handle, group.subdevice or 0
    out.original_us, out.channel_count = member.original_us, len(channels)
    for index, handle in enumerate(channels):
        out.channels[index] = handle


def _mask(calls: frozenset[Call]) -> int:
    return sum(1 << call for call in calls)


def _encode_plan(plan: Plan, own: int, agent: AgentSlot | None, out: abi.Plan) -> None:
    out.pid, out.gpu, out.group, out.mechanism = plan.pid, plan.gpu, own, plan.mechanism
    out.limit_us, out.launch_within_us, out.quiet_us = plan.limit_us, plan.launch_within_us, plan.quiet_us
    out.end_calls, out.release_us = _mask(plan.end_calls), plan.release_us
    out.agent_slot, out.agent_tid = (agent.slot, agent.tid) if agent else (abi.NO_INDEX, 0)
    out.hold_kernels, out.max_per_second = plan.hold_kernels, plan.max_per_second
    out.rank, out.due_us = plan.rank, plan.due_us
    out.trigger_count = len(plan.triggers)
    for index, trigger in enumerate(plan.triggers):
        _encode_trigger(trigger, out.triggers[index])


def _encode_trigger(trigger: Trigger, out: abi.Trigger) -> None:
    out.kind, out.call, out.tid = trigger.kind or 0, trigger.call or 0, trigger.tid or 0
    out.handle_mask, out.handle = (0, 0) if trigger.handle is None else (2**64 - 1, trigger.handle)
    out.bytes_min, out.bytes_max = trigger.size or (0, 0)
    out.offset_us, out.before_us = trigger.offset_us, trigger.before_us
