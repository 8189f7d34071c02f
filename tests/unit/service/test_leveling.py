"""Which levels a process can have, and what is said of those that do not work. Its hold agent is a page of our own."""

import fcntl
import os
from collections.abc import Callable, Iterator

import pytest

from gpsched.adaptive import agents
from gpsched.adaptive.agent import page
from gpsched.adaptive.config import Reservations
from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.hints.model import Choice
from gpsched.adaptive.leveling import Levels
from gpsched.adaptive.workloads import procinfo
from gpsched.adaptive.workloads.registry import Process


class _Learner:
    """Expects of a hold twice what it expects of ``reserve``."""

    gaps = 0.0
    gain_us = 100.0
    hides_us = 120.0
    why = ""
    asked = 0

    def chosen(self) -> Choice:
        return Choice("sure", gain_us=self.gain_us, why=self.why)

    def expected(self, costs: Costs) -> tuple[float, float]:
        self.asked += 1
        return (self.hides_us / 2 if costs.keeps else self.hides_us), 0.0

    def set_costs(self, costs: Costs) -> None:
        self.costs = costs


class _Learners:
    def __init__(self) -> None:
        self.learner: _Learner | None = _Learner()

    def known(self, _pid: int) -> _Learner | None:
        return self.learner


class _Program:
    """A process with a hold agent, and what the agent writes into its page."""

    def __init__(self) -> None:
        self.file = os.memfd_create("gpsched-hold", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.file, page.BYTES)
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.write(magic=page.MAGIC, version=page.VERSION)
        self.process = Process(procinfo.read(os.getpid()), "lc", "run", "me")
        self.learners = _Learners()
        self.levels = Levels(self.learners, LEVELS)  # type: ignore[arg-type]

    def write(self, **fields: int) -> None:
        for name, value in fields.items():
            field = getattr(page.Layout, name)
            os.pwrite(self.file, value.to_bytes(field.size, "little"), field.offset)

    def choose(self, level: str = "auto", *, worth: bool = True) -> tuple[str, str]:
        settings = Reservations(level=level)  # type: ignore[arg-type]
        self.levels.choose(self.process, settings, 0.01, worth=worth, actuator=True)
        return self.process.mechanism, self.process.hint_reason

    def find(self, _pid: int) -> tuple[int, int]:
        return 77, os.dup(self.file)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Program]:
    made = _Program()
    monkeypatch.setattr(agents, "find_agent", made.find)
    yield made
    os.close(made.file)


def test_holds_need_a_context_in_which_the_agent_can_launch(program: _Program) -> None:
    level, reason = program.choose()
    assert level == "reserve"
    assert "not hold: it has no primary CUDA context" in reason
    assert program.levels.possible(program.process.pid, actuator=True) == ("timeslice", "reserve")
    program.write(ready=1)
    assert program.choose() == ("hold", "hides 120 µs of each burst's switch")
    assert program.levels.possible(program.process.pid, actuator=True) == ("timeslice", "reserve", "hold")
    assert program.levels.agents.threads() == [77]
    program.write(ready=0, failures=page.MAX_FAILURES, last_error=700)
    level, reason = program.choose()
    assert level == "reserve"
    assert "not hold: its hold agent gave up (CUDA error 700)" in reason


@pytest.mark.parametrize(
    ("wanted", "level", "told"),
    [("hold", "reserve", True), ("reserve", "reserve", False), ("timeslice", "timeslice", False)],
)
def test_what_is_wanted_and_cannot_be_is_told(program: _Program, wanted: str, level: str, told: bool) -> None:
    got, reason = program.choose(wanted)
    assert got == level
    assert ("not hold" in reason) == told


def test_holds_that_are_never_launched_are_given_up(program: _Program) -> None:
    program.write(ready=1)
    assert program.choose()[0] == "hold"
    given_up = [program.levels.held(program.process, launched=False) for _ in range(16)]
    assert given_up == [False] * 15 + [True]
    level, reason = program.choose()
    assert level == "reserve"
    assert "not hold: its holds were not launched in time" in reason


def test_holds_of_which_some_are_launched_are_kept(program: _Program) -> None:
    program.write(ready=1)
    assert not any(program.levels.held(program.process, launched=number % 10 == 0) for number in range(100))
    assert program.choose()[0] == "hold"


def test_why_a_level_was_lost_is_logged(program: _Program, caplog: pytest.LogCaptureFixture) -> None:
    program.write(ready=1)
    learner = program.learners.learner
    assert learner is not None
    program.choose()
    learner.hides_us = learner.gain_us = 0.0
    learner.why = "clock no longer announces bursts as it did"
    with caplog.at_level("INFO"):
        assert program.choose()[0] == "timeslice"
    assert "level timeslice, no trigger announces its bursts early enough" in caplog.text
    assert "(clock no longer announces bursts as it did)" in caplog.text


def test_all_levels_that_make_bursts_longer_are_told(program: _Program) -> None:
    program.write(ready=1)
    for _ in range(20):
        program.levels.ended(program.process, 100.0)
    for level in ("hold", "reserve"):
        assert program.choose()[0] == level
        assert sum(program.levels.ended(program.process, 200.0) for _ in range(32)) == 1
        meanwhile, reason = program.choose()
        assert meanwhile == "timeslice"
        assert f"not {level}: a few bursts without it are looked at" in reason
        assert sum(program.levels.ended(program.process, 100.0) for _ in range(16)) == 1
        assert program.choose()[0] == level
        assert sum(program.levels.ended(program.process, 200.0) for _ in range(32)) == 1
    level, reason = program.choose()
    assert level == "timeslice"
    assert "not hold: its bursts took longer with it than without" in reason
    assert "not reserve: its bursts took longer with it than without" in reason


def test_bursts_alone_on_the_gpu_are_no_comparison(program: _Program) -> None:
    """Best-effort work came back, bursts took longer than without it, and the level was blamed."""
    program.write(ready=1)
    assert program.choose(worth=False)[0] == "timeslice"
    for _ in range(64):
        program.levels.ended(program.process, 400.0)
    assert program.choose()[0] == "hold"
    assert not any(program.levels.ended(program.process, 430.0) for _ in range(200))


def test_nothing_is_told_before_anything_was_learned(program: _Program) -> None:
    program.learners.learner = None
    assert program.choose() == ("timeslice", "")


def _unsealed(program: _Program) -> None:
    os.close(program.file)
    program.file = os.memfd_create("gpsched-hold")
    os.ftruncate(program.file, page.BYTES)
    program.write(magic=page.MAGIC, version=page.VERSION, ready=1)


@pytest.mark.parametrize("spoil", [_unsealed, lambda p: p.write(version=page.VERSION + 1), lambda p: p.write(magic=1)])
def test_a_page_that_is_no_agents_is_not_trusted(program: _Program, spoil: Callable[[_Program], None]) -> None:
    program.write(ready=1)
    spoil(program)
    assert program.choose()[0] == "reserve"
    assert program.levels.agents.thread(program.process.pid) is None


def test_another_program_in_the_same_process_has_no_agent_yet(
    program: _Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write(ready=1)
    assert program.choose()[0] == "hold"
    monkeypatch.setattr(agents, "find_agent", lambda _pid: None)
    program.levels.agents.forget(program.process.pid)
    assert program.choose()[0] == "reserve"


def test_levels_are_weighed_anew_only_when_much_has_changed(program: _Program) -> None:
    """It costs ms: a gain that goes up and down a little, wherever it lies, is no reason."""
    learner = program.learners.learner
    assert learner is not None
    program.choose()
    asked = learner.asked
    for gain_us in (110.0, 95.0, 112.0, 88.0) * 4:
        learner.gain_us = gain_us
        program.choose()
    assert learner.asked == asked
    learner.gain_us = 130.0
    program.choose()
    assert learner.asked > asked
