"""The proof of the tuner on the embedded GPU's engine in virtual time: deterministic, no clock, no root."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpsched.adaptive.knobs import Settings
from gpsched.bench.tuner import mix as mixes
from gpsched.bench.tuner import proof
from gpsched.bench.tuner import result as results
from gpsched.bench.tuner.bed import VirtualBed, actuate, defaults
from gpsched.bench.tuner.control import Actuation
from gpsched.bench.tuner.mix import Mix
from gpsched.bench.tuner.players import OptunaMissingError


pytestmark = pytest.mark.sim


@pytest.fixture
def web() -> Mix:
    return mixes.load(["web"])["web"]


def windows(mix: Mix, how: Settings | Actuation, count: int = 2, *, changed: bool = False) -> tuple[float, float]:
    """Mean progress and mean latency over the limit."""
    with VirtualBed(mix) as bed:
        if changed:
            bed.change()
        taken = [bed.window(how) for _ in range(count)]
    latencies = [one.latency for one in taken if one.latency is not None]
    return sum(one.progress for one in taken) / count, sum(latencies) / len(latencies)


def level(name: str, **values: float) -> Settings:
    return {
        **defaults(),
        "reservations.level": name,
        **{key.replace("__", "."): value for key, value in values.items()},
    }


def test_the_same_seed_gives_the_same_windows(web: Mix) -> None:
    assert windows(web, defaults()) == windows(web, defaults())


def test_levels_give_what_was_measured_on_an_h200(web: Mix) -> None:
    """Rows of docs/simgpu.md with 200 µs of preparation: default 2645, slices of 1 µs 572, hold x2 about 400 µs."""
    limit = web.limits_us()[0]
    assert windows(web, Actuation())[1] * limit == pytest.approx(2645, rel=0.06)
    assert windows(web, level("timeslice"))[1] * limit == pytest.approx(572, rel=0.06)
    assert windows(web, level("hold"))[1] * limit == pytest.approx(400, rel=0.06)


def test_reservations_cost_the_job_and_shares_cost_it_more(web: Mix) -> None:
    switch, reserve = windows(web, level("timeslice"))[0], windows(web, level("reserve"))[0]
    half = windows(web, level("timeslice", reservations__be_share=0.5))[0]
    assert half < reserve < switch
    assert half == pytest.approx(0.5 * switch, rel=0.03)


def test_two_jobs_starve_at_short_slices_without_turns_and_share_with_them() -> None:
    pair = mixes.load(["pair"])["pair"]
    assert windows(pair, Actuation(level="timeslice", lc_slice_us=1_000_000, be_slice_us=1))[0] < 0.01
    assert windows(pair, level("timeslice"))[0] > 0.45


def test_keeping_the_gpu_through_short_gaps_helps_service_and_job() -> None:
    decode = mixes.load(["decode"])["decode"]
    gaps, kept = windows(decode, level("reserve")), windows(decode, level("reserve", reservations__quiet_extra_us=300))
    assert kept[0] > gaps[0]
    assert kept[1] < gaps[1]


def test_more_load_takes_more_of_the_gpu(web: Mix) -> None:
    assert windows(web, defaults(), changed=True)[0] < windows(web, defaults())[0]


def test_without_an_agent_nothing_is_held() -> None:
    eager = mixes.load(["eager"])["eager"]
    assert actuate(level("hold"), eager, ("timeslice", "reserve")).level == "timeslice"


def test_the_whole_proof_runs_and_its_arms_see_the_same_requests(web: Mix) -> None:
    options = proof.Options(arms=("driver", "gpsched", "random", "tuner"), windows=(8, 6), seeds=1, coarse=True)
    seen: list[int] = []
    result = proof.run({"web": web}, options, kept=lambda so_far: seen.append(len(so_far.mixes)))
    (found,) = result.mixes
    assert set(seen) == {1}
    assert found.before.best is not None
    assert {run.arm for run in found.runs} == {"oracle", "driver", "gpsched", "random", "tuner", "warm"}
    assert all(len(run.spots) == 14 for run in found.runs if run.arm not in ("warm", "oracle"))
    cold = {one.arm: one for one in found.judge("cold")}
    assert cold["driver"].within is None  # it misses its objective all the time
    assert cold["tuner"].within is not None
    again = proof.run({"web": web}, msgspec.structs.replace(options, earlier=result.by_identity()))
    assert again.mixes[0].before == found.before
    kept = {run.arm for run in again.mixes[0].runs if run in found.runs}
    assert {"oracle", "driver", "gpsched", "random"} <= kept
    told = [spot.told for run in found.runs for spot in run.spots]
    assert all(told)  # and the tuner was told what was measured
    assert all(spot.told == pytest.approx(spot.latency, rel=0.1) for run in found.runs for spot in run.spots)


def test_objectives_may_be_fitted_to_a_gpu_before_anything_is_measured(web: Mix) -> None:
    wide = msgspec.structs.replace(web, lc=[msgspec.structs.replace(web.lc[0], slo="9ms")])
    options = proof.Options(arms=("gpsched",), windows=(5, 0), seeds=1, coarse=True)
    (found,) = proof.run({"web": web}, options, fitted=lambda _mix: wide).mixes
    assert found.limits_us == [9000.0]
    assert found.before.best is not None
    assert found.before.best.latency is not None
    assert found.before.best.latency < 0.5


def test_without_optuna_nothing_is_measured_for_nothing(web: Mix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    kept: list[proof.TunerResult] = []
    with pytest.raises(OptunaMissingError):
        proof.run({"web": web}, proof.Options(arms=("gpsched", "tpe"), windows=(5, 0)), kept=kept.append)
    assert not kept


def test_a_run_that_is_interrupted_keeps_every_window_it_has(web: Mix) -> None:
    options = proof.Options(arms=("gpsched", "tuner"), windows=(8, 0), static_windows=5, seeds=1, coarse=True)
    kept: list[proof.TunerResult] = []

    def interrupt(so_far: proof.TunerResult) -> None:
        kept.append(so_far)
        if any(run.arm == "tuner" and len(run.spots) == 6 for mix in so_far.mixes for run in mix.runs):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        proof.run({"web": web}, options, kept=interrupt)
    (found,) = kept[-1].mixes
    assert found.before.best is not None
    assert {run.arm: len(run.spots) for run in found.runs} == {"oracle": 5, "tuner": 6}
    assert len(kept[5].mixes[0].before.tried) > 0  # of the grid, too


def test_a_run_that_is_limited_ends_by_itself_with_what_it_has(tmp_path: Path) -> None:
    """All mixes take minutes."""
    path = tmp_path / "result.json"
    command = [sys.executable, "-P", "-m", "gpsched.cli.main", "bench", "tuner"]
    command += ["--limit", "5", "--arms", "gpsched", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "ended before its time" in done.stderr
    assert done.returncode in (0, 1)
    found = results.read(path)
    assert 1 <= len(found.mixes) < len(mixes.names())
    assert found.mixes[0].before.tried
