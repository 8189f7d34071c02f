"""Best-effort processes in turns: one enabled at a time."""

import time
from itertools import pairwise
from pathlib import Path

import pytest

from gpsched.adaptive.actuator import GpuPlan, Mechanism, PlanSet
from gpsched.adaptive.probes.events import HEAD, Kind, Pause
from tests.unit.actuator.rig import SWITCH, now_ns, until


CLIENT = 0xC1D00000


def in_turns(rig, *turns_us, mechanism=Mechanism.DISABLE):
    members = [rig.member(rig.lc)] + [rig.member(pid, turn=index) for index, pid in enumerate(rig.be)]
    rig.publish(rig.plan(mechanism), members=members, gpus=(GpuPlan(turns_us),))


def say(rig, pid, pause):
    """What bpf/pause.bpf.c tells of a process."""
    rig.actuator.announce(HEAD.pack(now_ns(), pid, pid, Kind.PAUSE, 0, pause, 0, 0) + bytes(16))


def pauses(rig, pid, paused=True):
    """The process has nothing to do, or works again."""
    say(rig, pid, Pause.SURE if paused else Pause.OVER)


def wakes_of(pid):
    """How often the threads of a process have waited so far."""
    lines = [line for task in Path(f"/proc/{pid}/task").iterdir() for line in (task / "status").open()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def enabled(rig):
    return [pid for pid in rig.be if not rig.is_disabled(pid)]


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


def had(rig, seconds):
    """What each turn has had of so much time from now on, in ns."""
    before = rig.actuator.turns()[0]
    time.sleep(seconds)
    return [now - then for now, then in zip(rig.actuator.turns()[0], before, strict=True)]


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


def test_the_turn_of_one_that_pauses_goes_to_who_works(make_rig):
    rig = make_rig(best_effort=3)
    in_turns(rig, *[10_000_000] * 3)
    until(lambda: enabled(rig) == rig.be[:1])
    pauses(rig, rig.be[1])
    pauses(rig, rig.be[0])
    until(lambda: enabled(rig) == rig.be[2:])
    pauses(rig, rig.be[1], paused=False)
    time.sleep(0.05)
    assert enabled(rig) == rig.be[2:], "its turn is not over"
    pauses(rig, rig.be[2])
    until(lambda: enabled(rig) == rig.be[1:2])


def test_next_is_enabled_before_one_that_has_nothing_to_run_is_disabled(make_rig):
    rig = make_rig(best_effort=2)
    in_turns(rig, 10_000_000, 10_000_000)
    until(lambda: enabled(rig) == rig.be[:1])
    before = len(rig.controls())
    pauses(rig, rig.be[0])
    until(lambda: enabled(rig) == rig.be[1:])
    assert [(pid, disabled) for pid, _, disabled in rig.controls()[before:]] == [(rig.be[1], False), (rig.be[0], True)]


def test_a_turn_that_nobody_wants_stays_and_goes_to_the_first_who_works_again(make_rig):
    rig = make_rig(best_effort=3)
    in_turns(rig, *[30_000] * 3)
    until(lambda: len(enabled(rig)) == 1)
    for pid in rig.be:
        pauses(rig, pid)
    time.sleep(0.05)
    turns, woken = rig.actuator.counters().turns, wakes_of(rig.actuator.pid)
    time.sleep(0.6)
    assert rig.actuator.counters().turns == turns, "passing it on would be in vain"
    assert wakes_of(rig.actuator.pid) - woken < 60, "nor is there anything to look at more often than turns last"
    other = next(pid for pid in rig.be if rig.is_disabled(pid))
    pauses(rig, other, paused=False)
    until(lambda: enabled(rig) == [other])


def test_alone_at_work_one_keeps_the_gpu(make_rig):
    """No control at all: its turns follow each other."""
    rig = make_rig(best_effort=2)
    in_turns(rig, 20_000, 20_000)
    until(lambda: len(enabled(rig)) == 1)
    pauses(rig, rig.be[1])
    until(lambda: enabled(rig) == rig.be[:1])
    before = len(rig.controls())
    time.sleep(0.2)
    assert len(rig.controls()) == before


def test_a_pause_is_not_believed_for_ever(make_rig):
    """The word that it works again may be lost: it has a short turn once a second."""
    rig = make_rig(best_effort=2)
    in_turns(rig, 50_000, 50_000)
    until(lambda: len(enabled(rig)) == 1)
    pauses(rig, rig.be[1])
    until(lambda: enabled(rig) == rig.be[:1])
    begin = time.monotonic()
    until(lambda: not rig.is_disabled(rig.be[1]))
    assert time.monotonic() - begin > 0.5
    until(lambda: rig.is_disabled(rig.be[1]))
    switches = [entry for entry in rig.rm.entries[: rig.rm.number] if entry.client - 0xC1D00000 == rig.be[1]]
    assert switches[-1].begin_ns - switches[-2].end_ns < 40_000_000


def test_during_a_reservation_no_turn_is_passed_on(make_rig):
    """Controls that nobody is in a hurry for would disturb it."""
    rig = make_rig(best_effort=2)
    in_turns(rig, 10_000_000, 10_000_000)
    until(lambda: enabled(rig) == rig.be[:1])
    rig.publish(
        rig.plan(Mechanism.START_ON_LAUNCH),
        members=[rig.member(rig.lc)] + [rig.member(pid, turn=index) for index, pid in enumerate(rig.be)],
        gpus=(GpuPlan((10_000_000, 10_000_000)),),
    )
    rig.trigger()
    rig.launch()
    pauses(rig, rig.be[0])
    time.sleep(0.05)
    assert enabled(rig) == rig.be[:1]
    rig.sync()
    until(lambda: enabled(rig) == rig.be[1:])


def test_a_turn_of_nobody_lasts_although_somebody_works(rig):
    (job,) = rig.be[:1]
    members = [rig.member(rig.lc), rig.member(job, turn=0)]
    rig.publish(rig.plan(), members=members, gpus=(GpuPlan((20_000, 200_000)),))
    until(lambda: rig.is_disabled(job))
    begin = time.monotonic()
    pauses(rig, job, paused=False)
    until(lambda: not rig.is_disabled(job))
    assert time.monotonic() - begin > 0.1


def test_who_pauses_between_short_units_does_not_wait_for_whole_turns(make_rig):
    """5 ms of work and 5 ms of pause, beside one that never rests: which keeps half of its turn when it is ahead."""
    rig = make_rig(best_effort=2)
    in_turns(rig, 40_000, 40_000)
    short, long = rig.be
    until(lambda: rig.is_disabled(long))
    for _ in range(40):
        until(lambda: not rig.is_disabled(short))
        time.sleep(0.005)
        pauses(rig, short)
        until(lambda: not rig.is_disabled(long))
        time.sleep(0.005)
        pauses(rig, short, paused=False)
    had = rig.actuator.turns()[0]
    assert had[0] > 0.17 * had[1], "it would be 0.125"


def test_a_long_pause_gives_no_claim_on_the_whole_gpu(make_rig):
    rig = make_rig(best_effort=2)
    in_turns(rig, 20_000, 20_000)
    until(lambda: len(enabled(rig)) == 1)
    pauses(rig, rig.be[0])
    time.sleep(0.5)
    pauses(rig, rig.be[0], paused=False)
    until(lambda: not rig.is_disabled(rig.be[0]))
    first, second = had(rig, 0.4)[:2]
    assert second > 0.5 * first


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


def test_a_pause_in_doubt_costs_the_turn_only_if_it_lasts(make_rig):
    rig = make_rig(best_effort=2)
    in_turns(rig, *[10_000_000] * 2)
    until(lambda: enabled(rig) == rig.be[:1])
    before = rig.actuator.counters().turns
    for _ in range(20):
        say(rig, rig.be[0], Pause.IN_DOUBT)
        say(rig, rig.be[0], Pause.OVER)
    time.sleep(0.02)
    assert rig.actuator.counters().turns == before
    say(rig, rig.be[0], Pause.IN_DOUBT)
    until(lambda: enabled(rig) == rig.be[1:])


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
