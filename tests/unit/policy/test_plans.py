"""From processes and choices to the actuator's plans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpsched.adaptive.actuator.plans import Mechanism, Role
from gpsched.adaptive.config import Reservations
from gpsched.adaptive.driver.types import Channel, ChannelGroup
from gpsched.adaptive.hints import choose
from gpsched.adaptive.hints.model import Choice, Trigger
from gpsched.adaptive.hints.observations import Matcher, WakeKind, size_bucket
from gpsched.adaptive.policy import plans
from gpsched.adaptive.policy.situation import Situation
from gpsched.adaptive.probes.events import Call, Kind
from gpsched.adaptive.workloads.procinfo import ProcessInfo
from gpsched.adaptive.workloads.registry import Group, Process


SETTINGS = Reservations()


def _process(pid: int, class_: str, *gpus: int, mechanism: str = "timeslice") -> Process:
    info = ProcessInfo(
        pid=pid, start_ticks=1, parent=1, name="p", exe="", command="", user="a", cgroup="/", container=None, env={}
    )
    process = Process(info, class_, "run", "a", mechanism=mechanism)  # type: ignore[arg-type]
    for gpu in gpus:
        for engine, handle in (("compute", 1), ("copy", 2)):
            channels = (Channel(gpu, handle * 100),)
            group = ChannelGroup(client=gpu, handle=handle, engine=engine, channels=channels, subdevice=9, gpu_id=gpu)
            process.groups[group.key] = Group(group, original_us=2048 if engine == "compute" else None)
    return process


def _choice(**matcher: object) -> Choice:
    fields: dict[str, object] = {"kind": WakeKind.SOCKET_READ, "tid": 7, "descriptor": 5} | matcher
    hint = Trigger(Matcher(**fields), 300.0, 2000.0, 200.0, 1.0, 1.0, {})  # type: ignore[arg-type]
    return Choice("sure", (hint,), quiet_us=40.0, burst_limit_us=5_000.0)


@pytest.mark.parametrize(("idle", "others"), [(False, ()), (True, ()), (True, (WakeKind.BURST_END,))])
def test_triggers_of_an_idle_process_are_told_to_be_that(idle: bool, others: tuple[WakeKind, ...]) -> None:
    """What waits at a burst's end is announced by the daemon, at its own time; the actuator must not go on at once."""
    choice = _choice(idle=idle)
    more = tuple(Trigger(Matcher(kind), 0.0, 900.0, 0.0, 1.0, 1.0, {}) for kind in others)
    choice = replace(choice, triggers=choice.triggers + more)
    processes = [_process(1, "lc", 0, mechanism="reserve"), _process(2, "be", 0)]
    (plan,) = plans.build(processes, {1: choice}, SETTINGS).plans
    assert bool(plan.mechanism & Mechanism.WHEN_IDLE) == idle


def test_all_triggers_of_a_choice_fit_into_a_plan() -> None:
    """Eight were chosen for a service of eight threads, and four of them left out here: half of its bursts had none."""
    hints = tuple(
        Trigger(Matcher(WakeKind.SOCKET_READ, tid=tid), 300.0, 2000.0, 200.0, 1.0, 1.0, {})
        for tid in range(1, choose.MOST + 1)
    )
    processes = [_process(1, "lc", 0, mechanism="hold"), _process(2, "be", 0)]
    (plan,) = plans.build(processes, {1: Choice("sure", hints)}, SETTINGS).plans
    assert [trigger.tid for trigger in plan.triggers] == [hint.matcher.tid for hint in hints]


def test_an_lc_with_a_trigger_and_one_be() -> None:
    lc, be = _process(1, "lc", 0, mechanism="hold"), _process(2, "be", 0)
    plan_set = plans.build([lc, be], {1: _choice()}, SETTINGS)
    assert [(member.pid, member.role, member.original_us) for member in plan_set.members] == [
        (2, Role.BE, 2048),
        (1, Role.LC, 2048),
    ]
    (gpu,), (plan,) = plan_set.gpus, plan_set.plans
    assert (gpu.turns_us, gpu.max_reserved) == ((), 0.9)
    assert (plan.mechanism, plan.limit_us, plan.launch_within_us, plan.quiet_us) == (Mechanism.HOLD, 5000, 1700, 40)
    (trigger,) = plan.triggers
    assert (trigger.kind, trigger.call, trigger.tid, trigger.handle, trigger.offset_us) == (
        Kind.WAKE,
        WakeKind.SOCKET_READ,
        7,
        5,
        300,
    )


def test_nothing_to_do_means_no_plan() -> None:
    lc, be = _process(1, "lc", 0), _process(2, "be", 0)
    assert plans.build([lc, be], {1: _choice()}, SETTINGS).plans == ()  # level timeslice: slices suffice
    assert plans.build([be], {}, SETTINGS) == plans.PlanSet(gpus=())
    reserving = _process(1, "lc", 0, mechanism="reserve")
    assert plans.build([reserving], {1: _choice()}, SETTINGS).gpus == ()  # nobody to keep off
    assert plans.build([reserving, _process(2, "be", 1)], {1: _choice()}, SETTINGS).gpus == ()  # on another GPU


def test_several_be_take_turns_even_without_an_lc() -> None:
    processes = [_process(pid, "be", 0) for pid in (1, 2, 3)]
    plan_set = plans.build(processes, {}, SETTINGS)
    assert plan_set.gpus[0].turns_us == (66_667,) * 3
    assert [member.turn for member in plan_set.members] == [0, 1, 2]
    assert plan_set.plans == ()


def test_a_process_on_two_gpus_is_planned_on_both() -> None:
    lc = _process(1, "lc", 0, 1, mechanism="reserve")
    plan_set = plans.build([lc, _process(2, "be", 0, 1)], {1: _choice()}, SETTINGS)
    assert [plan.gpu for plan in plan_set.plans] == [0, 1]
    assert all(member.group.gpu_id == member.gpu for member in plan_set.members)


def test_what_the_daemon_announces_starts_at_once() -> None:
    lc = _process(1, "lc", 0, mechanism="hold")
    plan_set = plans.build([lc, _process(2, "be", 0)], {1: _choice(kind=WakeKind.CLOCK)}, SETTINGS)
    (trigger,) = plan_set.plans[0].triggers
    assert (trigger.kind, trigger.offset_us) == (Kind.HINT, 0)


def test_a_hint_of_the_program_is_taken_as_early_as_the_mechanism_needs() -> None:
    lc = _process(1, "lc", 0, mechanism="hold")
    hint = Trigger(Matcher(WakeKind.EXPLICIT), -200.0, 500.0, 200.0, 1.0, 1.0, {})
    plan_set = plans.build([lc, _process(2, "be", 0)], {1: Choice("explicit", (hint,))}, SETTINGS)
    (trigger,) = plan_set.plans[0].triggers
    assert (trigger.kind, trigger.offset_us, trigger.before_us) == (Kind.HINT, 0, 200)


def test_the_first_launch_may_be_a_kernel_or_a_graph() -> None:
    lc = _process(1, "lc", 0, mechanism="reserve")
    plan_set = plans.build([lc, _process(2, "be", 0)], {1: _choice(kind=WakeKind.FIRST_LAUNCH)}, SETTINGS)
    assert {trigger.call for trigger in plan_set.plans[0].triggers} == {Call.LAUNCH, Call.GRAPH_LAUNCH}


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_bytes_are_in_the_range_of_their_buckets(size: int, other: int) -> None:
    bucket = size_bucket(size)
    low, high = plans._bytes((bucket, bucket))
    assert low <= size <= high
    assert (low <= other <= high) == (size_bucket(other) == bucket)


@given(st.floats(1, 1e7), st.floats(0, 1e7))
def test_no_reservation_outlasts_the_limit(burst_limit: float, wait: float) -> None:
    hint = Trigger(Matcher(WakeKind.SOCKET_READ), 0.0, wait, 0.0, 1.0, 1.0, {})
    choice = Choice("sure", (hint,), burst_limit_us=burst_limit)
    lc = _process(1, "lc", 0, mechanism="reserve")
    (plan,) = plans.build([lc, _process(2, "be", 0)], {1: choice}, SETTINGS).plans
    assert plan.launch_within_us <= plan.limit_us <= SETTINGS.limit_us


def test_a_share_of_the_time_is_a_turn_of_nobody() -> None:
    settings = Reservations(be_share=0.25, turn_us=10_000)
    one = plans.build([_process(1, "lc", 0), _process(2, "be", 0)], {}, settings)
    assert one.gpus[0].turns_us == (10_000, 30_000)
    two = plans.build([_process(1, "lc", 0), _process(2, "be", 0), _process(3, "be", 0)], {}, settings)
    assert two.gpus[0].turns_us == (10_000, 10_000, 60_000)
    assert two.gpus[0].wait_us == 0, "waiting is what they are to do"
    assert {member.turn for member in two.members if member.role is Role.BE} == {0, 1}


def test_a_gpu_may_have_settings_of_its_own() -> None:
    lc, be = _process(1, "lc", 0, 7, mechanism="reserve"), _process(2, "be", 0, 7)
    own = {7: Reservations(offset_shift_us=-100, quiet_extra_us=500, be_share=0.5)}
    before, after = plans.build([lc, be], {1: _choice()}, SETTINGS, own).plans
    assert after.triggers[0].offset_us == before.triggers[0].offset_us - 100
    assert after.quiet_us == before.quiet_us + 500
    assert [bool(gpu.turns_us) for gpu in plans.build([lc, be], {}, SETTINGS, own).gpus] == [False, True]


def _situation(**fields: object) -> Situation:
    return Situation(**fields)  # type: ignore[arg-type]


def test_who_goes_first_keeps_the_other_off_and_both_have_plans() -> None:
    first, second = _process(1, "lc", 0, mechanism="hold"), _process(2, "lc", 0)
    first.slo_us, second.slo_us = 2_000.0, 9_000.0
    situation = _situation(burst_us={1: 5_000.0, 2: 5_000.0})
    plan_set = plans.build([first, second, _process(3, "be", 0)], {1: _choice()}, SETTINGS, situation=situation)
    one, other = plan_set.plans
    assert one.mechanism == Mechanism.HOLD | Mechanism.ORDER
    assert other.mechanism == Mechanism.START_ON_LAUNCH | Mechanism.ORDER  # a later arrival of 1 may be due after it
    assert (one.due_us, other.due_us) == (2_000, 9_000)
    assert {trigger.call for trigger in other.triggers} == {Call.LAUNCH, Call.GRAPH_LAUNCH}
    assert [member.may_be_off for member in plan_set.members] == [True, True, True]


def test_short_bursts_are_ordered_by_slices_alone() -> None:
    first, second = _process(1, "lc", 0, mechanism="hold"), _process(2, "lc", 0)
    first.slo_us, second.slo_us = 2_000.0, 9_000.0
    situation = _situation(burst_us={1: 200.0, 2: 200.0})
    plan_set = plans.build([first, second, _process(3, "be", 0)], {1: _choice()}, SETTINGS, situation=situation)
    assert [plan.mechanism for plan in plan_set.plans] == [Mechanism.HOLD]
    assert [member.may_be_off for member in plan_set.members] == [True, False, False]


def test_services_alone_are_in_the_plans_only_where_their_slices_change() -> None:
    first, second = _process(1, "lc", 0), _process(2, "lc", 0)
    assert plans.build([first, second], {}, SETTINGS).gpus == ()
    first.slo_us = 2_000.0
    plan_set = plans.build([first, second], {}, SETTINGS)
    assert (len(plan_set.gpus), len(plan_set.members), plan_set.plans) == (1, 2, ())
    assert plan_set.gpus[0].max_reserved is None  # nobody has a floor


def test_a_crowded_gpu_has_breaks() -> None:
    both = [_process(1, "lc", 0, 1), _process(2, "be", 0, 1)]
    here, there = plans.build(both, {}, SETTINGS, situation=_situation(crowded={1: 0.25})).gpus
    assert (here.break_us, here.break_every_us) == (0, 0)
    assert (there.break_us, there.break_every_us) == (10_000, 40_000)
    assert all(
        member.may_be_off
        for member in plans.build(both, {}, SETTINGS, situation=_situation(crowded={0: 0.1, 1: 0.1})).members
    )


@pytest.mark.parametrize(
    ("slo_us", "break_us"), [(None, 10_000), (100_000.0, 10_000), (8_000.0, 4_000), (500.0, 2_000)]
)
def test_breaks_spare_the_objective(slo_us: float | None, break_us: int) -> None:
    lc = _process(1, "lc", 0)
    lc.slo_us = slo_us
    (gpu,) = plans.build([lc, _process(2, "be", 0)], {}, SETTINGS, situation=_situation(crowded={0: 0.1})).gpus
    assert (gpu.break_us, gpu.break_every_us) == (break_us, 10 * break_us)


def test_who_lost_its_reservations_keeps_nobody_off() -> None:
    first, second = _process(1, "lc", 0), _process(2, "lc", 0)
    first.slo_us, first.restraint = 2_000.0, "too much"
    situation = _situation(burst_us={1: 5_000.0, 2: 5_000.0})
    plan_set = plans.build([first, second, _process(3, "be", 0)], {}, SETTINGS, situation=situation)
    assert [plan.mechanism for plan in plan_set.plans] == [Mechanism.START_ON_LAUNCH] * 2


def test_who_is_not_admitted_is_in_no_plan_or_takes_turns() -> None:
    lc, out, be = _process(1, "lc", 0, mechanism="hold"), _process(2, "lc", 0, mechanism="hold"), _process(3, "be", 0)
    out.stand_in = "unmanaged"
    plan_set = plans.build([lc, out, be], {1: _choice(), 2: _choice()}, SETTINGS)
    assert {member.pid for member in plan_set.members} == {1, 3}
    out.stand_in = "be"
    plan_set = plans.build([lc, out, be], {1: _choice(), 2: _choice()}, SETTINGS)
    assert [plan.pid for plan in plan_set.plans] == [1]
    assert len(plan_set.gpus[0].turns_us) == 2


def test_turns_are_by_weight_and_longer_without_a_service() -> None:
    jobs = [_process(1, "be", 0), _process(2, "be", 0)]
    jobs[0].tenant, jobs[1].tenant = "large", "small"
    situation = _situation(tenants={"large": 3.0})
    assert plans.build(jobs, {}, SETTINGS, situation=situation).gpus[0].turns_us == (150_000, 50_000)
    beside = plans.build([*jobs, _process(3, "lc", 0)], {}, SETTINGS, situation=situation)
    assert (beside.gpus[0].turns_us, beside.gpus[0].wait_us) == ((75_000, 25_000), 65_000)
