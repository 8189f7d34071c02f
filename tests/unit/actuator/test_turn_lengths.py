"""How long turns last, and whose is next: many jobs beside latency-critical work, in virtual time."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsched.adaptive.policy.turns import Participant, longest_wait, turns
from tests.unit.actuator.turns_world import Job, World, build, bursts_of


MODELS_MS = (6.1, 7.1, 2.2, 3.6, 2.7)  # units of five jobs of the scenarios C, D and E on an H200
WARM_UP_MS, MEASURED_MS = 1_000, 4_000
BEAT_MS = 10.0
OFF_BEAT_MS = 10.0007  # meets every phase


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    return build(tmp_path_factory.mktemp("turns"))


def world(bed, jobs, bursts=None, tenants=None, *, alone=False, lead=0.0, **costs):
    """Turns as the policy makes them."""
    lengths = turns([Participant(number, str(number)) for number in range(len(jobs))], tenants or {}, 50_000)
    made = World(bed, jobs, lengths, longest_wait(lengths, alone=alone), bursts, lead, **costs)
    made.run(WARM_UP_MS)
    made.run(MEASURED_MS)
    return made


def five_services(begin):
    """One after the other, each 20 times a second, and their bursts' lengths."""
    for length in itertools.cycle((7.2, 8.0, 3.2, 4.6, 3.6)):
        yield begin, length
        begin += 9.87


def units(made):
    return sum(len(job.done) for job in made.jobs)


def waits(made):
    return max(max(job.waits, default=0.0) for job in made.jobs)


def test_five_jobs_at_a_rhythm_share_the_time_and_none_waits_for_long(bed):
    """Scenario C: each wants more than its share, and pauses for its beat once it is not behind any more."""
    made = world(bed, [Job(unit, BEAT_MS) for unit in MODELS_MS], bursts_of(OFF_BEAT_MS, 2.8))
    had = [job.had for job in made.jobs]
    assert max(had) < 1.2 * min(had)
    assert sum(had) > 0.63 * MEASURED_MS, "of 0.71 that the service leaves"
    assert max(job.longest_gap for job in made.jobs) < 85
    assert made.passes < 0.6 * units(made)


def test_a_service_that_has_half_of_the_time_leaves_equal_shares(bed):
    """Scenario D."""
    made = world(bed, [Job(unit, BEAT_MS) for unit in MODELS_MS], bursts_of(OFF_BEAT_MS, 4.7))
    had = [job.had for job in made.jobs]
    assert max(had) < 1.2 * min(had)


@pytest.mark.parametrize("lead", [0.0, 0.5, 1.5])
def test_no_unit_is_cut_in_two(bed, lead):
    """Though one that runs on while reservations begin seems shorter than it is."""
    made = world(bed, [Job(unit, BEAT_MS) for unit in MODELS_MS], bursts_of(OFF_BEAT_MS, 4.7 + lead), lead=lead)
    assert max(job.longest_gap for job in made.jobs) < 100


@pytest.mark.parametrize("lead", [0.0, 0.4])
@pytest.mark.parametrize(("passing", "back"), [(0.42, 0.1), (1.05, 0.1), (1.05, 0.3)])
def test_no_unit_is_cut_in_two_where_controls_are_slow(bed, lead, passing, back):
    """Scenario D on an H200: turns that were halved had no room for the longest unit, whose job waited 174 ms."""
    for shift in range(6):
        jobs = [Job(unit, BEAT_MS) for unit in (6.6, 8.3, 2.8, 4.0, 3.2)]
        made = world(bed, jobs, five_services(shift * 1.7), lead=lead, passing=passing, back=back)
        assert max(job.longest_gap for job in made.jobs) < 100


def test_whoever_is_behind_keeps_its_turn_between_two_units(bed):
    """As two of them need 130 % of the GPU, both are behind most of the time: passing on at each unit costs 10 %."""
    made = world(bed, [Job(6.0, BEAT_MS), Job(6.0, BEAT_MS)], bursts_of(OFF_BEAT_MS, 1.0))
    assert made.passes < units(made) / 2


def test_who_pauses_in_time_gives_way_at_once(bed):
    made = world(bed, [Job(2.0, BEAT_MS), Job(2.0, BEAT_MS), Job(1.0)])
    assert made.idle < 0.12 * MEASURED_MS, "what the third needs between its own units"
    assert min(len(job.done) for job in made.jobs[:2]) > 0.85 * MEASURED_MS / BEAT_MS


def test_who_was_behind_gives_way_within_a_few_units_when_its_load_falls(bed):
    jobs = [Job(6.0, BEAT_MS), Job(6.0, BEAT_MS), Job(6.0, BEAT_MS)]
    made = world(bed, jobs)
    for job in jobs[:2]:
        job.period = 40.0
    made.run(200)
    assert made.idle < 0.1 * 200
    made.run(MEASURED_MS)
    assert [len(job.done) for job in jobs[:2]] == pytest.approx([MEASURED_MS / 40] * 2, abs=3)
    assert len(jobs[2].done) > 0.85 * MEASURED_MS / BEAT_MS, "so much the others leave, in time"


def test_shares_hold_though_turns_are_shortened(bed):
    """3:1, and who has the small turn has the longer units."""
    made = world(bed, [Job(1.0), Job(7.0)], bursts_of(OFF_BEAT_MS, 5.0), {"0": 3.0})
    assert made.bed.bed_had_ns(0) / made.bed.bed_had_ns(1) == pytest.approx(3.0, rel=0.1)


def test_alone_turns_are_as_long_as_the_plan_says(bed):
    made = world(bed, [Job(1.0) for _ in range(4)], alone=True)
    assert made.passes == pytest.approx(MEASURED_MS / 25.0, abs=2)


def test_a_bound_of_seconds_shortens_no_turn(bed):
    made = World(bed, [Job(1.0), Job(1.0)], (5_000_000, 5_000_000), wait_us=5_000_000)
    made.run(60_000)
    assert made.passes == pytest.approx(60_000 / 5_000, abs=2)


BUSY = st.builds(Job, st.floats(0.5, 4.0), think=st.floats(0.05, 0.2))
RATED = st.builds(Job, st.floats(0.5, 4.0), period=st.floats(5.0, 40.0))
PAUSING = st.builds(Job, st.floats(0.5, 4.0), pause=st.floats(1.0, 30.0))


@settings(max_examples=60, deadline=None)
@given(
    jobs=st.lists(st.one_of(BUSY, RATED, PAUSING), min_size=2, max_size=8),
    load=st.floats(0.05, 0.6),
    burst=st.floats(1.0, 5.0),
)
def test_whatever_the_jobs_are_none_waits_for_long(bed, jobs, load, burst):
    made = world(bed, jobs, bursts_of(burst / load, burst))
    assert waits(made) < 85
    assert made.passes <= units(made) + MEASURED_MS / 20, "at most one for each unit, and for each turn that is over"
    had = [bed.bed_had_ns(number) for number, job in enumerate(jobs) if not job.period and not job.pause]
    assert max(had, default=0) <= 1.4 * min(had, default=0), "in so short a time a turn more or less counts for much"
