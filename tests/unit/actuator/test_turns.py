"""Best-effort processes in turns: one enabled at a time."""

import time
from itertools import pairwise

from gpsched.adaptive.actuator import GpuPlan
from tests.unit.actuator.rig import until


def in_turns(rig, *turns_us):
    members = [rig.member(rig.lc)] + [rig.member(pid, turn=index) for index, pid in enumerate(rig.be)]
    rig.publish(rig.plan(), members=members, gpus=(GpuPlan(turns_us),))


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
