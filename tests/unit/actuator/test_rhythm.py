"""Bursts that keep a rhythm are foretold without the daemon, which has found it and looks away."""

import os
import signal
import time

import pytest

from gpsched.adaptive.actuator.plans import Trigger
from gpsched.adaptive.actuator.records import Reason
from gpsched.adaptive.probes.events import Hint, Kind, encode_hint
from tests.unit.actuator.rig import now_ns, until


MS = 1_000_000
PERIOD, LEAD = 60 * MS, 10 * MS
HINTED = Trigger(kind=Kind.HINT)


@pytest.fixture
def service(rig):
    rig.publish(rig.plan(trigger=HINTED, launch_within_us=20_000))
    return rig


def foretell(rig, start_ns, every_ns=PERIOD):
    rig.actuator.announce(encode_hint(start_ns, rig.lc, Hint.RESERVE, every_ns, LEAD))


def sleep_until(at_ns):
    time.sleep(max(0, at_ns - now_ns()) / 1e9)


def burst(rig, at_ns):
    """One whose launch is at this time; the record of its reservation."""
    sleep_until(at_ns)
    rig.launch(time_ns=at_ns)
    rig.sync()
    return rig.record()


def test_each_burst_is_reserved_for_ahead_without_another_word(service):
    start = now_ns() + 50 * MS
    foretell(service, start)
    records = [burst(service, start + LEAD + number * PERIOD) for number in range(5)]
    assert [record.reason for record in records] == [Reason.SYNC] * 5
    assert [record.trigger_ns for record in records] == [start + number * PERIOD for number in range(5)]
    assert all(record.begin_ns >= record.trigger_ns for record in records)
    assert not service.is_disabled(service.be[0])


def test_launches_that_come_ever_later_are_followed(service):
    """Its period was measured, and is off by a hair: the leads must stay what they are."""
    start, off = now_ns() + 50 * MS, MS // 2
    foretell(service, start)
    records = [burst(service, start + LEAD + number * (PERIOD + off)) for number in range(30)]
    leads = [record.launch_ns - record.trigger_ns for record in records]
    assert all(record.reason is Reason.SYNC for record in records)
    assert leads[-1] == pytest.approx(LEAD + 8 * off, abs=off)  # an eighth of that is what each is off by
    assert max(leads) < LEAD + 9 * off


def test_a_burst_in_between_moves_nothing(service):
    start = now_ns() + 50 * MS
    foretell(service, start)
    burst(service, start + LEAD)
    between = burst(service, start + LEAD + PERIOD // 2)  # nothing was reserved for it
    assert between.reason is Reason.MISSED
    assert burst(service, start + LEAD + PERIOD).trigger_ns == start + PERIOD


def test_one_that_is_left_out_does_not_end_it_and_three_do(service):
    start = now_ns() + 50 * MS
    foretell(service, start)
    burst(service, start + LEAD)
    assert service.record().reason is Reason.NO_LAUNCH
    assert burst(service, start + LEAD + 2 * PERIOD).trigger_ns == start + 2 * PERIOD
    assert [service.record().reason for _ in range(3)] == [Reason.NO_LAUNCH] * 3
    time.sleep(3 * PERIOD / 1e9)
    assert service.actuator.records() == []
    assert not service.is_disabled(service.be[0])


@pytest.mark.parametrize("word", ["another forecast", "cancelled"])
def test_the_daemon_has_the_last_word(service, word):
    start = now_ns() + 50 * MS
    foretell(service, start)
    burst(service, start + LEAD)
    if word == "cancelled":
        service.event(Kind.HINT, Hint.CANCEL)
        assert service.record().reason is Reason.WITHDRAWN
    else:
        once = now_ns() + 20 * MS
        foretell(service, once, 0)
        until(lambda: service.is_disabled(service.be[0]))
        assert now_ns() >= once
        assert service.record().reason is Reason.NO_LAUNCH
    time.sleep(3 * PERIOD / 1e9)
    assert service.actuator.records() == []


def test_reservations_that_are_given_up_before_the_launch_is_expected_count_as_misses(rig):
    """It would be foretold for ever, and never in time."""
    rig.publish(rig.plan(trigger=HINTED, launch_within_us=LEAD // 2 // 1000))
    foretell(rig, now_ns() + 20 * MS)
    assert [rig.record().reason for _ in range(3)] == [Reason.NO_LAUNCH] * 3
    time.sleep(3 * PERIOD / 1e9)
    assert rig.actuator.records() == []


def test_nothing_is_reserved_while_it_stops(service):
    foretell(service, now_ns() + 20 * MS)
    until(lambda: service.is_disabled(service.be[0]))
    service.rm.cost_us = 300_000  # so long it takes to enable them again
    before = service.actuator.counters().reservations
    os.kill(service.actuator.pid, signal.SIGTERM)
    until(lambda: not service.actuator.alive)
    assert service.actuator.counters().reservations == before
    assert not service.is_disabled(service.be[0])
