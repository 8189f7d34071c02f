"""The parts of learning: quiet times, rhythms, leads, candidates and the choice among them."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.hints import choose
from gpsched.adaptive.hints.candidates import CandidateTable
from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.hints.evaluation import evaluate
from gpsched.adaptive.hints.leads import NEVER, Bursts, LeadWindow, quantile
from gpsched.adaptive.hints.observations import Matcher, Wake, WakeKind, size_bucket
from gpsched.adaptive.hints.periodic import PeriodicPredictor
from gpsched.adaptive.hints.quiet import QuietTime


COSTS = Costs()
WAKES_SLOWLY = Costs(need_us=310.0, spread_us=90.0, wake_us=45.0, wake_most_us=140.0)


def window(leads: list[float], first: int = 1) -> LeadWindow:
    result = LeadWindow()
    for number, lead in enumerate(leads, first):
        result.add(lead, number)
    return result


def last(count: int, interval: float = 10_000.0) -> Bursts:
    return Bursts(count, [interval] * (count + 1), interval)


# ---- quiet time


@pytest.mark.parametrize(
    ("gaps", "low", "high"),
    [
        pytest.param([9_000.0], 0, 0, id="all gaps are long: no waiting"),
        pytest.param([100.0] * 20 + [9_000.0], 100, 200, id="tokens, then a pause"),
        pytest.param([100.0] + [9_000.0] * 20, 0, 0, id="short gaps are too rare"),
        pytest.param([600.0], 0, 0, id="a switch is cheaper"),
    ],
)
def test_the_quiet_time_bridges_what_is_cheaper_than_a_switch(gaps: list[float], low: float, high: float) -> None:
    quiet = QuietTime(400.0, default=0.0)
    for i in range(128):
        quiet.add(gaps[i % len(gaps)])
    assert low <= quiet.us <= high


def test_no_other_quiet_time_costs_less() -> None:
    rng = random.Random(3)
    for switch, most in ((100.0, 5_000.0), (400.0, 5_000.0), (400.0, 300.0)):
        gaps = [rng.choice((rng.expovariate(1 / 80.0), rng.expovariate(1 / 3_000.0))) for _ in range(64)]
        quiet = QuietTime(switch, default=0.0, most=most)
        for gap in gaps:
            quiet.add(gap)
        limits = [0.0, *(limit for gap in gaps if (limit := 1.25 * gap) <= most)]

        def cost(limit: float, gaps: list[float] = gaps, switch: float = switch) -> float:
            return sum(gap if 1.25 * gap <= limit else limit + switch for gap in gaps)

        assert cost(quiet.us) == pytest.approx(min(map(cost, limits)))


# ---- rhythm


def beats(count: int, period: float, jitter: float, skip: float = 0.0, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [1e6 + i * period + rng.gauss(0, jitter) for i in range(count) if rng.random() >= skip]


@pytest.mark.parametrize("period", [5_000.0, 10_000.0, 50_000.0])
@pytest.mark.parametrize("skip", [0.0, 0.1])
def test_a_rhythm_is_predicted(period: float, skip: float) -> None:
    predictor, errors = PeriodicPredictor(), []
    for time in beats(200, period, 50.0, skip):
        while predictor.next_us is not None and predictor.next_us < time - period / 2:
            predictor.miss()
        if predictor.next_us is not None:
            errors.append(abs(time - predictor.next_us))
        predictor.burst(time)
    assert predictor.period_us == pytest.approx(period, rel=0.001)
    assert len(errors) > 150
    assert float(np.percentile(errors[20:], 95)) < 200.0


def test_random_arrivals_have_no_rhythm() -> None:
    rng, time, predictor, locked = random.Random(2), 1e6, PeriodicPredictor(), 0
    for _ in range(1_000):
        time += rng.expovariate(1 / 10_000.0)
        predictor.burst(time)
        locked += predictor.next_us is not None
    assert locked < 20


def test_a_rhythm_that_stops_is_given_up_after_few_misses() -> None:
    predictor = PeriodicPredictor()
    for time in beats(50, 10_000.0, 10.0):
        predictor.burst(time)
    for _ in range(3):
        assert predictor.next_us is not None
        predictor.miss()
    assert predictor.next_us is None


def test_a_rhythm_of_another_period_is_found_again() -> None:
    predictor = PeriodicPredictor()
    for time in beats(60, 10_000.0, 10.0) + [2e6 + time for time in beats(60, 7_000.0, 10.0)]:
        predictor.burst(time)
    assert predictor.period_us == pytest.approx(7_000.0, rel=0.01)


# ---- leads


def test_quantile_agrees_with_numpy() -> None:
    values = np.sort(np.random.default_rng(1).random(57)).tolist()
    for percent in (0, 1, 5, 50, 95, 99, 100):
        assert quantile(values, percent) == pytest.approx(np.percentile(values, percent))


def test_the_offset_leaves_what_the_mechanism_needs() -> None:
    leads = [1_000.0 + i % 10 for i in range(100)]
    found = evaluate(window(leads), last(100), COSTS)
    assert found is not None
    assert 780.0 <= found.offset_us <= 800.0
    assert found.in_time == found.precision == found.recall == 1.0
    assert found.hidden_us == pytest.approx(175.0)
    assert found.limit_us > 1_009.0


@pytest.mark.parametrize("costs", [LEVELS["hold"], LEVELS["reserve"]], ids=["hold", "reserve"])
def test_figures_are_those_of_its_offset_and_limit(costs: Costs) -> None:
    """Told once more by their definitions: several occurrences a burst, false ones, bursts soon after another."""
    rng = random.Random(4)
    for _ in range(50):
        told, number = LeadWindow(), 0
        for _ in range(rng.randint(20, LeadWindow.SIZE)):
            number += rng.random() < 0.7
            told.add(NEVER if rng.random() < 0.05 else rng.gauss(1_500.0, 150.0), number)
        gaps = [rng.choice((300.0, 9_000.0)) for _ in range(number + 1)]
        found = evaluate(told, Bursts(number, gaps, 10_000.0), costs)
        assert found is not None
        occurrences = [(lead, burst) for lead, burst in told.occurrences() if lead <= found.limit_us]
        margins = {
            burst: max(lead for lead, other in occurrences if other == burst) - found.offset_us
            for _, burst in occurrences
        }
        seen = number - min(burst for _, burst in told.occurrences()) + 1
        false = len(told) - len(occurrences)
        idle = sum(max(min(margin, gaps[burst]) - costs.need_us, 0.0) for burst, margin in margins.items())
        idle += false * (max(found.limit_us - found.offset_us - costs.need_us, 0.0) + costs.switch_us)
        assert (found.samples, found.false, found.announced) == (len(told), false, len(margins))
        assert found.recall == min(len(margins) / seen, 1.0)
        assert found.waste_us == pytest.approx(idle / seen)
        assert found.hidden_us == pytest.approx(sum(costs.hidden(margin) for margin in margins.values()) / seen)
        assert found.served.keys() == margins.keys()


def test_the_waste_budget_moves_the_offset_and_costs_coverage() -> None:
    leads = [1_000.0 + 10.0 * (i % 100) for i in range(100)]  # 1000 to 1990
    generous = evaluate(window(leads), last(100), Costs(waste_budget=0.2))
    tight = evaluate(window(leads), last(100), Costs(waste_budget=0.03))
    assert generous is not None
    assert tight is not None
    assert generous.in_time == 1.0
    assert generous.offset_us < tight.offset_us
    assert tight.waste_share <= 0.03
    assert tight.in_time < 0.9


def test_occurrences_without_a_burst_lower_the_precision() -> None:
    found = evaluate(window([1_000.0, NEVER] * 40), last(80), COSTS)
    assert found is not None
    assert found.precision == 0.5
    assert "followed by no burst" in str(choose.objection(Matcher(WakeKind.PIPE), found, COSTS))


def test_a_lead_that_drifts_forgets_the_older_ones_but_not_what_they_announced() -> None:
    drifting = window([1_000.0 + i for i in range(60)] + [3_000.0 + i for i in range(12)])
    assert drifting.follow_drift()
    assert len(drifting) == 72
    assert {lead for lead, _ in drifting.occurrences()} == {3_000.0 + i for i in range(12)}
    for number in range(73, 80):  # each new one counts for as much as the twelve
        drifting.add(3_500.0, number)
    drifting.follow_drift()
    lent = [lead for lead, _ in drifting.occurrences()][:60]
    assert lent.count(3_500.0) == pytest.approx(60 * 7 / 19, abs=4)
    mixed = window([1_000.0 if i % 2 else 3_000.0 + i for i in range(100)])
    assert not mixed.follow_drift()


@given(st.lists(st.sampled_from([NEVER, 100.0, 200.0, 350.0]), max_size=200), st.integers(1, 20))
def test_other_leads_leave_what_was_announced(leads: list[float], recent: int) -> None:
    moved = window(leads)
    before = list(moved.occurrences())
    moved.retime(recent)
    after, newest = list(moved.occurrences()), before[-recent:]
    followed = {lead for lead, _ in newest} - {NEVER}
    assert after[-recent:] == newest
    if 2 * sum(lead < NEVER for lead, _ in newest) <= len(newest):
        assert after == newest
    else:
        assert [(lead < NEVER, burst) for lead, burst in after] == [(lead < NEVER, burst) for lead, burst in before]
        assert {lead for lead, _ in after} - {NEVER} == followed


def test_nothing_is_known_of_a_candidate_that_no_burst_followed() -> None:
    assert evaluate(window([NEVER] * 50), last(50), COSTS) is None
    assert evaluate(LeadWindow(), last(50), COSTS) is None


# ---- candidates and choice


def test_a_wake_counts_for_its_general_and_special_matchers() -> None:
    table = CandidateTable()
    for i in range(20):
        start = 1e6 + i * 10_000.0
        table.occur(start, WakeKind.SOCKET_READ, 1, 5, size_bucket(90))
        table.occur(start + 500.0, WakeKind.SOCKET_READ, 1, 6, size_bucket(20_000))
        table.claim(start + 1_500.0, 8_000.0, 1)
    by_matcher = dict(table.windows({Matcher(WakeKind.SOCKET_READ), Matcher(WakeKind.SOCKET_READ, descriptor=6)}))
    assert len(by_matcher[Matcher(WakeKind.SOCKET_READ)]) == 40
    occurrences = by_matcher[Matcher(WakeKind.SOCKET_READ, descriptor=6)].occurrences()
    assert [lead for lead, _ in occurrences] == [1_000.0] * 20


def test_equal_windows_are_judged_once_by_the_most_general() -> None:
    table = CandidateTable()
    for i in range(20):
        table.occur(1e6 + i * 10_000.0, WakeKind.TIMER, 1, 5)
        table.claim(1e6 + i * 10_000.0 + 800.0, 9_000.0, 1)
    assert [matcher for matcher, _ in table.windows()] == [Matcher(WakeKind.TIMER)]


def test_a_second_trigger_is_added_for_bursts_that_the_first_does_not_announce() -> None:
    count = 100
    odd = LeadWindow()
    even = LeadWindow()
    for number in range(1, count + 1):
        (odd if number % 2 else even).add(1_000.0, number)
    rated = choose.rate(
        [(Matcher(WakeKind.PIPE), odd), (Matcher(WakeKind.TIMER), even), (Matcher(WakeKind.TIMER, tid=3), even)],
        last(count),
        COSTS,
    )
    chosen = choose.select(rated, COSTS, count)
    assert {matcher for matcher, _ in chosen} == {Matcher(WakeKind.PIPE), Matcher(WakeKind.TIMER)}


@pytest.mark.parametrize(
    ("false", "lead", "chosen"), [(0, 170.0, True), (0, 300.0, False), (6, 170.0, False), (6, 30.0, True)]
)
def test_a_clock_that_errs_gives_way_to_a_wake_that_tells_nearly_as_much(false: int, lead: float, chosen: bool) -> None:
    clock = window([5_000.0] * (100 - false) + [NEVER] * false)
    rated = choose.rate(
        [(Matcher(WakeKind.CLOCK), clock), (Matcher(WakeKind.SOCKET_READ), window([lead] * 100))], last(100), COSTS
    )
    kinds = {matcher.kind for matcher, _ in choose.select(rated, COSTS, 100)}
    assert (WakeKind.CLOCK in kinds) == chosen
    assert kinds


def waking_and_return(lead_us: float) -> list[choose.Rated]:
    """A thread is woken 40 to 100 µs before it comes back from its socket, which it does ``lead_us`` ahead."""
    rng = random.Random(1)
    leads = [lead_us + rng.uniform(0, 80) for _ in range(100)]
    woken = [lead + rng.uniform(40, 100) for lead in leads]
    windows = [(Matcher(WakeKind.SOCKET_READ), window(leads)), (Matcher(WakeKind.EPOLL_WAKING, tid=7), window(woken))]
    return choose.rate(windows, last(100), WAKES_SLOWLY)


def test_being_woken_announces_where_coming_back_is_late_for_an_actuator_that_must_wake() -> None:
    """As on an H200: 0.34 to 0.42 ms ahead, of which a hold needs 0.31 and the actuator 0.05 to 0.14 to wake."""
    (chosen,) = choose.select(waking_and_return(340.0), WAKES_SLOWLY, 100)
    assert chosen[0].kind == WakeKind.EPOLL_WAKING
    (chosen,) = choose.select(waking_and_return(900.0), WAKES_SLOWLY, 100)
    assert chosen[0].kind == WakeKind.SOCKET_READ, "where both are in time the steadier one wastes less"


def test_who_is_busy_is_not_woken_so_wakings_tell_of_no_queue_but_of_the_natural_lead() -> None:
    rated = waking_and_return(340.0)
    source = choose.source(rated, WAKES_SLOWLY)
    assert source is not None
    assert source.matcher.kind == WakeKind.SOCKET_READ
    assert choose.taker(rated, source) is None
    earliest = choose.earliest(rated, WAKES_SLOWLY)
    assert earliest is not None
    assert earliest.kind == WakeKind.EPOLL_WAKING


def test_the_earlier_of_two_good_triggers_does_not_win_by_being_early() -> None:
    """Both hide all; the steadier one wastes less."""
    rng = random.Random(1)
    steady = window([400.0 + rng.uniform(0, 5) for _ in range(100)])
    early = window([5_000.0 + rng.uniform(0, 300) for _ in range(100)])
    rated = choose.rate(
        [(Matcher(WakeKind.EPOLL), early), (Matcher(WakeKind.FUTEX), steady)],
        last(100),
        Costs(waste_budget=0.05),
    )
    chosen = choose.select(rated, COSTS, 100)
    assert [matcher.kind for matcher, _ in chosen] == [WakeKind.FUTEX]


@pytest.mark.parametrize(
    ("wake_us", "wake_most_us", "kind"), [(5.0, 20.0, WakeKind.SOCKET_READ), (90.0, 200.0, WakeKind.CLOCK)]
)
def test_the_clock_is_for_leads_that_pass_while_the_actuator_wakes(
    wake_us: float, wake_most_us: float, kind: WakeKind
) -> None:
    """Reckoned with one reaction for both, the one was chosen that was no better (0.2 ms of preparation, an H200)."""
    rng = random.Random(1)
    rated = choose.rate(
        [
            (Matcher(WakeKind.SOCKET_READ), window([260.0 + rng.uniform(0, 5) for _ in range(100)])),
            (Matcher(WakeKind.CLOCK), window([5_000.0 + rng.uniform(0, 80) for _ in range(100)])),
        ],
        last(100),
        costs := Costs(need_us=215.0, spread_us=20.0, wake_us=wake_us, wake_most_us=wake_most_us),
    )
    chosen = choose.select(rated, costs, 100)
    assert [matcher.kind for matcher, _ in chosen] == [kind]


@pytest.mark.parametrize(
    ("matcher", "words"),
    [
        (
            Matcher(WakeKind.SOCKET_READ, 7, 5, (8, 9), idle=True),
            "socket_read, fd 5, 128-511 bytes, thread 7, when idle",
        ),
        (Matcher(WakeKind.BURST_END, sizes=(2, 3)), "burst_end, requests waiting"),
        (Matcher(WakeKind.EVENTFD, sizes=(0, 1)), "eventfd, 0-1 bytes"),
    ],
)
def test_matchers_in_words(matcher: Matcher, words: str) -> None:
    assert str(matcher) == words


def test_matchers_match() -> None:
    wake = Wake(0.0, 7, WakeKind.SOCKET_READ, 5, 9)
    assert Matcher(WakeKind.SOCKET_READ, sizes=(8, 9)).matches(wake)
    assert not Matcher(WakeKind.SOCKET_READ, sizes=(10, 11)).matches(wake)
    assert not Matcher(WakeKind.SOCKET_READ, tid=8).matches(wake)
    assert not Matcher(WakeKind.PIPE).matches(wake)


@pytest.mark.parametrize(("size", "bucket"), [(-11, -1), (0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1 << 20, 21)])
def test_size_buckets(size: int, bucket: int) -> None:
    assert size_bucket(size) == bucket
