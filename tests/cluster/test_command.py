"""``gpsched cluster`` from the command line: results, and one line for every bad input."""

import argparse
import json
from pathlib import Path

import pytest

from gpsched.adaptive.errors import GpschedError
from gpsched.cli import cluster
from gpsched.tuner.cluster.report import COLUMNS


DATA = Path(__file__).parent / "data"
SMALL = ("--days", "1", "--scale", "0.02", "--quiet")


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    cluster.add_parser(parser.add_subparsers())
    args = parser.parse_args(["cluster", *words])
    return int(args.run(args))


def test_simulate_writes_json_and_a_page_without_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, html = tmp_path / "r.json", tmp_path / "r.html"
    assert command("simulate", "--arm", "fifo", *SMALL, "--out", str(out), "--html", str(html)) == 0
    assert "fifo" in capsys.readouterr().out
    data = json.loads(out.read_text())
    assert set(COLUMNS) <= set(data["results"][0]["figures"])
    assert {"command", "date", "machine"} <= set(data["about"])
    page = html.read_text()
    assert page.count("<svg") == 2
    assert "http://www.w3.org" in page
    assert "src=" not in page
    assert "href=" not in page.replace("xlink:href=", "")


def test_compare_then_report_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.json"
    arms = "fifo-skip,ours"
    assert command("compare", "--arms", arms, "--seeds", "2", *SMALL, "--out", str(out), "--markdown") == 0
    first = capsys.readouterr().out
    assert "| fifo-skip | evictions |" in first
    assert command("report", str(out), "--markdown") == 0
    assert capsys.readouterr().out == first


def test_arms_of_two_files_are_reported_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, both = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    assert command("simulate", "--arm", "fifo-skip", *SMALL, "--out", str(first)) == 0
    assert command("simulate", "--arm", "ours", *SMALL, "--out", str(second)) == 0
    capsys.readouterr()
    assert command("report", str(first), str(second), str(first), "--out", str(both), "--markdown") == 0
    shown = capsys.readouterr().out
    assert "| fifo-skip | evictions |" in shown, "ours is judged against an arm of another file"
    data = json.loads(both.read_text())
    assert [one["policy"] for one in data["results"]] == ["fifo-skip", "ours"]
    assert command("report", str(both), "--markdown") == 0
    assert capsys.readouterr().out == shown


def test_forecast_scores_an_excerpt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "alibaba-v2026-spot-gpu/derived-mit"
    folder.mkdir(parents=True)
    (folder / "hourly_concurrency_top_models.csv").write_text((DATA / "demand_by_model_excerpt.csv").read_text())
    words = ("--traces", str(tmp_path), "--train-hours", "300", "--test-hours", "20", "--quiet")
    html = tmp_path / "f.html"
    assert command("forecast", *words, "--html", str(html)) == 0
    assert "H800" in capsys.readouterr().out
    assert html.read_text().count("<svg") == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("simulate", "--arm", "nope"), "unknown arm 'nope'; known: clairvoyant"),
        (("compare", "--arms", "ours,nope"), "unknown arm"),
        (("simulate", "--scenario", "mars", "--quiet"), "unknown scenario 'mars'"),
        (("simulate", "--scenario", "philly", "--quiet"), "needs --traces"),
        (("simulate", "--scenario", "gfs", "--traces", "/nonexistent", "--quiet"), "cannot be read"),
        (("simulate", "--out", "/nonexistent/x.json"), "create it first"),
        (("report", "/nonexistent.json"), "no result file"),
        (("report", __file__), "no result file"),
        (("forecast", "--traces", "/nonexistent"), "cannot be read"),
        (("control", "--spot-qos", "a b", "--once"), "no QOS name"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(GpschedError, match=says) as found:
        command(*words)
    assert "\n" not in str(found.value)
    assert found.value.exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "--days", "-1"),
        ("simulate", "--days", "x"),
        ("simulate", "--spot-load", "0"),
        ("compare", "--seeds", "0"),
        ("forecast", "--traces", ".", "--level", "1.5"),
        ("control", "--engine", "k8s"),
        (),
    ],
)
def test_bad_numbers_are_usage_errors(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as found:
        command(*words)
    assert found.value.code == 2


def test_control_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GpschedError, match="is Slurm installed"):
        command("control", "--once", "--state-dir", str(tmp_path / "state"))
