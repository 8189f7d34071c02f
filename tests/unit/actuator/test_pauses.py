"""Turns of best-effort processes that have nothing to do now and then."""

import time

from gpsched.adaptive.actuator import GpuPlan, Mechanism
from gpsched.adaptive.probes.events import Pause
from tests.unit.actuator.in_turns import enabled, had, in_turns, pauses, say, wakes_of
from tests.unit.actuator.rig import until


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


def second_pauses(make_rig, turn_us):
    """Two jobs in turns; the second has nothing to do."""
    rig = make_rig(best_effort=2)
    in_turns(rig, turn_us, turn_us)
    until(lambda: len(enabled(rig)) == 1)
    pauses(rig, rig.be[1])
    until(lambda: enabled(rig) == rig.be[:1])
    return rig


def test_alone_at_work_one_keeps_the_gpu(make_rig):
    """No control at all: its turns follow each other."""
    rig = second_pauses(make_rig, 20_000)
    before = len(rig.controls())
    time.sleep(0.2)
    assert len(rig.controls()) == before


def test_a_pause_is_not_believed_for_ever(make_rig):
    """The word that it works again may be lost: it has a short turn once a second."""
    rig = second_pauses(make_rig, 50_000)
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
