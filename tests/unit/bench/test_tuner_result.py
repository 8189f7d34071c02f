"""What the proof of the tuner says of its windows: reached, settled, missed; and its forms."""

from pathlib import Path

import msgspec
import pytest

from gpsched.adaptive.errors import ConfigError, UsageError
from gpsched.bench.result import Host
from gpsched.bench.tuner import mix as mixes
from gpsched.bench.tuner.bed import worst_over_limit
from gpsched.bench.tuner.oracle import GridPoint, Oracle, grid, promising
from gpsched.bench.tuner.proof import Options
from gpsched.bench.tuner.report import figure, markdown, page
from gpsched.bench.tuner.result import MixResult, Run, Spot, TunerResult, read, write


def run(arm: str, progress: list[float], missed: tuple[int, ...] = (), seed: int = 1) -> Run:
    spots = [
        Spot(progress=value, latency=1.5 if at in missed else 0.7, missed=at in missed)
        for at, value in enumerate(progress)
    ]
    return Run(arm=arm, seed=seed, spots=spots)


def mix_result(*runs: Run, change_at: int = 30) -> MixResult:
    best = GridPoint(settings={}, progress=0.9, latency=0.7, missed=0.0, windows=10)
    return MixResult(
        name="web",
        title="a mix",
        change="more of it",
        limits_us=[1000.0],
        window_s=2.0,
        change_at=change_at,
        before=Oracle(best=best, tried=[best]),
        after=Oracle(best=None, tried=[]),
        runs=list(runs),
    )


def result(*mixes_: MixResult) -> TunerResult:
    host = Host(
        date="2026-01-01T00:00:00+00:00", kernel="6", gpu="embedded GPU", driver="simulated", simulated=True, scale=1.0
    )
    return TunerResult(host=host, command=["gpsched"], how="a test", mixes=list(mixes_))


ORACLE = run("oracle", [0.9] * 50)


class TestJudgement:
    def test_an_arm_that_climbs_is_there_when_five_windows_are(self) -> None:
        climbing = run("tuner", [0.5] * 7 + [0.9] * 43)
        (cold,) = mix_result(ORACLE, climbing).judge("cold")
        assert cold.within == 7
        assert cold.settled == pytest.approx(1.0)

    def test_an_arm_that_gains_by_missing_is_not_there(self) -> None:
        greedy = run("tpe", [1.0] * 50, missed=tuple(range(50)))
        (cold,) = mix_result(ORACLE, greedy).judge("cold")
        assert cold.within is None
        assert cold.missed == 1.0

    def test_misses_of_the_first_ten_windows_do_not_count(self) -> None:
        (cold,) = mix_result(ORACLE, run("tuner", [0.9] * 50, missed=(0, 3, 9, 20))).judge("cold")
        assert cold.missed == pytest.approx(1 / 20)

    def test_after_the_change_windows_count_from_there(self) -> None:
        slow = run("tuner", [0.9] * 30 + [0.2] * 4 + [0.9] * 16)
        (changed,) = mix_result(ORACLE, slow).judge("changed")
        assert changed.within == 4

    def test_the_worst_seed_tells_how_long_it_takes(self) -> None:
        second = run("oracle", [0.9] * 50, seed=2)
        runs = [ORACLE, second, run("tuner", [0.9] * 50), run("tuner", [0.1] * 9 + [0.9] * 41, seed=2)]
        (cold,) = mix_result(*runs).judge("cold")
        assert cold.within == 9

    def test_warm_runs_are_judged_by_an_oracle_of_their_own_requests(self) -> None:
        runs = [ORACLE, run("tuner", [0.9] * 50), run("oracle", [0.5] * 15, seed=7), run("warm", [0.5] * 15, seed=7)]
        (warm,) = mix_result(*runs).judge("warm")
        assert (warm.arm, warm.within) == ("warm", 0)

    def test_an_oracle_of_fewer_windows_stands_for_all_of_them(self) -> None:
        short = run("oracle", [0.8, 0.9, 1.0])
        (cold,) = mix_result(short, run("tuner", [0.9] * 30)).judge("cold")
        assert (cold.within, cold.settled) == (0, pytest.approx(1.0))

    def test_an_arm_of_fewer_windows_changes_when_it_says(self) -> None:
        static = msgspec.structs.replace(run("gpsched", [0.9] * 4 + [0.45] * 4), change_at=4)
        found = mix_result(ORACLE, static)
        assert found.judge("cold")[0].settled == pytest.approx(1.0)
        assert found.judge("changed")[0].settled == pytest.approx(0.5)

    def test_what_was_not_run_is_not_judged(self) -> None:
        cut_short = mix_result(run("oracle", [0.9] * 10), run("tuner", [0.9] * 10))
        assert [one.arm for one in cut_short.judge("cold")] == ["tuner"]
        assert cut_short.judge("changed") == []
        assert mix_result().judge("cold") == []
        assert "| web | tuner | 0 | 1.000 | 0.0% | - | - | - |" in markdown(result(cut_short))

    def test_targets_are_counted_over_mixes(self) -> None:
        good = mix_result(ORACLE, run("tuner", [0.9] * 50))
        bad = mix_result(ORACLE, run("tuner", [0.1] * 50))
        found = result(good, bad)
        assert {counts for what, counts in found.met().items() if "oracle" in what} == {(1, 2)}
        assert not found.ok
        assert result(good).ok


class TestForms:
    found = result(mix_result(ORACLE, run("driver", [0.8] * 50, missed=(1, 40)), run("tuner", [0.9] * 50)))

    def test_json_is_read_back_as_the_same(self, tmp_path: Path) -> None:
        write(self.found, tmp_path / "r.json")
        assert read(tmp_path / "r.json") == self.found
        assert msgspec.json.decode((tmp_path / "r.json").read_bytes())["schema"] == "gpsched.tuner-bench/1"

    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "r.json").write_text("[1, 2]")
        with pytest.raises(ConfigError, match="no result of gpsched bench tuner"):
            read(tmp_path / "r.json")

    def test_page_needs_nothing_else(self) -> None:
        html = page(self.found)
        assert html.count("<svg") == 1
        assert 'href="http' not in html
        assert "<script" not in html

    def test_markdown_has_a_row_an_arm(self) -> None:
        text = markdown(self.found)
        assert "| web | driver | never |" in text
        assert "| web | tuner | 0 | 1.000 | 0.0% |" in text

    def test_figure_is_the_same_for_the_same_data(self) -> None:
        assert figure(self.found.mixes[0]) == figure(self.found.mixes[0])


class TestMixes:
    def test_at_least_eight_come_with_gpsched(self) -> None:
        assert len(mixes.names()) >= 8
        for mix in mixes.load(mixes.names()).values():
            assert mix.jobs(True) > mix.jobs(False) or mix.rates(True) > mix.rates(False)

    def test_an_unknown_one_is_answered_with_the_nearest(self) -> None:
        with pytest.raises(UsageError, match="did you mean 'decode'"):
            mixes.load(["decod"])

    def test_a_wrong_key_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "m.toml").write_text('title = "x"\nwindow = 2\n')
        with pytest.raises(ConfigError, match="did you mean 'window_s'"):
            mixes.load([str(tmp_path / "m.toml")])

    def test_a_service_without_objective_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "m.toml").write_text('title = "x"\n[[lc]]\nrate = 5\n[[be]]\n[after]\nwhat = "more"\nload = 2\n')
        with pytest.raises(ConfigError, match="rate, slo and kernels"):
            mixes.load([str(tmp_path / "m.toml")])

    def test_an_unknown_arm_is_refused(self) -> None:
        with pytest.raises(UsageError, match="no arm 'tea'"):
            Options(arms=("tea",))


def test_few_requests_judge_nothing() -> None:
    (mix,) = mixes.load(["web"]).values()
    assert worst_over_limit(mix, [[100.0] * 19]) is None
    assert worst_over_limit(mix, [[500.0] * 99 + [2000.0]]) == pytest.approx(0.5)
    assert worst_over_limit(mix, [[500.0] * 90 + [2000.0] * 10]) == pytest.approx(2.0)


def test_the_grid_goes_through_levels_slices_and_turns() -> None:
    settings = list(grid(("timeslice", "reserve", "hold"), 2))
    assert len({str(one) for one in settings}) == len(settings)
    assert {one["reservations.level"] for one in settings} == {"timeslice", "reserve", "hold"}
    assert len({one["reservations.turn_us"] for one in settings}) > 1
    assert len({one["reservations.turn_us"] for one in grid(("timeslice",), 1)}) == 1


def test_what_gave_most_and_nearly_kept_the_objectives_is_tried_again_after_a_change() -> None:
    tried = [
        GridPoint(settings={"timeslice.be_us": n}, progress=n / 100, latency=latency, missed=0.0, windows=1)
        for n, latency in enumerate([0.5] * 20 + [1.2, 1.3, None])
    ]
    assert [one["timeslice.be_us"] for one in promising(tried)] == list(range(20, 8, -1))
