"""From the trigger to the end of the burst."""

import time
from dataclasses import replace

import pytest

from gpsched.adaptive.actuator import GpuPlan, Mechanism, Member, Reason, Role, Trigger
from gpsched.adaptive.probes.events import Call, Hint, Kind, Wake
from tests.unit.actuator.rig import SWITCH, now_ns, until


def burst(rig):
    rig.trigger()
    rig.launch()
    rig.sync()


def test_a_burst_keeps_best_effort_off_the_gpu_from_trigger_to_sync(rig):
    rig.publish(rig.plan())
    rig.trigger()
    until(lambda: rig.is_disabled(rig.be[0]))
    rig.launch()
    assert rig.is_disabled(rig.be[0])
    rig.sync()
    record = rig.record()
    assert rig.controls() == [(rig.be[0], "switch", True), (rig.be[0], "switch", False)]
    assert record.reason is Reason.SYNC
    assert record.trigger_ns <= record.begin_ns <= record.ready_ns <= record.end_ns <= record.undone_ns
    assert record.trigger_ns < record.launch_ns
    assert (record.pid, record.controls, record.failures) == (rig.lc, 2, 0)


def test_all_channels_go_in_one_control(rig):
    rig.publish(rig.plan())
    rig.trigger()
    until(lambda: rig.is_disabled(rig.be[0]))
    entry = rig.rm.entries[0]
    assert (entry.command, entry.size, entry.count, entry.object) == (SWITCH, 536, 8, 0x5C000002)


def test_more_than_64_channels_are_switched_in_batches(rig):
    big = rig.member(rig.be[0], group=rig.group(rig.be[0], channels=100))
    rig.publish(rig.plan(), members=[rig.member(rig.lc), big])
    rig.trigger()
    until(lambda: rig.rm.number == 2)
    assert sorted(entry.count for entry in rig.rm.entries[:2]) == [36, 64]


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        (Mechanism.DISABLE_SCHEDULING, ["switch"]),
        (Mechanism.DISABLE_SCHEDULING | Mechanism.PREEMPT, ["switch", "preempt"]),
        (Mechanism.DISABLE_SCHEDULING | Mechanism.RESTART, ["switch", "restart"]),
        (Mechanism.RESTART, ["restart"]),
        (Mechanism.PREEMPT, ["preempt"]),
    ],
)
def test_variants(rig, mechanism, expected):
    rig.publish(rig.plan(mechanism))
    rig.trigger()
    until(lambda: len(rig.controls()) == len(expected))
    assert [name for _, name, _ in rig.controls()] == expected
    assert rig.rm.entries[0].only_scheduling == ("switch" in expected)
    rig.launch()
    rig.sync()
    assert rig.record().ready_ns
    assert not rig.is_disabled(rig.be[0])


def test_restart_goes_through_the_latency_critical_process_own_channel(rig):
    rig.publish(rig.plan(Mechanism.RESTART))
    rig.trigger()
    until(rig.controls)
    assert (rig.controls()[0][0], rig.rm.entries[0].object) == (rig.lc, 0x5C000010)


def test_no_mechanism_observes_only(rig):
    rig.publish(rig.plan(Mechanism.NONE))
    burst(rig)
    until(lambda: rig.actuator.counters().triggers == 1)
    assert rig.controls() == []


def test_the_offset_is_waited_for(rig):
    rig.publish(rig.plan(offset_us=30_000))
    begin = now_ns()
    rig.trigger(time_ns=begin)
    until(lambda: rig.is_disabled(rig.be[0]))
    assert rig.rm.entries[0].begin_ns - begin >= 30_000_000


def test_a_launch_before_the_offset_gives_the_reservation_up(rig):
    rig.publish(rig.plan(offset_us=500_000))
    burst(rig)
    assert rig.record().reason is Reason.MISSED
    assert rig.controls() == []


def test_a_launch_before_the_offset_may_start_it(rig):
    rig.publish(rig.plan(Mechanism.DISABLE | Mechanism.START_ON_LAUNCH, offset_us=500_000))
    rig.trigger()
    rig.launch()
    until(lambda: rig.is_disabled(rig.be[0]))
    rig.sync()
    assert rig.record().reason is Reason.SYNC


def test_the_first_launch_itself_can_be_the_trigger(rig):
    rig.publish(rig.plan(trigger=Trigger(kind=Kind.CUDA_ENTER, call=Call.LAUNCH)))
    rig.launch()
    until(lambda: rig.is_disabled(rig.be[0]))
    rig.launch()
    rig.sync()
    record = rig.record()
    assert (record.reason, record.merged) == (Reason.SYNC, 1)
    assert record.launch_ns == record.trigger_ns


def test_a_false_trigger_is_given_up(rig):
    rig.publish(rig.plan(launch_within_us=20_000))
    rig.trigger()
    record = rig.record()
    assert record.reason is Reason.NO_LAUNCH
    assert record.launch_ns == 0
    assert not rig.is_disabled(rig.be[0])


def test_a_burst_without_end_is_cut_at_the_limit(rig):
    rig.publish(rig.plan(limit_us=30_000))
    rig.trigger()
    rig.launch()
    record = rig.record()
    assert record.reason is Reason.LIMIT
    assert record.end_ns - record.begin_ns >= 29_000_000
    assert not rig.is_disabled(rig.be[0])


def test_work_within_the_quiet_time_belongs_to_the_burst(rig):
    rig.publish(rig.plan(quiet_us=60_000))
    rig.trigger()
    for _ in range(3):
        rig.launch()
        rig.sync()
        time.sleep(0.005)
    assert rig.is_disabled(rig.be[0])
    record = rig.record()
    assert record.reason is Reason.QUIET
    assert len(rig.controls()) == 2


def test_without_synchronisation_the_quiet_time_ends_the_burst(rig):
    rig.publish(rig.plan(quiet_us=20_000, end_calls=frozenset()))
    rig.trigger()
    rig.launch()
    assert rig.record().reason is Reason.QUIET


def test_a_sync_before_the_launch_does_not_end_anything(rig):
    rig.publish(rig.plan())
    rig.trigger()
    rig.sync()
    until(lambda: rig.is_disabled(rig.be[0]))
    rig.launch()
    rig.sync()
    assert rig.record().reason is Reason.SYNC


def test_an_asynchronous_copy_back_does_not_end_the_burst(rig):
    rig.publish(rig.plan())
    rig.trigger()
    rig.launch()
    rig.event(Kind.CUDA_RETURN, Call.COPY_D2H, is_async=True)
    until(lambda: rig.is_disabled(rig.be[0]))
    assert rig.actuator.records() == []
    rig.event(Kind.CUDA_RETURN, Call.COPY_D2H)
    assert rig.record().reason is Reason.SYNC


def test_the_last_of_several_threads_in_a_sync_ends_the_burst(rig):
    rig.publish(rig.plan())
    rig.trigger()
    rig.launch()
    rig.event(Kind.CUDA_ENTER, Call.STREAM_SYNC, tid=1001)
    rig.event(Kind.CUDA_ENTER, Call.STREAM_SYNC, tid=1002)
    rig.event(Kind.CUDA_RETURN, Call.STREAM_SYNC, tid=1001)
    until(lambda: rig.is_disabled(rig.be[0]))
    assert rig.actuator.records() == []
    rig.event(Kind.CUDA_RETURN, Call.STREAM_SYNC, tid=1002)
    assert rig.record().reason is Reason.SYNC


def test_a_polling_loop_ends_the_burst_with_the_query_that_finds_it_done(rig):
    rig.publish(rig.plan(end_calls=frozenset({Call.EVENT_QUERY})))
    rig.trigger()
    rig.launch()
    rig.event(Kind.CUDA_RETURN, Call.EVENT_QUERY)
    assert rig.record().reason is Reason.SYNC


READ = Trigger(kind=Kind.WAKE)


def test_a_request_that_arrives_during_a_burst_keeps_the_reservation(rig):
    rig.publish(rig.plan(trigger=READ))
    rig.event(Kind.WAKE, Wake.SOCKET_READ)
    rig.launch()
    rig.event(Kind.WAKE, Wake.SOCKET_READ)
    rig.sync()
    until(lambda: rig.is_disabled(rig.be[0]))
    assert rig.actuator.records() == []
    rig.launch()
    rig.sync()
    record = rig.record()
    assert (record.reason, record.merged) == (Reason.SYNC, 1)
    assert len(rig.controls()) == 2


def test_triggers_that_mean_an_idle_process_announce_nothing_during_a_burst(rig):
    rig.publish(rig.plan(Mechanism.DISABLE | Mechanism.WHEN_IDLE, trigger=READ))
    rig.event(Kind.WAKE, Wake.SOCKET_READ)
    rig.launch()
    rig.event(Kind.WAKE, Wake.SOCKET_READ)
    rig.sync()
    record = rig.record()
    assert (record.reason, record.merged) == (Reason.SYNC, 1)
    until(lambda: not rig.is_disabled(rig.be[0]))


def test_a_hold_ends_with_its_burst_though_another_request_arrived(rig):
    """What stayed was a reservation without a hold, into which the next burst's own trigger was merged."""
    rig.publish(rig.plan(Mechanism.HOLD, trigger=READ))
    rig.event(Kind.WAKE, Wake.SOCKET_READ)
    rig.launch()
    rig.event(Kind.WAKE, Wake.SOCKET_READ)
    rig.sync()
    record = rig.record()
    assert (record.reason, record.merged) == (Reason.SYNC, 1)
    rig.event(Kind.WAKE, Wake.SOCKET_READ)
    rig.launch()
    rig.sync()
    assert (rig.record().reason, rig.actuator.counters().reservations) == (Reason.SYNC, 2)


def test_a_call_inside_the_burst_announces_no_other(rig):
    rig.publish(rig.plan())
    rig.trigger()
    rig.launch()
    rig.trigger()
    rig.sync()
    assert rig.record().reason is Reason.SYNC


HINTED = Trigger(kind=Kind.HINT)


def test_an_explicit_hint_says_when(rig):
    rig.publish(rig.plan(trigger=HINTED))
    begin = now_ns()
    rig.event(Kind.HINT, Hint.RESERVE, time_ns=begin, handle=40_000)
    until(lambda: rig.is_disabled(rig.be[0]))
    assert rig.rm.entries[0].begin_ns - begin >= 40_000_000


@pytest.mark.parametrize("in_us", [0, 40_000, 540_000], ids=["now", "too soon", "in time"])
def test_a_reservation_starts_as_long_before_the_announced_time_as_the_plan_says(rig, in_us):
    rig.publish(rig.plan(trigger=Trigger(kind=Kind.HINT, before_us=500_000)))
    begin = now_ns()
    rig.event(Kind.HINT, Hint.RESERVE, time_ns=begin, handle=in_us)
    until(lambda: rig.is_disabled(rig.be[0]))
    waited_us = (rig.rm.entries[0].begin_ns - begin) / 1000
    assert waited_us >= max(0, in_us - 500_000)
    assert waited_us < in_us or in_us < 500_000


@pytest.mark.parametrize("in_us", [0, 500_000], ids=["reserved", "waiting"])
def test_an_explicit_hint_can_be_taken_back(rig, in_us):
    rig.publish(rig.plan(trigger=HINTED))
    rig.event(Kind.HINT, Hint.RESERVE, handle=in_us)
    rig.event(Kind.HINT, Hint.CANCEL)
    assert rig.record().reason is Reason.WITHDRAWN
    assert not rig.is_disabled(rig.be[0])


def test_a_burst_that_has_begun_cannot_be_taken_back(rig):
    rig.publish(rig.plan(trigger=HINTED))
    rig.event(Kind.HINT, Hint.RESERVE)
    rig.launch()
    rig.event(Kind.HINT, Hint.CANCEL)
    until(lambda: rig.is_disabled(rig.be[0]))
    rig.sync()
    assert rig.record().reason is Reason.SYNC


@pytest.mark.parametrize(
    ("trigger", "event", "matches"),
    [
        (Trigger(Kind.CUDA_ENTER), {}, True),
        (Trigger(Kind.CUDA_RETURN), {}, False),
        (Trigger(call=Call.COPY_D2H), {}, False),
        (Trigger(tid=77), {"tid": 77}, True),
        (Trigger(tid=77), {"tid": 78}, False),
        (Trigger(handle=0xAB), {"handle": 0xAB}, True),
        (Trigger(handle=0xAB), {"handle": 0x1AB}, False),
        (Trigger(handle=0), {"handle": 1}, False),
        (Trigger(size=(100, 200)), {"size": 100}, True),
        (Trigger(size=(100, 200)), {"size": 201}, False),
    ],
)
def test_triggers_match_by_context(rig, trigger, event, matches):
    rig.publish(rig.plan(trigger=trigger))
    rig.trigger(**event)
    until(lambda: rig.actuator.counters().events == 1)
    assert rig.actuator.counters().triggers == matches


def test_events_of_other_processes_mean_nothing(rig):
    rig.publish(rig.plan())
    rig.trigger(pid=rig.be[0])
    until(lambda: rig.actuator.counters().events == 1)
    assert rig.actuator.counters().triggers == 0


def test_a_predicted_arrival_is_reserved_ahead(rig):
    rig.publish(rig.plan())
    ahead = now_ns() + 40_000_000
    rig.trigger(time_ns=ahead)
    until(lambda: rig.is_disabled(rig.be[0]))
    assert rig.rm.entries[0].begin_ns >= ahead


def test_a_trigger_before_the_predicted_time_is_not_waited_with(rig):
    """A burst that came before the clock's time was given up as missed, though its own request told of it."""
    rig.publish(replace(rig.plan(), triggers=(HINTED, READ)))
    rig.event(Kind.HINT, Hint.RESERVE, time_ns=now_ns() + 5_000_000_000)
    rig.event(Kind.WAKE, Wake.SOCKET_READ)
    until(lambda: rig.is_disabled(rig.be[0]))
    rig.launch()
    rig.sync()
    record = rig.record()
    assert (record.reason, record.trigger, record.merged) == (Reason.SYNC, 1, 1)
    assert record.trigger_ns <= record.begin_ns <= record.launch_ns


def test_a_forecast_for_the_next_burst_does_not_prolong_this_one(rig):
    rig.publish(rig.plan(trigger=HINTED))
    rig.event(Kind.HINT, Hint.RESERVE)
    rig.launch()
    ahead = now_ns() + 300_000_000
    rig.event(Kind.HINT, Hint.RESERVE, time_ns=ahead)
    rig.sync()
    first = rig.record()
    assert (first.reason, first.merged) == (Reason.SYNC, 0)
    assert first.undone_ns < ahead
    until(lambda: rig.is_disabled(rig.be[0]))
    assert now_ns() >= ahead
    rig.launch()
    rig.sync()
    assert rig.record().reason is Reason.SYNC


def test_a_forecast_made_during_a_burst_can_be_taken_back(rig):
    rig.publish(rig.plan(trigger=HINTED))
    rig.event(Kind.HINT, Hint.RESERVE)
    rig.launch()
    rig.event(Kind.HINT, Hint.RESERVE, time_ns=now_ns() + 50_000_000)
    rig.event(Kind.HINT, Hint.CANCEL)
    rig.sync()
    rig.record()
    time.sleep(0.1)
    assert not rig.is_disabled(rig.be[0])
    assert rig.actuator.counters().triggers == 1


@pytest.mark.parametrize("offset_s", [-5, 3600], ids=["long ago", "far ahead"])
def test_an_event_from_another_time_is_ignored(rig, offset_s):
    rig.publish(rig.plan())
    rig.trigger(time_ns=now_ns() + offset_s * 10**9)
    until(lambda: rig.actuator.counters().throttled == 1)
    assert rig.controls() == []


def test_an_event_whose_burst_would_be_over_is_ignored(rig):
    """A prediction that came after its burst had begun kept the GPU for nothing."""
    rig.publish(rig.plan(launch_within_us=20_000))
    rig.trigger(time_ns=now_ns() - 50_000_000)
    until(lambda: rig.actuator.counters().throttled == 1)
    rig.trigger(time_ns=now_ns() - 5_000_000)
    until(lambda: rig.is_disabled(rig.be[0]))
    assert rig.record().reason is Reason.NO_LAUNCH


def test_a_trigger_storm_is_bounded_and_counted(rig):
    rig.publish(rig.plan(max_per_second=10))
    for _ in range(500):
        burst(rig)
    until(lambda: rig.actuator.counters().events == 2500)
    counters = rig.actuator.counters()
    assert counters.triggers == 500
    assert 10 <= counters.reservations <= 30
    assert counters.throttled >= 400
    until(lambda: not rig.is_disabled(rig.be[0]) and rig.actuator.counters().disabled == 0)


def test_reserved_time_is_bounded_for_the_floor_of_best_effort(rig):
    rig.publish(rig.plan(limit_us=900_000), gpus=(GpuPlan(max_reserved=0.05),))
    rig.trigger()
    rig.launch()
    record = rig.record()
    assert record.reason is Reason.BUDGET
    assert record.end_ns - record.begin_ns >= 45_000_000
    rig.trigger()
    until(lambda: rig.actuator.counters().throttled == 1)
    assert not rig.is_disabled(rig.be[0])


def test_two_latency_critical_processes_share_the_reservation(make_rig):
    rig = make_rig(best_effort=2)
    other = rig.be.pop()
    mine = rig.plan()
    members = [rig.member(rig.lc), rig.member(rig.be[0]), Member(other, rig.group(other), Role.LC)]
    rig.publish(mine, replace(mine, pid=other), members=members)
    rig.trigger()
    until(lambda: rig.is_disabled(rig.be[0]))
    rig.trigger(pid=other)
    rig.launch()
    rig.sync()
    assert rig.record().pid == rig.lc
    assert rig.is_disabled(rig.be[0])
    rig.launch(pid=other)
    rig.sync(pid=other)
    assert rig.record().pid == other
    until(lambda: not rig.is_disabled(rig.be[0]))
    assert len(rig.controls()) == 2
