"""A search for settings that keep the objectives gives up where there are none: ever rarer, until something changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.tuner.patience import Patience, Patiences
from gpsched.tuner.space import LEVEL, SHARE
from gpsched.tuner.step import Step
from tests.unit.tuner.surfaces import ALONE_US, DEFAULTS, Run, Surface, work


def attempts(patience: Patience, windows: int) -> list[int]:
    """Windows in which attempts are made when nothing else hinders."""
    made = []
    for window in range(windows):
        if not patience.waits():
            made.append(window)
            patience.spend()
    return made


def trials(steps: list[Step]) -> int:
    return sum(step.phase == "explore" for step in steps)


@given(st.integers(1, 5000))
def test_attempts_grow_as_the_logarithm_of_time_then_come_at_an_even_pace(windows: int) -> None:
    made = attempts(Patience(100.0), windows)
    assert len(made) <= 8 + np.log2(windows) + 2 + windows / 512
    pauses = np.diff(made)
    assert (np.diff(pauses) >= 0).all()
    assert pauses.max(initial=0) <= 512


def test_loads_are_told_apart_and_what_changed_makes_them_new() -> None:
    several = Patiences()
    attempts(several.at(100.0), 200)
    assert several.at(110.0).left > 0
    assert several.at(200.0).left == 0
    assert several.at(100.0).left > 0  # coming back to it is nothing new
    several.renew(200.0)
    assert several.at(100.0).left > 0
    several.renew()
    assert several.at(100.0).left == 0


@pytest.mark.parametrize("limit_us", [120.0, 0.7 * ALONE_US, 0.95 * ALONE_US])
def test_where_nothing_keeps_the_objective_it_gives_up_and_best_effort_work_loses_nothing(limit_us: float) -> None:
    run = Run(Surface(limit_us))
    run.windows(150)
    assert trials(run.steps[60:]) <= 4
    full = run.surface.progress(DEFAULTS | {LEVEL: "hold"})
    assert np.mean(run.reached[60:]) > 0.97 * full
    assert run.settings[SHARE] == 1.0
    notes = [step.note for step in run.steps[60:] if step.note]
    assert len(notes) > 80
    assert all(note.startswith("nothing tried keeps the objectives; next attempt in") for note in notes)


def test_where_objectives_are_kept_without_much_to_spare_safety_is_looked_for_rarely() -> None:
    surface = Surface(1.022 * (ALONE_US + 15), noise=(0.012, 0.006))  # less to spare than two deviations of a window
    run = Run(surface)
    run.windows(120)
    looked = [change for step in run.steps[50:] for change in step.changes if change.why.startswith("nothing known")]
    assert len(looked) <= 8
    assert sum(run.missed[10:]) <= 8  # the settings' own noise makes 4 of 110 miss
    assert np.mean(run.reached[50:]) > 0.97 * surface.progress(DEFAULTS | {LEVEL: "hold"})


def test_another_load_is_tried_anew_but_not_each_time_that_it_comes() -> None:
    surface = Surface(120.0)
    run = Run(surface)
    run.windows(80)
    surface.rate_hz = 300.0
    run.windows(50)
    assert trials(run.steps[80:]) >= 1
    before = len(run.steps)
    for rate_hz in (100.0, 300.0) * 3:
        surface.rate_hz = rate_hz
        run.windows(15)
    assert trials(run.steps[before:]) <= 10  # of 90


def test_another_co_runner_is_tried_anew() -> None:
    surface = Surface(120.0)
    run = Run(surface)
    run.windows(80)
    surface.jobs, run.work = 2, work(2)
    run.windows(20)
    assert trials(run.steps[80:]) >= 4
