"""The tuner's process as the daemon sees it: started, started again after pauses, ended; and the burst log."""

import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.hints.bursts import Burst
from gpsched.adaptive.hints.model import Choice, Trigger
from gpsched.adaptive.hints.observations import Matcher, WakeKind
from gpsched.adaptive.hints.outputs import Reserve
from gpsched.adaptive.measure import BurstLog, latencies
from gpsched.adaptive.tuning import TunerProcess


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def process(clock: Clock, *program: str) -> TunerProcess:
    made = TunerProcess(Path("s"), Path("d"), clock)
    made._command = [sys.executable, "-c", *program]
    return made


def test_one_that_ends_is_started_again_after_growing_pauses() -> None:
    clock = Clock()
    tuner = process(clock, "raise SystemExit(3)")
    tuner.tick(True)
    for pause in (2.0, 4.0, 8.0):
        before = tuner.pid
        assert tuner._process is not None
        tuner._process.wait(30)
        tuner.tick(True)
        assert tuner.pid is None
        clock.now += pause - 0.1
        tuner.tick(True)
        assert tuner.pid is None
        clock.now += 0.2
        tuner.tick(True)
        assert tuner.pid not in (None, before)
    tuner.stop()


def test_it_is_ended_when_it_is_not_wanted_even_if_it_will_not() -> None:
    """Nobody waits for it meanwhile: it may be waiting for the daemon's answer."""
    clock = Clock()
    tuner = process(clock, "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)")
    tuner.tick(False)
    assert tuner.pid is None
    tuner.tick(True)
    running = tuner._process
    assert running is not None
    time.sleep(1.0)  # until it ignores the signal
    began = time.monotonic()
    tuner.tick(False)
    clock.now += 10.0
    tuner.tick(False)
    assert time.monotonic() - began < 2.5
    running.wait(60)
    tuner.tick(True)  # wanted again: at once, since it did not fail
    assert tuner.pid not in (None, running.pid)
    tuner.stop()
    assert tuner.pid is None


def test_a_program_that_cannot_be_started_is_no_disaster() -> None:
    tuner = TunerProcess(Path("s"), Path("d"), Clock())
    tuner._command = ["/nonexistent"]
    tuner.tick(True)
    assert tuner.pid is None


MATCHER = Matcher(WakeKind.SOCKET_READ)
CHOICE = Choice("sure", (Trigger(MATCHER, 200.0, 2000.0, 50.0, 1.0, 1.0, {}),))


def test_a_latency_counts_from_the_request_to_the_end() -> None:
    log = BurstLog()
    log.announced(1, Reserve(1200.0, 3000.0, MATCHER), CHOICE)  # the request came at 1000
    log.announced(1, Reserve(1300.0, 3100.0, MATCHER), CHOICE)  # a second one, served by the same burst
    log.began(1, 1700.0, 500.0, need_us=200.0)
    log.ended(1, Burst(1700.0, 2500.0, 3, "sync"))
    log.began(1, 9000.0, None, need_us=200.0)  # nothing announced it
    log.ended(1, Burst(9000.0, 9400.0, 3, "sync"))
    first, second = (entry for entry in sorted(log.since(1, 0.0)))
    assert (first.latency_us, first.length_us, first.triggered, first.covered) == (1500.0, 800.0, True, True)
    assert (second.latency_us, second.triggered, second.covered) == (400.0, False, False)
    fields = log.fields(1, 2600.0, slo_us=300.0)
    assert (fields["triggered"], fields["over"], fields["busy_us"]) == (0, 1, 400.0)
    log.forget(1)
    assert not log.since(1, 0.0)


def test_predicted_arrivals_and_lost_ends_tell_no_latency() -> None:
    log = BurstLog()
    clock = Matcher(WakeKind.CLOCK)
    choice = Choice("sure", (Trigger(clock, 0.0, 2000.0, 50.0, 1.0, 1.0, {}),))
    log.announced(1, Reserve(1000.0, 3000.0, clock), choice)
    log.began(1, 1700.0, 700.0, need_us=200.0)
    log.ended(1, Burst(1700.0, 2500.0, 3, "sync"))
    log.began(1, 5000.0, None, need_us=200.0)
    log.ended(1, Burst(5000.0, 6000.0, 3, "reset"))
    (entry,) = log.since(1, 0.0)
    assert (entry.latency_us, entry.triggered) == (800.0, False)


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=300))
def test_percentiles_are_ordered_and_measured_values(values: list[float]) -> None:
    found = latencies(values)
    ladder = [found.p50_us, found.p90_us, found.p99_us, found.max_us]
    assert ladder == sorted(ladder)
    assert found.count == len(values)
    assert {round(value, 1) for value in values}.issuperset(ladder)
