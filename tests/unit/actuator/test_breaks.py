"""Breaks of latency-critical work: the floor of best-effort work beside a service that never rests."""

import time
from itertools import pairwise
from statistics import median

from gpsched.adaptive.actuator import GpuPlan
from tests.unit.actuator.rig import until


def publish(rig, break_us, break_every_us):
    rig.publish(gpus=(GpuPlan(break_us=break_us, break_every_us=break_every_us),))


def test_latency_critical_work_is_off_for_its_breaks_only(rig):
    publish(rig, 10_000, 50_000)
    until(lambda: len(rig.controls()) >= 8)
    switches = [entry for entry in rig.rm.entries[: rig.rm.number] if entry.end_ns]
    assert {entry.client - 0xC1D00000 for entry in switches} == {rig.lc}
    assert [bool(entry.value) for entry in switches[:8]] == [True, False] * 4
    starts = [entry.begin_ns for entry in switches]
    lengths = [later - sooner for sooner, later in pairwise(starts)]
    off, on = lengths[0::2], lengths[1::2]
    # A control may begin late, which shortens what follows it: single lengths tell nothing on a busy machine.
    assert median(off) > 9_000_000
    assert median(on) > 36_000_000
    assert median(off) < median(on)


def test_no_breaks_any_more_means_on_at_once(rig):
    publish(rig, 5_000_000, 5_050_000)
    until(lambda: rig.is_disabled(rig.lc))
    publish(rig, 0, 0)
    until(lambda: not rig.is_disabled(rig.lc))


def test_the_rhythm_goes_on_across_plans(rig):
    publish(rig, 10_000, 60_000)
    for _ in range(30):
        time.sleep(0.01)
        publish(rig, 10_000, 60_000)
    until(lambda: len(rig.controls()) >= 4)


def test_a_break_that_fills_all_time_is_none(rig):
    publish(rig, 10_000, 10_000)
    time.sleep(0.05)
    assert rig.controls() == []


def test_the_death_of_the_daemon_ends_the_break(rig):
    publish(rig, 5_000_000, 5_010_000)
    until(lambda: rig.is_disabled(rig.lc))
    rig.actuator._socket.close()
    until(lambda: not rig.is_disabled(rig.lc))


def test_a_process_that_dies_in_its_break_does_not_keep_the_others(rig):
    publish(rig, 20_000, 60_000)
    until(lambda: rig.is_disabled(rig.lc))
    rig.exit(rig.lc)
    until(lambda: rig.actuator.counters().disabled == 0)
    assert not rig.is_disabled(rig.be[0])
