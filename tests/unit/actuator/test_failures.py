"""Bad luck and bad input: nothing hangs, nothing stays disabled."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpsched.adaptive.actuator import (
    ActuatorGoneError,
    GpuPlan,
    Mechanism,
    Plan,
    PlanLimitError,
    PlanRefusedError,
    Reason,
    abi,
)
from gpsched.adaptive.driver.status import code
from tests.unit.actuator.rig import SET_TIMESLICE, until


def descriptors(rig):
    return sorted(str(link.readlink()) for link in Path(f"/proc/{rig.actuator.pid}/fd").iterdir())


def reserved(rig, **plan):
    rig.publish(rig.plan(**plan))
    rig.trigger()
    until(lambda: rig.is_disabled(rig.be[0]))


def test_the_death_of_the_daemon_enables_all_and_restores_the_slices(make_rig):
    rig = make_rig(best_effort=2)
    members = [rig.member(rig.lc, original_us=2048), *(rig.member(pid, original_us=1000 + pid) for pid in rig.be)]
    rig.publish(rig.plan(), members=members)
    rig.trigger()
    until(lambda: all(rig.is_disabled(pid) for pid in rig.be))
    rig.actuator._socket.close()  # as the kernel does when the daemon is killed
    assert rig.actuator._process.wait(5) == 0
    assert not any(rig.is_disabled(pid) for pid in rig.be)
    slices = {pid: value for pid, name, value in rig.controls() if name == "slice"}
    assert slices == {rig.lc: 2048, **{pid: 1000 + pid for pid in rig.be}}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_the_same_way(rig, number):
    reserved(rig)
    os.kill(rig.actuator.pid, number)
    assert rig.actuator._process.wait(5) == 0
    assert not rig.is_disabled(rig.be[0])


def test_its_own_death_is_reported_once_everything_is_undone(rig, monkeypatch):
    undone = []
    monkeypatch.setattr("gpsched.adaptive.actuator.actuator.undo", lambda touched: undone.extend(touched) or [])
    reserved(rig)
    os.kill(rig.actuator.pid, signal.SIGKILL)
    until(lambda: not rig.actuator.alive)
    with pytest.raises(ActuatorGoneError) as caught:
        rig.actuator.check()
    assert caught.value.returncode == -signal.SIGKILL
    assert {member.pid for member, _ in undone} == {rig.lc, rig.be[0]}


def test_publishing_to_a_dead_actuator_says_so(rig):
    os.kill(rig.actuator.pid, signal.SIGKILL)
    until(lambda: not rig.actuator.alive)
    with pytest.raises(ActuatorGoneError):
        rig.publish(rig.plan())


def test_check_does_nothing_while_all_is_well(rig):
    rig.publish(rig.plan())
    rig.actuator.check()


def test_a_latency_critical_process_that_dies_inside_its_reservation(rig):
    reserved(rig)
    rig.exit(rig.lc)
    record = rig.record()
    assert record.reason is Reason.EXIT
    assert not rig.is_disabled(rig.be[0])


def test_a_best_effort_process_that_exits_while_disabled_loses_its_descriptors(rig):
    reserved(rig)
    before = rig.actuator.counters().descriptors
    rig.exit(rig.be[0])
    until(lambda: rig.actuator.counters().descriptors == before - 2)
    assert descriptors(rig).count("anon_inode:[pidfd]") == 1  # that of the latency-critical process
    rig.launch()
    rig.sync()
    assert rig.record().reason is Reason.SYNC
    assert len(rig.controls()) == 1


def test_a_context_destroyed_during_a_plan(rig):
    reserved(rig)
    rig.fail(code("INVALID_OBJECT_HANDLE"), times=1000)
    rig.launch()
    rig.sync()
    record = rig.record()
    assert (record.reason, record.last_status) == (Reason.SYNC, code("INVALID_OBJECT_HANDLE"))
    until(lambda: rig.actuator.counters().disabled == 0)
    count = rig.rm.number
    rig.trigger()
    rig.launch()
    rig.sync()
    rig.record()
    assert rig.rm.number == count  # what is gone is left alone


def test_one_dead_channel_does_not_keep_the_others(rig):
    rig.fail(code("INVALID_CHANNEL"), times=1000, channel=0x5C000013)
    reserved(rig)
    until(lambda: rig.actuator.counters().controls == 1)
    alone = [entry.channel for entry in rig.rm.entries[: rig.rm.number] if entry.count == 1 and not entry.status]
    assert alone == [handle for handle in range(0x5C000010, 0x5C000018) if handle != 0x5C000013]
    rig.launch()
    rig.sync()
    assert rig.record().reason is Reason.SYNC


def test_handles_used_again_are_a_new_group(rig):
    reserved(rig)
    rig.fail(code("INVALID_OBJECT_HANDLE"), times=1000)
    rig.launch()
    rig.sync()
    rig.record()
    rig.rm.fail_count = 0
    rig.publish(rig.plan())
    rig.trigger()
    until(lambda: rig.is_disabled(rig.be[0]))


def test_a_busy_driver_is_asked_again(rig):
    rig.fail(code("BUSY_RETRY"), times=2)
    reserved(rig)
    until(lambda: rig.actuator.counters().controls == 1)
    assert rig.rm.number == 3
    assert rig.actuator.counters().failures == 0


def test_a_disable_that_keeps_failing_is_given_up_and_undone(rig):
    rig.fail(code("INVALID_STATE"), times=1000, disable=1)
    rig.publish(rig.plan())
    rig.trigger()
    until(lambda: rig.actuator.counters().failures == 3)
    time.sleep(0.05)
    assert rig.rm.number == 3
    rig.launch()
    rig.sync()
    record = rig.record()
    assert (record.failures, record.last_status) == (3, code("INVALID_STATE"))
    assert not rig.is_disabled(rig.be[0])  # it may have been half done


@pytest.mark.parametrize("status", [code("TIMEOUT"), code("INVALID_STATE"), 0x10000 + 12])
def test_an_enable_that_fails_is_tried_until_it_succeeds(rig, status):
    reserved(rig)
    rig.fail(status, times=12, disable=0)
    rig.launch()
    rig.sync()
    until(lambda: rig.rm.fail_count == 0)
    until(lambda: rig.actuator.counters().disabled == 0)
    assert not rig.is_disabled(rig.be[0])


def test_a_slow_driver_does_not_delay_the_next_event(rig):
    rig.rm.cost_us = 300_000
    rig.publish(rig.plan())
    rig.trigger()
    until(lambda: rig.rm.number == 1)
    begin = time.monotonic()
    rig.trigger()
    until(lambda: rig.actuator.counters().triggers == 2)
    assert time.monotonic() - begin < 0.25


def test_withdrawing_a_plan_ends_its_reservation(rig):
    reserved(rig)
    rig.publish()
    assert rig.record().reason is Reason.WITHDRAWN
    assert not rig.is_disabled(rig.be[0])


def test_a_group_that_leaves_while_disabled_is_enabled(rig):
    reserved(rig)
    rig.publish(rig.plan(), members=[rig.member(rig.lc)])
    until(lambda: not rig.is_disabled(rig.be[0]))
    until(lambda: rig.actuator.counters().disabled == 0)


def test_publishing_again_keeps_the_reservation(rig):
    reserved(rig)
    for _ in range(5):
        rig.publish(rig.plan())
    assert rig.is_disabled(rig.be[0])
    rig.launch()
    rig.sync()
    assert rig.record().reason is Reason.SYNC
    assert len(rig.controls()) == 2


def test_a_channel_that_comes_during_a_reservation_is_disabled_too(rig):
    reserved(rig)
    more = rig.member(rig.be[0], group=rig.group(rig.be[0], channels=9))
    rig.publish(rig.plan(), members=[rig.member(rig.lc), more])
    until(lambda: rig.rm.number == 2)
    assert rig.rm.entries[1].count == 9


def test_a_thousand_publications_leave_no_descriptor_behind(rig):
    rig.publish(rig.plan())
    before = descriptors(rig)
    members = [rig.member(rig.lc)]
    for number in range(1000):
        rig.publish(rig.plan(), members=members if number % 2 else [*members, rig.member(rig.be[0])])
    rig.publish(rig.plan())
    assert descriptors(rig) == before


def test_what_does_not_fit_is_refused_before_anything_changes(rig):
    plan = rig.plan()
    for plans in ((rig.plan(trigger=None), *[replace(plan, pid=number) for number in range(1, 70)]),):
        with pytest.raises(PlanLimitError):
            rig.publish(*plans)
    with pytest.raises(PlanLimitError):
        rig.publish(Plan(rig.lc, plan.triggers * 5, Mechanism.DISABLE, 1000))
    with pytest.raises(PlanLimitError):
        rig.publish(plan, gpus=(GpuPlan(),) * 9)
    rig.publish(plan)


@pytest.mark.parametrize("change", [{"limit_us": 0}, {"gpu": 3}])
def test_a_plan_without_limit_or_gpu_is_refused(rig, change):
    with pytest.raises(PlanRefusedError, match="EINVAL"):
        rig.publish(replace(rig.plan(), **change))
    reserved(rig)


def test_plans_in_shared_memory_are_checked(rig):
    """A daemon with a fault must not make the actuator write outside its tables."""
    rig.publish(rig.plan())
    rig.actuator._shared.plans.group_count = 10**6
    rig.actuator._shared.generation += 1
    rig.actuator._send(abi.Message(type=abi.MSG_PUBLISH, generation=rig.actuator._shared.generation))
    with pytest.raises(PlanRefusedError):
        rig.actuator._await_answer(rig.actuator._shared.generation)
    reserved(rig)


def test_slices_are_not_touched_while_the_daemon_lives(rig):
    reserved(rig)
    assert all(entry.command != SET_TIMESLICE for entry in rig.rm.entries[: rig.rm.number])


def test_records_that_were_overwritten_are_counted(rig):
    rig.publish(rig.plan())
    for number in range(1, 1101):
        rig.trigger()
        rig.launch()
        rig.sync()
        until(lambda done=number: rig.actuator._shared.record_count >= done)
    assert len(rig.actuator.records()) == 1024
    assert rig.actuator.lost_records == 76
    assert rig.actuator.records() == []
