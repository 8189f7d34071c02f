"""Figures, JSON, comparison, table and page of a benchmark's result."""

import io
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from gpsched.adaptive.errors import ConfigError, UsageError
from gpsched.bench import outcome, stats
from gpsched.bench.compare import compare, judge
from gpsched.bench.figures import overall_be
from gpsched.bench.report import render
from gpsched.bench.stats import Interval, Ratio
from gpsched.bench.table import foreseen, print_result
from gpsched.cli.main import main
from tests.unit.bench.bench_samples import result


def test_figures_compare_with_the_right_arms() -> None:
    point = result().scenarios[0].points[0]
    managed, native = point.arm("gpsched"), point.arm("default")
    assert managed is not None
    assert native is not None
    (lc,) = managed.lc
    assert lc.mean_over_alone is not None
    assert lc.mean_over_alone.value == pytest.approx(400 / 380, rel=0.005)
    assert lc.mean_over_alone.interval.low < 400 / 380 < lc.mean_over_alone.interval.high
    assert (lc.slo_us, lc.slo_misses) == (1000.0, 0)
    assert native.lc[0].slo_misses == 1200
    assert managed.be[0].over_native == pytest.approx(9402 / 9508, rel=0.005)
    assert overall_be(managed, native) == managed.be[0].over_native
    assert managed.daemon_cpu == pytest.approx(0.05)
    assert managed.switches_per_s == pytest.approx(200)


def test_interval_counts_what_differs_from_block_to_block() -> None:
    generator = np.random.default_rng(1)
    calm = [generator.normal(100, 1, 200) for _ in range(5)]
    drifting = [generator.normal(100 + 10 * index, 1, 200) for index in range(5)]
    base = [generator.normal(100, 1, 200)]
    narrow, wide = (stats.block_ratio(blocks, base, stats.mean).interval for blocks in (calm, drifting))
    assert (wide.high - wide.low) > 10 * (narrow.high - narrow.low)


def test_json_round_trip_and_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    outcome.write(result(), path)
    assert outcome.read(path) == result()
    path.write_text('{"schema": "gpsched.bench/9"}')
    with pytest.raises(ConfigError, match=r"gpsched\.bench/9"):
        outcome.read(path)
    path.write_text("nonsense")
    with pytest.raises(ConfigError, match="not a result"):
        outcome.read(path)
    with pytest.raises(ConfigError, match="not a result"):
        outcome.read(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.03, 1.2, "worse"), (0.99, 1.2, "same"), (1.001, 1.01, "same"), (0.8, 0.97, "better"), (0.8, 0.99, "same")],
)
def test_verdict_needs_the_whole_interval_beyond_the_tolerance(low: float, high: float, verdict: str) -> None:
    assert judge(Ratio(value=(low + high) / 2, interval=Interval(low, high)), 0.02, rising="worse") == verdict


def test_the_same_measured_twice_is_no_change() -> None:
    assert {change.verdict for change in compare(result(), result(), 0.02).changes} == {"same"}


def test_slower_service_and_slower_job_are_regressions_of_their_arm_only() -> None:
    comparison = compare(result(), result(gpsched_us=440, units=8000), 0.02)
    worse = comparison.regressions({"gpsched"})
    assert {change.figure for change in worse} == {"mean", "p99", "rate"}
    assert comparison.regressions({"default"}) == []
    faster = compare(result(gpsched_us=440), result(), 0.02)
    assert {change.figure for change in faster.changes if change.verdict == "better"} == {"mean", "p99"}


def test_what_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="same GPU"):
        compare(result(), result(gpu="other"), 0.02)
    with pytest.raises(UsageError, match="no scenario and arm in common"):
        compare(result(values=(1.0,)), result(values=(2.0,)), 0.02)
    assert "x at 2 gpsched" in compare(result(values=(1.0, 2.0)), result(values=(1.0,)), 0.02).missing


def shown(one: outcome.BenchResult) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    print_result(one, console)
    return console.export_text()


def test_table_fits_80_columns_and_says_what_is_wrong() -> None:
    text = shown(result(wrong=3, error="it died"))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for said in ("skipped freeze: no <cgroup>", "2 events were lost", "STATE CORRUPTED: BE job", "FAILED: it died"):
        assert said in text
    assert "only" not in shown(result())  # 1200 requests are enough


def test_each_service_is_told_how_well_it_was_foreseen() -> None:
    line = (
        "gpsched: service foreseen by socket_read, lead 500/520/600 µs; learned after 17 bursts; 95.5% 200 µs ahead "
        "(99.2% of the 96.0% whose lead allows it); 0.0% in vain; 0.7% idle; control after 30/120 µs"
    )
    one = result()
    assert foreseen(one.scenarios[0].points[0]) == [line]
    assert " ".join(shown(one).split()).count(line) == 1
    assert line in render(one)
    nothing = outcome.Hints(
        trigger=None, lead_us={}, learned_after=None, early_share=None, in_vain_share=None, wasted_share=None
    )
    (managed,) = (arm for arm in one.scenarios[0].points[0].arms if arm.arm == "gpsched")
    unforeseen = msgspec.structs.replace(managed, lc=[msgspec.structs.replace(managed.lc[0], hints=nothing)])
    point = msgspec.structs.replace(one.scenarios[0].points[0], arms=[unforeseen])
    assert foreseen(point) == ["gpsched: service is not foreseen: nothing announces its bursts"]


def test_results_from_before_hints_were_judged_can_be_read(tmp_path: Path) -> None:
    raw = msgspec.to_builtins(result())
    for arm in raw["scenarios"][0]["points"][0]["arms"]:
        for lc in arm["lc"]:
            del lc["hints"]
            lc["reserved"] = {"reservations": 1, "hidden_us": 1.0, "wasted_us": 1.0}
    (tmp_path / "old.json").write_bytes(msgspec.json.encode(raw))
    old = outcome.read(tmp_path / "old.json").scenarios[0].points[0]
    assert [arm.lc[0].hints for arm in old.arms] == [None, None, None]
    assert old.arms[0].lc[0].reserved == outcome.Reserved(reservations=1, hidden_us=1.0, wasted_us=1.0)


def test_page_needs_nothing_else_and_escapes() -> None:
    page = render(result(values=(50.0, 100.0), error="it <died>"))
    assert page.count("<svg") == 1 + 2 * 2  # the sweep, and for each point latencies and trade-off
    assert "sample &lt;b&gt;" in page
    assert "it &lt;died&gt;" in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"|<!DOCTYPE[^>]*>|rdf:\w+="[^"]*"', "", page)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after, page = (tmp_path / name for name in ("a.json", "b.json", "p.html"))
    outcome.write(result(), before)
    outcome.write(result(gpsched_us=500), after)
    assert main(["bench", "compare", str(before), str(before)]) == 0
    assert main(["bench", "compare", str(before), str(after)]) == 1
    assert main(["bench", "compare", str(before), str(after), "--judge", "default"]) == 0
    assert main(["bench", "compare", str(before), str(after), "--tolerance", "50%"]) == 0
    assert main(["bench", "report", str(before), str(page)]) == 0
    assert "<svg" in page.read_text()
    assert main(["bench", "list"]) == 0
    assert main(["bench", "show", "A"]) == 0
    output = capsys.readouterr()
    assert "GPreempt" in output.out
    assert main(["bench", "show", "nothing"]) == 2
    assert main(["bench", "run", "A", "--arms", "magic"]) == 2
    assert main(["bench", "run", "A", "--json", "/nonexistent/x"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 3
    assert "no arm 'magic'" in lines[1]
