"""Best-effort processes in turns: one enabled at a time."""

import time
from itertools import pairwise

import pytest

from gpsched.adaptive.actuator import GpuPlan, Mechanism, PlanSet
from tests.unit.actuator.in_turns import CLIENT, enabled, had, in_turns, pauses, wakes_of
from tests.unit.actuator.rig import SWITCH, now_ns, until


def test_one_at_a_time_and_all_in_turn(make_rig):
    rig = make_rig(best_effort=3)
    in_turns(rig, 20_000, 20_000, 20_000)
    seen = set()
    until(lambda: len(enabled(rig)) == 1)
    until(lambda: seen.update(enabled(rig)) or seen == set(rig.be))
    # The old turn leaves before the new one begins: never two enabled once the first switches are done.
    state = dict.fromkeys(rig.be, False)
    for pid, _, disabled in rig.controls()[2:]:
        state[pid] = not disabled
        assert sum(state.values()) <= 1 or not state[pid]


def test_jobs_alone_begin_their_turns_before_the_others_end(make_rig):
    """They have slices of their own: the GPU works on while the turn is passed on (H200: 0.21 ms a pass, not 0.67)."""
    rig = make_rig(best_effort=2)
    members = [rig.member(pid, turn=index) for index, pid in enumerate(rig.be)]
    rig.publish(members=members, gpus=(GpuPlan((15_000, 15_000)),))
    until(lambda: rig.actuator.counters().turns >= 6)
    state = dict.fromkeys(rig.be, True)
    for pid, _, disabled in rig.controls():
        state[pid] = not disabled
        assert any(state.values())


def test_turns_last_as_long_as_their_weight(make_rig):
    rig = make_rig(best_effort=2)
    in_turns(rig, 15_000, 60_000)
    until(lambda: rig.actuator.counters().turns >= 9)
    starts = [(entry.end_ns, entry.client - 0xC1D00000) for entry in rig.rm.entries[: rig.rm.number] if not entry.value]
    lengths = {pid: [] for pid in rig.be}
    for (begin, pid), (end, _) in pairwise(starts):
        lengths[pid].append(end - begin)
    short, long = (min(lengths[pid]) for pid in rig.be)
    assert 3 < long / short < 5


def test_reserved_time_does_not_count_as_turn(make_rig):
    rig = make_rig(best_effort=2)
    in_turns(rig, 50_000, 50_000)
    until(lambda: len(enabled(rig)) == 1)
    rig.trigger()
    until(lambda: not enabled(rig))
    before = rig.actuator.counters().turns
    time.sleep(0.2)
    assert rig.actuator.counters().turns == before
    rig.launch()
    rig.sync()
    until(lambda: rig.actuator.counters().turns > before)


def test_a_turn_that_is_nearly_over_ends_with_a_reservation(make_rig):
    """And not soon after it, when its controls might meet the next burst."""
    rig = make_rig(best_effort=2)
    in_turns(rig, 1_000_000, 1_000_000)
    until(lambda: enabled(rig) == rig.be[:1])
    time.sleep(0.8)
    rig.trigger()
    rig.launch()
    rig.sync()
    ended = now_ns()
    until(lambda: enabled(rig) == rig.be[1:])
    assert now_ns() - ended < 100_000_000
    rig.trigger()
    rig.launch()
    rig.sync()
    until(lambda: enabled(rig))
    assert enabled(rig) == rig.be[1:], "that one has just begun"


def test_after_a_reservation_only_the_turn_runs_again(make_rig):
    rig = make_rig(best_effort=2)
    in_turns(rig, 10_000_000, 10_000_000)
    until(lambda: enabled(rig) == rig.be[:1])
    rig.trigger()
    until(lambda: not enabled(rig))
    rig.launch()
    rig.sync()
    rig.record()
    assert enabled(rig) == rig.be[:1]


def test_a_turn_whose_process_exits_is_passed_on_at_once(make_rig):
    rig = make_rig(best_effort=2)
    in_turns(rig, 60_000_000, 60_000_000)
    until(lambda: enabled(rig) == rig.be[:1])
    rig.exit(rig.be[0])
    until(lambda: not rig.is_disabled(rig.be[1]))


def test_what_one_had_before_there_were_turns_counts_for_nobody(rig):
    """It would have to wait for as long, in a turn that is nobody's."""
    members = [rig.member(rig.lc), rig.member(rig.be[0], turn=0)]
    rig.publish(rig.plan(), members=members)
    time.sleep(1.5)
    rig.publish(rig.plan(), members=members, gpus=(GpuPlan((20_000, 20_000)),))
    until(lambda: rig.is_disabled(rig.be[0]))
    begin = time.monotonic()
    until(lambda: not rig.is_disabled(rig.be[0]))
    assert time.monotonic() - begin < 0.5


def leave(rig):
    """No process is managed any more: no GPU is in the plans."""
    rig.actuator.publish(PlanSet(gpus=()))
    until(lambda: len(enabled(rig)) == len(rig.be))


def test_time_without_turns_is_nobodys(make_rig):
    """Jobs that were let go and are managed again shared evenly for seconds, though one was to have three quarters."""
    rig = make_rig(best_effort=2)
    in_turns(rig, 60_000, 20_000)
    until(lambda: rig.actuator.counters().turns >= 3)
    until(lambda: enabled(rig) == rig.be[:1])
    leave(rig)
    time.sleep(1.5)
    in_turns(rig, 60_000, 20_000)
    large, small = had(rig, 0.8)[:2]
    assert large > 2 * small


def test_who_takes_the_turn_of_another_has_not_its_past(make_rig):
    rig = make_rig(best_effort=3)

    def publish(*pids):
        members = [rig.member(rig.lc)] + [rig.member(pid, turn=index) for index, pid in enumerate(pids)]
        rig.publish(rig.plan(), members=members, gpus=(GpuPlan((20_000, 20_000)),))

    first, second, third = rig.be
    publish(first, second)
    until(lambda: not rig.is_disabled(first))
    pauses(rig, second)
    time.sleep(1.5)
    publish(first, third)
    ones, others = had(rig, 0.6)[:2]
    assert ones > 0.6 * others


def test_once_nobody_is_managed_nothing_wakes_the_actuator(make_rig):
    rig = make_rig(best_effort=2)
    in_turns(rig, 10_000, 10_000)
    until(lambda: rig.actuator.counters().turns >= 3)
    leave(rig)
    time.sleep(0.1)
    before = wakes_of(rig.actuator.pid)
    time.sleep(0.5)
    assert wakes_of(rig.actuator.pid) - before <= 2


def switches_off(rig):
    entries = [entry for entry in rig.rm.entries[: rig.rm.number] if entry.command == SWITCH and entry.value]
    return [bool(entry.only_scheduling) for entry in entries]


@pytest.mark.parametrize("mechanism", [Mechanism.HOLD, Mechanism.DISABLE])
def test_whoever_gives_way_is_disabled(make_rig, mechanism):
    """On an H200 jobs that turns only took off the runlist stood still: alone, and where they were disabled, too."""
    rig = make_rig(best_effort=2)
    in_turns(rig, 20_000, 20_000, mechanism=mechanism)
    until(lambda: rig.actuator.counters().turns >= 3)
    rig.trigger()
    rig.launch()
    rig.sync()
    until(lambda: rig.actuator.counters().turns >= 6)
    assert len(switches_off(rig)) >= 6
    assert not any(switches_off(rig))


def test_whoever_gives_way_to_nobody_is_taken_off_the_gpu(rig):
    members = [rig.member(rig.lc), rig.member(rig.be[0], turn=0)]
    rig.publish(rig.plan(), members=members, gpus=(GpuPlan((20_000, 20_000)),))
    until(lambda: rig.actuator.counters().turns >= 3)
    assert not any(switches_off(rig))


def test_a_reservation_takes_all_off_the_gpu_whatever_their_turn(make_rig):
    rig = make_rig(best_effort=2)
    in_turns(rig, 10_000_000, 10_000_000)
    until(lambda: enabled(rig) == rig.be[:1])
    rig.trigger()
    until(lambda: not enabled(rig))
    assert switches_off(rig) == [False, False]


def switches_by_job(rig):
    """What was asked for each job in a row: on, off, or off the runlist."""
    names = {(0, 0): "on", (1, 0): "off", (1, 1): "unscheduled"}
    asked = {pid: [] for pid in rig.be}
    for entry in rig.rm.entries[: rig.rm.number]:
        if entry.command == SWITCH and entry.client - CLIENT in asked:
            asked[entry.client - CLIENT].append(names[bool(entry.value), bool(entry.only_scheduling)])
    return asked


@pytest.mark.parametrize("before", [Mechanism.HOLD, Mechanism.DISABLE])
def test_a_job_that_is_off_is_not_put_off_in_another_way(make_rig, before):
    """On an H200 one that was first taken off the runlist and then disabled stood still though it was enabled."""
    rig = make_rig(best_effort=2)
    in_turns(rig, 15_000, 15_000, mechanism=before)
    until(lambda: rig.actuator.counters().turns >= 2)
    in_turns(rig, 15_000, 15_000)
    for _ in range(40):
        rig.trigger()
        rig.launch()
        rig.sync()
        rig.record()
    until(lambda: rig.actuator.counters().turns >= 8)
    for asked in switches_by_job(rig).values():
        assert len(asked) > 4
        assert all("on" in pair for pair in pairwise(asked))


def test_no_turns_enables_all(make_rig):
    rig = make_rig(best_effort=3)
    in_turns(rig, 60_000_000, 60_000_000, 60_000_000)
    until(lambda: len(enabled(rig)) == 1)
    rig.publish(rig.plan())
    until(lambda: len(enabled(rig)) == 3)


def test_one_process_alone_has_no_turns(rig):
    in_turns(rig, 10_000)
    time.sleep(0.05)
    assert rig.controls() == []
    assert rig.actuator.counters().turns == 0


def test_in_a_turn_of_nobody_all_wait(rig):
    """How best-effort work is kept to a share of the time: one job, and a turn that no job has."""
    (job,) = rig.be[:1]
    members = [rig.member(rig.lc), rig.member(job, turn=0)]
    rig.publish(rig.plan(), members=members, gpus=(GpuPlan((20_000, 20_000)),))
    until(lambda: rig.is_disabled(job))
    until(lambda: not rig.is_disabled(job))
    until(lambda: rig.is_disabled(job))
    rig.publish(rig.plan(), members=members, gpus=(GpuPlan(),))
    until(lambda: not rig.is_disabled(job))


def test_whoever_ends_a_turn_lets_another_have_one_though_it_was_served_least(make_rig):
    """A turn that ended early would go on at once, and the other wait for two."""
    rig = make_rig(best_effort=2)
    in_turns(rig, 200_000, 200_000)
    until(lambda: enabled(rig) == rig.be[:1])
    for _ in range(4):
        first = enabled(rig)
        time.sleep(0.16)
        rig.trigger()
        rig.launch()
        rig.sync()
        until(lambda held=first: len(enabled(rig)) == 1 and enabled(rig) != held)


def test_turns_are_shortened_by_the_clock_on_the_wall(make_rig):
    """Reservations take half of the time: two turns of 200 ms would wait for 400."""
    rig = make_rig(best_effort=2)
    members = [rig.member(rig.lc)] + [rig.member(pid, turn=index) for index, pid in enumerate(rig.be)]
    rig.publish(rig.plan(), members=members, gpus=(GpuPlan((200_000, 200_000), wait_us=100_000),))
    until(lambda: len(enabled(rig)) == 1)
    begin, before = time.monotonic(), rig.actuator.counters().turns
    while time.monotonic() < begin + 1.0:
        rig.trigger()
        time.sleep(0.01)
        rig.launch()
        rig.sync()
        time.sleep(0.01)
    assert rig.actuator.counters().turns - before >= 5
