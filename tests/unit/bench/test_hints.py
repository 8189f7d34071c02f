"""How well bursts were foreseen, from a daemon's counts and report."""

import msgspec

from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.model import Choice, Trigger
from gpsched.adaptive.hints.observations import Matcher, WakeKind
from gpsched.adaptive.model import HintsView, Histogram
from gpsched.bench.hints import added, quality
from gpsched.bench.outcome import Block, Hints, Reserved


def test_what_the_daemon_counted_is_the_difference_on_the_gpus_clock() -> None:
    before = HintsView(state="sure", reservations=10, hidden_us=1000.0, wasted_us=50.0)
    now = HintsView(state="sure", reservations=14, hidden_us=2000.0, wasted_us=100.0)
    once = added(None, before, now, 5.0)
    assert once == Reserved(reservations=4, hidden_us=200.0, wasted_us=10.0)
    assert added(once, None, now, 5.0) == Reserved(reservations=18, hidden_us=600.0, wasted_us=30.0)


def test_quality_of_hints_is_told_on_the_gpus_clock() -> None:
    bounds = [500.0, 1000.0, 2000.0]
    before = HintsView(state="sure", margin=Histogram(bounds_us=bounds, counts=[0, 1, 0, 0], sum_us=0.0), unreserved=4)
    margin = Histogram(bounds_us=bounds, counts=[0, 2, 90, 5], sum_us=0.0)
    now = HintsView(
        state="sure", margin=margin, unreserved=8, in_vain=1, reservations=100, wasted_us=500.0,
        allowed=Histogram(bounds_us=bounds, counts=[0, 1, 75, 3], sum_us=0.0), allowed_unreserved=1,
        reacted_us={"p50": 20.0, "p99": 90.0},
    )  # fmt: skip
    reserved = added(None, before, now, 5.0)
    assert (reserved.bursts, reserved.early, reserved.in_vain) == (100, 95, 1)
    assert (reserved.allowed, reserved.allowed_early) == (80, 78)
    learner = HintLearner()
    leads = {"p1": 900.0, "p50": 1000.0, "p99": 1500.0}
    trigger = Trigger(Matcher(WakeKind.SOCKET_READ), 0.0, 0.0, 0.0, 1.0, 1.0, leads)
    report = msgspec.structs.replace(learner.report(), choice=Choice("sure", (trigger,)), learned_after=20)
    block = Block(lc=[], be=[], real_s=0.05)
    assert quality(report, now, reserved, [block], 5.0) == Hints(
        trigger="socket_read",
        lead_us={"p1": 180.0, "p50": 200.0, "p99": 300.0},
        learned_after=20,
        early_share=0.95,
        in_vain_share=0.01,
        wasted_share=0.01,
        allowed_share=0.8,
        allowed_early_share=0.975,
        reacted_us={"p50": 20.0, "p99": 90.0},
    )
    nothing = quality(learner.report(), HintsView(state="learning"), added(None, None, before, 5.0), [block], 5.0)
    assert (nothing.trigger, nothing.learned_after, nothing.in_vain_share) == (None, None, None)
    assert (nothing.early_share, nothing.allowed_share) == (None, None), "who never reserves foresees nothing"
