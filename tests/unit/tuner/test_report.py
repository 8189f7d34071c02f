"""Reports: what they say of a history, in every form, whatever the history is like."""

import io
import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from gpsched.cli.main import main
from gpsched.tuner.history import History
from gpsched.tuner.history_file import path_in
from gpsched.tuner.model import KNOBS, Point, Window
from gpsched.tuner.report import page, table, words
from gpsched.tuner.report.build import MOST_POINTS, build, is_default
from gpsched.tuner.report.model import GpuReport, Report
from gpsched.tuner.report.source import from_history
from tests.unit.tuner import report_samples as samples


MOST_BYTES = 300_000


def report(
    windows: list[Window], changes: int = 0, points: Callable[[str], list[Point]] = lambda _key: [], notes: str = ""
) -> Report:
    return build(
        windows,
        [samples.change(number) for number in range(changes)],
        points,
        source="a test",
        from_s=samples.START_S,
        to_s=samples.START_S + 1e6,
        notes=[notes] if notes else [],
    )


def only(made: Report) -> GpuReport:
    (gpu,) = made.gpus
    return gpu


def printed(made: Report, width: int = 120) -> str:
    out = io.StringIO()
    table.print_report(made, Console(width=width, file=out))
    return out.getvalue()


def fill(state_dir: Path, windows: int, changes: int = 0) -> None:
    with History(path_in(state_dir)) as history:
        for number in range(windows):
            history.put_window(samples.window(number))
        for number in range(changes):
            history.put_change(samples.change(number))
        history.put_points(samples.KEY, [samples.point(0.9, 0.2), samples.point(0.95, -0.3, timeslice__be_us=5000)])


class TestWhatIsSaid:
    def test_objectives_kept_and_missed_are_counted(self) -> None:
        made = only(report([samples.window(0), samples.window(1, p99_us=6000), samples.window(2, limit_us=None)]))
        assert (made.kept, made.missed, made.windows) == (1, 1, 3)
        (service,) = made.services
        assert (service.kept, service.missed, service.worst_us) == (1, 1, 6000)
        assert service.triggers == {"read of descriptor 7": 1.0}

    def test_gain_is_against_the_defaults_of_the_same_work_at_like_load(self) -> None:
        default = [samples.window(n, settings=samples.DEFAULTS, progress=0.8) for n in range(3)]
        heavy = [msgspec.structs.replace(samples.window(n, progress=0.1), load=3.0) for n in range(3, 6)]
        tuned = [samples.window(n, progress=0.9) for n in range(6, 12)]
        trials = [samples.window(n, progress=0.2, trial=True) for n in range(12, 15)]
        gain = only(report(default + heavy + tuned + trials)).gain
        assert gain is not None
        assert (gain.tuned, gain.default) == (pytest.approx(0.9), pytest.approx(0.8))
        assert gain.ratio == pytest.approx(0.125)

    def test_without_default_windows_no_gain_is_claimed(self) -> None:
        made = only(report([samples.window(n) for n in range(5)]))
        assert made.gain is None
        assert any("no window to compare with" in line for line in words.summary(made))

    def test_what_the_losses_say_adds_up_to_the_whole(self) -> None:
        losses = only(report([samples.window(n, progress=0.7, busy=0.1) for n in range(5)])).losses
        assert losses is not None
        shares = (losses.best_effort, losses.services, losses.idle_reserved, losses.closed, losses.rest)
        assert sum(shares) == pytest.approx(1.0)
        assert losses.idle_reserved == pytest.approx(0.001)

    def test_rates_alone_that_were_only_estimated_claim_nothing_of_the_gpu(self) -> None:
        made = only(report([samples.window(n, progress=1.04, busy=0.2) for n in range(5)]))
        assert made.losses is None
        assert any("cannot be told" in line for line in words.summary(made))

    def test_the_level_that_auto_comes_to_is_the_default(self) -> None:
        named = {**samples.DEFAULTS, "reservations.level": "hold"}
        windows = [samples.window(0, settings=samples.DEFAULTS, progress=0.8)]
        windows += [samples.window(n, settings=named, progress=0.8) for n in range(1, 4)]
        windows += [samples.window(n, progress=0.9) for n in range(4, 8)]
        gain = only(report(windows)).gain
        assert gain is not None
        assert (gain.default_windows, gain.tuned_windows) == (4, 4)

    def test_a_time_without_windows_is_said(self) -> None:
        made = only(report([samples.window(0), samples.window(1000)]))
        (gap,) = made.gaps
        assert gap.end_s - gap.start_s == pytest.approx(999 * samples.LENGTH_S)

    def test_a_clock_that_went_back_breaks_nothing(self) -> None:
        made = report([samples.window(100), samples.window(0), samples.window(1)])
        assert only(made).windows == 3
        assert page.render(made)

    def test_every_gpu_has_its_part(self) -> None:
        made = report([samples.window(0), samples.window(0, gpu=1)])
        assert [gpu.gpu for gpu in made.gpus] == [0, 1]

    def test_a_restarted_program_is_one_service(self) -> None:
        second = samples.window(1)
        again = msgspec.structs.replace(second, lc=[msgspec.structs.replace(second.lc[0], pid=4711)])
        assert len(only(report([samples.window(0), again])).services) == 1

    @pytest.mark.parametrize("name", KNOBS)
    def test_a_setting_unlike_the_default_is_no_default(self, name: str) -> None:
        assert is_default(samples.DEFAULTS)
        other = "hold" if KNOBS[name].scale == "choice" else 700 if KNOBS[name].integer else 0.5
        assert not is_default({**samples.DEFAULTS, name: other})


class TestSuggestions:
    def texts(self, windows: list[Window], points: list[Point] | None = None) -> str:
        return "\n".join(s.text for s in only(report(windows, points=lambda _key: points or [])).suggestions)

    def test_too_little_was_seen_to_suggest_anything(self) -> None:
        assert not self.texts([samples.window(0, p99_us=9000)])

    def test_an_objective_that_is_missed_often(self) -> None:
        assert "serve missed its objective of 5 ms in 100%" in self.texts(
            [samples.window(n, p99_us=9000) for n in range(10)]
        )

    def test_what_a_wider_objective_would_give(self) -> None:
        points = [samples.point(0.8, 0.2), samples.point(0.9, -0.2, timeslice__be_us=5000), samples.point(0.99, -3.0)]
        text = self.texts([samples.window(n) for n in range(10)], points)
        assert "6.11 ms in place of 5 ms for serve would give best-effort work 10 points more progress" in text

    def test_slack_is_offered_back(self) -> None:
        text = self.texts([samples.window(n, p99_us=2000) for n in range(10)])
        assert "stayed under 2 ms" in text

    def test_a_floor_costs_what_reservations_can_no_longer_hide(self) -> None:
        text = self.texts([samples.window(n, busy=0.949) for n in range(10)])
        # 95 % asked for, 90 % allowed: 5.3 % of the bursts wait 170 µs more.
        assert "of 10% would cost serve 8.95 µs on average" in text

    def test_a_floor_that_costs_nothing(self) -> None:
        assert "up to 50% would cost nobody anything" in self.texts([samples.window(n) for n in range(10)])


class TestForms:
    def test_of_nothing(self) -> None:
        made = report([])
        assert "nothing was recorded" in printed(made)
        assert "Nothing was recorded" in page.render(made)

    def test_text_says_what_why_expected_and_seen(self) -> None:
        text = printed(report([samples.window(0)], changes=1), width=200)
        assert "be_us 1 -> 2000" in text
        assert "longer slices cost the job fewer switches" in text
        assert "progress 93.0%, latency 82% of its limit" in text
        assert "progress 92.0%, latency 80% of its limit" in text

    @pytest.mark.parametrize("width", [40, 80, 200])
    def test_text_fits_any_terminal(self, width: int) -> None:
        assert "serve" in printed(report([samples.window(n) for n in range(3)], changes=3), width)

    def test_page_of_thousands_of_windows_is_small_and_needs_nothing_else(self) -> None:
        points = [samples.point(0.5 + n / 200, 0.5 - n / 60) for n in range(60)]
        html = page.render(report(list(samples.busy_history(5000)), changes=3000, points=lambda _key: points))
        assert len(html.encode()) < MOST_BYTES
        assert html.count("<svg") == 4
        assert not re.search(r"(src|href)\s*=\s*\"(?!#)", html)
        assert "<script" not in html
        assert "2760 earlier changes are left out" in html

    def test_page_of_many_gpus_is_small(self) -> None:
        windows = [msgspec.structs.replace(window, gpu=gpu) for gpu in range(8) for window in samples.busy_history(400)]
        html = page.render(report(windows))
        assert len(html.encode()) < MOST_BYTES
        assert html.count("No plots here") == 8 - html.count("Settings in force")

    def test_names_are_escaped(self) -> None:
        html = page.render(report([samples.window(0, names=("<script>alert(1)</script>",))]))
        assert "<script" not in html

    def test_series_are_thinned_but_keep_the_worst(self) -> None:
        windows = [samples.window(n) for n in range(3000)]
        windows[1234] = samples.window(1234, p99_us=50_000)
        series = only(report(windows)).series
        assert len(series.time_s) <= MOST_POINTS
        assert max(pair[1] for pair in series.latency["serve"] if pair) == pytest.approx(10.0)

    def test_json_is_read_back_as_the_same(self) -> None:
        made = report([samples.window(n) for n in range(5)], changes=2)
        encoded = msgspec.json.encode(made)
        assert msgspec.json.decode(encoded, type=Report) == made
        assert msgspec.json.decode(encoded)["schema"] == "gpsched.report/1"

    def test_json_keys_stay(self) -> None:
        """Programs read these: a key may come, none may go."""
        raw = msgspec.json.decode(msgspec.json.encode(report([samples.window(0)], changes=1)))
        assert set(raw) >= {"schema", "source", "made_s", "from_s", "to_s", "notes", "gpus"}
        assert set(raw["gpus"][0]) >= {
            *("gpu", "model", "windows", "seconds", "kept", "missed", "phases", "unlearned", "services", "jobs"),
            *("losses", "gain", "changes", "gaps", "suggestions", "series", "trade_off"),
        }
        assert set(raw["gpus"][0]["changes"][0]) >= {"time_s", "kind", "what", "why", "expected", "seen"}


class TestFromHistory:
    def test_a_history_that_is_not_there_is_empty(self, tmp_path: Path) -> None:
        assert from_history(tmp_path, 0, 1e12).gpus == []

    def test_a_history_is_read(self, tmp_path: Path) -> None:
        fill(tmp_path, windows=10, changes=2)
        gpu = only(from_history(tmp_path, 0, 1e12))
        assert (gpu.windows, len(gpu.changes)) == (10, 2)
        assert gpu.trade_off is not None
        assert len(gpu.trade_off.points) == 2

    def test_only_the_time_asked_for(self, tmp_path: Path) -> None:
        fill(tmp_path, windows=10)
        half = samples.START_S + 5 * samples.LENGTH_S
        assert only(from_history(tmp_path, half + 0.1, 1e12)).windows == 5

    def test_a_history_cut_in_the_middle_is_said_in_one_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fill(tmp_path, windows=500)
        path = path_in(tmp_path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert main(["report", "--state-dir", str(tmp_path), "--from", "2020-01-01", "--to", "2099-01-01"]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert "cannot read the tuner's history" in lines[0]

    def test_a_history_that_was_replaced_is_said(self, tmp_path: Path) -> None:
        path_in(tmp_path).write_bytes(b"no database at all, but long enough to be looked at" * 40)
        fill(tmp_path, windows=3)
        made = from_history(tmp_path, 0, 1e12)
        assert only(made).windows == 3
        assert "kept aside" in made.notes[0]


class TestCommand:
    def test_page_and_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        fill(tmp_path, windows=4, changes=1)
        asked = ["report", "--state-dir", str(tmp_path), "--from", "2026-01-01", "--to", "2099-01-01"]
        assert main([*asked, "--html", str(tmp_path / "page.html")]) == 0
        assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
        capsys.readouterr()
        assert main([*asked, "--json"]) == 0
        assert len(msgspec.json.decode(capsys.readouterr().out)["gpus"]) == 1

    def test_the_last_hour_by_default(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with History(path_in(tmp_path)) as history:
            for age_s in (10.0, 7200.0):
                history.put_window(msgspec.structs.replace(samples.window(), time_s=time.time() - age_s))
        assert main(["report", "--state-dir", str(tmp_path), "--json"]) == 0
        assert msgspec.json.decode(capsys.readouterr().out)["gpus"][0]["windows"] == 1

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--since", "5"],
            ["--since", "5ms"],
            ["--from", "yesterday"],
            ["--from", "12:00", "--since", "1h"],
            ["--from", "2026-02-01", "--to", "2026-01-01"],
            ["--html", "/nowhere/at/all.html"],
            ["--html", "x.html", "--json"],
        ],
    )
    def test_wrong_arguments_are_one_line_and_code_2(
        self, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        try:
            code = main(["report", "--state-dir", str(tmp_path), *arguments])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        assert code == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
