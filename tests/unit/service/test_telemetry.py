"""Histograms, sums and timeline from bursts and reservations."""

import time

from gpsched.adaptive.actuator.records import Reason, Record
from gpsched.adaptive.hints.bursts import Burst
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.model import HintsView
from gpsched.adaptive.telemetry import Telemetry


def _record(now_ns: int, **more: int) -> Record:
    times = {"trigger_ns": now_ns - 900_000, "begin_ns": now_ns - 800_000, "ready_ns": now_ns - 500_000}
    times |= {"launch_ns": now_ns - 400_000, "end_ns": now_ns, "undone_ns": now_ns} | more
    return Record(
        sequence=1, pid=5, gpu=0, trigger=0, reason=Reason.SYNC, merged=0, controls=1, failures=0, last_status=0,
        **times,
    )  # fmt: skip


def test_bursts_become_latency_and_timeline() -> None:
    telemetry, now = Telemetry(), time.monotonic() * 1e6
    for start in (now - 2e6, now - 1e6):
        telemetry.burst(5, Burst(start, start + 400.0, 1, "sync"))
    telemetry.burst(5, Burst(now - 5e5, now, 1, "reset"))
    fields = telemetry.fields(5, None)
    assert sum(fields["latency"].counts) == 2
    assert fields["latency"].sum_us == 800.0
    assert fields["recent_us"] == {"p50": 400.0, "p90": 400.0, "p99": 400.0}
    assert "hints" not in fields
    assert "hidden" not in fields
    starts = [time.time() - span.start_s for span in fields["spans"]]
    assert [round(age) for age in starts] == [2, 1]
    assert telemetry.fields(6, None) == {}


def test_percentiles_are_those_of_the_last_thousand() -> None:
    telemetry = Telemetry()
    for us in [9e9] * 500 + list(range(1, 1001)):
        telemetry.burst(5, Burst(1.0, 1.0 + us, 1, "sync"))
    assert telemetry.fields(5, None)["recent_us"] == {"p50": 500.0, "p90": 900.0, "p99": 990.0}


def test_reservations_become_sums() -> None:
    telemetry, now_ns = Telemetry(), time.monotonic_ns()
    telemetry.reservation(_record(now_ns))
    telemetry.reservation(_record(now_ns, launch_ns=0, ready_ns=0))  # nothing came
    fields = telemetry.fields(5, Choice(state="sure"))
    hints = fields["hints"]
    assert (hints.reservations, hints.hidden_us, hints.wasted_us, hints.in_vain) == (2, 300.0, 100.0, 1)
    assert hints.reacted_us == {}
    assert sum(fields["hidden"].counts) == 1
    assert [span.kind for span in fields["spans"]] == ["reservation"]


def test_foresight_is_part_of_the_view() -> None:
    telemetry, now_ns = Telemetry(), 10_000_000
    telemetry.began(5, (now_ns - 400_000) / 1000)
    telemetry.reservation(_record(now_ns), reacted_us=40.0)
    hints = telemetry.fields(5, Choice(state="sure"))["hints"]
    assert hints.margin.sum_us == 400.0
    assert hints.unreserved == 0
    assert hints.reacted_us == {"p50": 40.0, "p99": 40.0}
    assert telemetry.fields(6, Choice(state="sure"))["hints"] == HintsView(state="sure")


def test_the_timeline_is_bounded_and_near_spans_are_one() -> None:
    telemetry, now = Telemetry(), time.monotonic() * 1e6
    for index in range(1000):
        telemetry.burst(5, Burst(now - 9e6 + index * 9000, now - 9e6 + index * 9000 + 300, 1, "sync"))
    (span,) = telemetry.fields(5, None)["spans"]
    assert round(span.end_s - span.start_s) == 9
    for index in range(5000):
        telemetry.burst(6, Burst(now - 9e6 + index * 40_000, now - 9e6 + index * 40_000 + 300, 1, "sync"))
    assert len(telemetry.fields(6, None)["spans"]) == 200
    telemetry.burst(7, Burst(now - 60e6, now - 59e6, 1, "sync"))
    assert telemetry.fields(7, None)["spans"] == []
    telemetry.forget(7)
    assert telemetry.fields(7, None) == {}
