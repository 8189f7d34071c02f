"""Explicit hints: they outrank what was learned, and their probe points exist."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from gpsched.adaptive.hints import explicit
from gpsched.adaptive.hints.learner import HintLearner
from gpsched.adaptive.hints.observations import Explicit, Launch, SyncReturn, SyncScope, WakeKind
from gpsched.adaptive.hints.outputs import Release, Reserve
from tests.unit.hints.obedient import run
from tests.unit.hints.streams import Stream, arrivals, plain_loop


HINTS = Path(explicit.__file__).parent
MAIN = """
#include "gpsched_hint.h"
void other(void);
int main(void) { gpsched_reserve_now(); gpsched_reserve_in(800); other(); return 0; }
"""
OTHER = """
#include "gpsched_hint.h"
void other(void) { gpsched_cancel(); }
"""


def loop(start: float = 1e6) -> Stream:
    rng = random.Random(1)
    return plain_loop(arrivals("poisson", 100, 200, rng, start), rng)


def test_a_hint_reserves_what_the_mechanism_needs_before_the_announced_time() -> None:
    learner = HintLearner()
    (reserve,) = (out for out in learner.observe(Explicit(1e6, 1, 800.0)) if isinstance(out, Reserve))
    assert reserve.start_us == 1e6 + 600.0
    assert reserve.until_us > 1e6 + 800.0
    (now,) = (out for out in learner.observe(Explicit(2e6, 1, 0.0)) if isinstance(out, Reserve))
    assert now.start_us == 2e6


def test_a_cancelled_hint_releases() -> None:
    learner = HintLearner()
    learner.observe(Explicit(1e6, 1, 800.0))
    assert [type(out) for out in learner.observe(Explicit(1e6 + 10, 1, cancel=True))] == [Release]


def test_hints_outrank_inference_and_inference_returns_when_they_stop() -> None:
    learner = HintLearner()
    run(learner, loop())
    assert learner.chosen().state == "sure"
    stream = loop(4e6)
    hints = [Explicit(truth.launch_us - 900.0, 10, 880.0) for truth in stream.bursts]
    stream.observations += hints
    quality = run(learner, stream, warm_up=0)
    assert quality.in_time_share >= 0.99
    assert learner.chosen().state == "explicit"
    assert [trigger.matcher.kind for trigger in learner.chosen().triggers] == [WakeKind.EXPLICIT]
    run(learner, loop(8e6))
    assert learner.chosen().state == "sure"


def test_a_hint_that_nothing_follows_is_given_up() -> None:
    learner = HintLearner()
    learner.observe(Explicit(1e6, 1, 0.0))
    outputs = learner.observe(Explicit(1e6 + 50_000.0, 1, 0.0))
    assert isinstance(outputs[0], Release)
    assert learner.report().outcome.false == 1


def test_the_patience_after_a_hint_is_learned() -> None:
    learner = HintLearner()
    for i in range(20):
        at = 1e6 + i * 100_000.0
        learner.observe(Explicit(at, 1, 500.0))
        learner.observe(Launch(at + 520.0, 1))
        learner.observe(SyncReturn(at + 900.0, 1, SyncScope.CONTEXT))
    (reserve,) = (out for out in learner.observe(Explicit(9e6, 1, 500.0)) if isinstance(out, Reserve))
    assert reserve.until_us - 9e6 < 2_000.0


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("standard", ["c11", "c++17"])
def test_the_header_gives_one_probe_point_and_no_warning(tmp_path: Path, standard: str) -> None:
    suffix, compiler = ("c", "cc") if standard == "c11" else ("cc", "c++")
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    for name, text in (("main", MAIN), ("other", OTHER)):
        (tmp_path / f"{name}.{suffix}").write_text(text)
    sources = [str(tmp_path / f"{name}.{suffix}") for name in ("main", "other")]
    program = tmp_path / "program"
    flags = [f"-std={standard}", "-O2", "-Wall", "-Wextra", "-Werror", "-I", str(HINTS / "include")]
    subprocess.run([compiler, *flags, *sources, "-o", str(program)], check=True)
    subprocess.run([str(program)], check=True)
    symbols = subprocess.run(["nm", str(program)], check=True, capture_output=True, text=True).stdout
    assert [line.split()[1] for line in symbols.splitlines() if line.endswith(" gpsched_hint")] in (["W"], ["T"])
    code = subprocess.run(["objdump", "-d", str(program)], check=True, capture_output=True, text=True).stdout
    calls = [line for line in code.splitlines() if "gpsched_hint>" in line and ("call" in line or "jmp" in line)]
    assert len(calls) >= 3  # none was optimised away


def test_python_hints_reach_the_probe_point(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(explicit, "_probe", lambda: lambda what, us: calls.append((what, us)))
    explicit.reserve_now()
    explicit.reserve_in(800.7)
    explicit.cancel()
    assert calls == [(1, 0), (1, 800), (2, 0)]
    with pytest.raises(ValueError, match="use 0 or more"):
        explicit.reserve_in(-1)


def test_python_hints_do_nothing_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(explicit, "LIBRARY", tmp_path / "missing.so")
    explicit._probe.cache_clear()
    try:
        assert not explicit.available()
        explicit.reserve_now()
    finally:
        explicit._probe.cache_clear()


@pytest.mark.skipif(shutil.which("make") is None or shutil.which("cc") is None, reason="needs make and a C compiler")
def test_the_library_of_the_python_hints_exports_the_probe_point(tmp_path: Path) -> None:
    subprocess.run(["make", "-s", "-C", str(HINTS / "native"), f"BUILD={tmp_path}"], check=True)
    script = (
        "import sys; from pathlib import Path; from gpsched.adaptive.hints import explicit\n"
        "explicit.LIBRARY = Path(sys.argv[1])\n"
        "assert explicit.available(); explicit.reserve_in(5); explicit.cancel()"
    )
    import sys

    subprocess.run([sys.executable, "-c", script, str(tmp_path / "libgpsched_hint.so")], check=True)
