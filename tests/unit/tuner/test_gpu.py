"""What follows from a window: undo, adopt, hold, leave alone, learn nothing."""

import math

import msgspec
import numpy as np
import pytest

from gpsched.adaptive.knobs import Settings
from gpsched.tuner.gpu import GpuTuner
from gpsched.tuner.model import Point
from gpsched.tuner.prior import Demand
from gpsched.tuner.space import BE_SLICE, LEVEL, SHARE, TURN
from gpsched.tuner.step import Observed, Step
from tests.unit.tuner.surfaces import DEFAULTS, Run, Surface, window, work


DEMAND = Demand(100.0, 365.0, 0.04, 650.0, 1)


def step(
    tuner: GpuTuner,
    settings: Settings,
    latency: float,
    progress: float | None = 0.9,
    bursts: int = 200,
    **fields: object,
) -> Step:
    jobs = fields.pop("work", work())
    expected = fields.pop("expected", None)
    seen = window(settings, latency, progress, 650.0, bursts, **fields)  # type: ignore[arg-type]
    return tuner.step(Observed(seen, jobs, DEMAND), expected)  # type: ignore[arg-type]


def settled(latency: float = 400.0) -> tuple[GpuTuner, Settings]:
    """A tuner that has measured its first settings and tries something."""
    tuner = GpuTuner()
    settings = step(tuner, DEFAULTS, latency).settings
    for _ in range(12):
        done = step(tuner, settings, latency)
        if done.phase == "explore":
            return tuner, done.settings
        settings = done.settings
    raise AssertionError("nothing was tried")


def test_a_trial_that_breaks_an_objective_is_undone_with_the_next_window() -> None:
    tuner, trial = settled()
    done = step(tuner, trial, 900.0)
    assert done.phase == "undo"
    assert done.settings != trial
    (change,) = done.changes
    assert (change.kind, change.why) == ("undo", "the trial broke an objective")
    (seen,) = done.seen
    assert seen.kind == "try"
    assert seen.seen is not None
    assert seen.seen.margin == pytest.approx(math.log(650 / 900))
    for _ in range(30):  # and remembered
        done = step(tuner, done.settings, 400.0)
        assert done.settings != trial


def test_every_change_says_what_why_and_what_is_expected() -> None:
    run = Run(Surface(650))
    run.windows(25)
    changes = [change for each in run.steps for change in each.changes]
    assert len(changes) > 3
    for change in changes:
        assert change.what
        assert change.why
        assert change.expected.progress is not None
        assert change.words != "nothing"
    told = [change for each in run.steps for change in each.seen]
    assert all(change.seen and change.seen.progress for change in told)
    assert len(told) >= len(changes) - 1


def test_a_window_teaches_nothing_when_the_load_differs() -> None:
    tuner, settings = settled()
    before = tuner.points()
    done = step(tuner, settings, 420.0, bursts=900)
    assert done.window.why_not == "the load is changing"
    assert not done.window.learned
    assert tuner.points() == before
    done = step(tuner, done.settings, 420.0, bursts=900)
    assert done.window.learned


def test_a_window_teaches_nothing_when_it_cannot_be_judged() -> None:
    tuner, settings = settled()
    cases = [
        (step(tuner, settings, 420.0, bursts=3), "too few bursts"),
        (step(tuner, settings, 420.0, progress=None), "too few bursts"),
        (step(tuner, settings | {BE_SLICE: 77}, 420.0), "not in force"),
    ]
    for done, why in cases:
        assert why in done.window.why_not
        assert not done.window.learned
    done = step(tuner, settings, 420.0, triggered=0.2)
    assert "still being learned" in done.window.why_not


def test_a_trial_that_cannot_be_judged_is_undone() -> None:
    tuner, settings = settled()
    phases = [step(tuner, settings, 420.0, bursts=3).phase for _ in range(5)]
    assert "undo" in phases


def test_a_closed_knob_is_left_alone_and_it_says_so() -> None:
    tuner, settings = settled()
    closed = work(closed={LEVEL: "reserve"})
    done = step(tuner, settings, 420.0, work=closed)
    (change,) = [change for change in done.changes if change.kind == "yield"] or [None]
    assert change is None or "administrator" in change.why
    for _ in range(20):
        assert done.settings[LEVEL] == "reserve"
        done = step(tuner, done.settings, 420.0, work=closed)


def test_without_two_sides_there_is_nothing_to_tune() -> None:
    tuner, settings = settled()
    done = step(tuner, settings, 420.0, work=work(jobs=0))
    assert (done.settings, done.phase) == ({}, "watch")


def test_another_co_runner_is_other_work() -> None:
    best = DEFAULTS | {LEVEL: "hold", TURN: 88_914}
    known = [Point(settings=best, margin=0.4, progress=0.9, load=100, windows=9, time_s=0)]
    tuner = GpuTuner(lambda key: known if key == "two" else [])
    done = step(tuner, DEFAULTS, 420.0)
    done = step(tuner, done.settings, 420.0, key="two", work=work(jobs=2))
    assert done.changes[0].kind == "start"
    assert done.settings[TURN] == 88_914
    assert tuner.key == "two"


def test_forgetting_starts_from_the_defaults() -> None:
    tuner, settings = settled()
    tuner.forget()
    done = step(tuner, settings, 420.0)
    assert done.settings[BE_SLICE] == DEFAULTS[BE_SLICE]


def test_best_effort_work_makes_room_before_a_busy_phase() -> None:
    """At eight times the load the objective cannot be kept: seen once, foretold later."""
    surface = Surface(650)
    run = Run(surface)
    run.windows(15)
    tuner, settings = run.tuner, run.settings
    for _ in range(8):  # the busy phase teaches that it breaks the objective
        done = step(tuner, settings, 700.0, 0.5, 1600)
        settings = done.settings
    for _ in range(8):
        done = step(tuner, settings, 420.0, 0.9, 200)
        settings = done.settings
    done = step(tuner, settings, 420.0, 0.9, 200, expected=800.0)
    assert float(done.settings[SHARE]) < 1.0
    assert [change.kind for change in done.changes] == ["guard"]
    again = step(tuner, done.settings, 400.0, 0.5, 200, expected=800.0)
    assert float(again.settings[SHARE]) < 1.0
    later = again
    for _ in range(5):
        later = step(tuner, later.settings, 420.0, 0.9 * float(later.settings[SHARE]), 200, expected=100.0)
    assert later.settings[SHARE] == 1.0


def test_a_guarantee_bounds_what_is_cut() -> None:
    guaranteed = work(share_floor=0.6)
    tuner = GpuTuner()
    settings: Settings = DEFAULTS
    for _ in range(12):
        settings = step(tuner, settings, 700.0, 0.9, 1600, work=guaranteed).settings
        assert float(settings[SHARE]) >= 0.6


def test_clock_steps_change_nothing() -> None:
    """Windows are counted, not dated: the same run decides the same whatever the dates are."""
    runs = []
    for dates in (range(20), [0, 1, 2, -5000, *range(4, 20)]):
        run = Run(Surface(650))
        decided = []
        for date in dates:
            done = run.one()
            decided.append(done.settings)
            msgspec.structs.replace(done.window, time_s=float(date))
        runs.append(decided)
    assert runs[0] == runs[1]


def test_misses_pause_trials() -> None:
    """Where every trial misses, few are made."""
    random = np.random.default_rng(0)
    tuner = GpuTuner()
    settings: Settings = DEFAULTS
    base: Settings | None = None
    missed = 0
    for number in range(60):
        broken = base is not None and settings != base
        missed += broken and number >= 10
        done = step(tuner, settings, (900.0 if broken else 400.0) * math.exp(random.normal(0, 0.02)))
        base = base or done.settings
        settings = done.settings
    assert missed <= 3


def test_what_piled_up_is_no_fault_of_the_settings_that_follow() -> None:
    tuner, trial = settled()
    undone = step(tuner, trial, 3000.0)
    after = step(tuner, undone.settings, 1200.0)
    assert "piled up" in after.window.why_not
    assert after.settings == undone.settings
    again = step(tuner, after.settings, 1200.0)  # but only once
    assert again.window.learned


def test_fruitless_trials_become_rare() -> None:
    """Where nothing makes a difference, it stops trying."""
    random = np.random.default_rng(0)
    tuner = GpuTuner()
    settings: Settings = DEFAULTS
    trials = []
    for _ in range(80):
        done = step(tuner, settings, 400.0 * math.exp(random.normal(0, 0.05)), 0.8 * random.normal(1.0, 0.01))
        trials.append(done.phase == "explore")
        settings = done.settings
    assert sum(trials[40:]) < 0.5 * 40
