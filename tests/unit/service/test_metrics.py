"""Metrics, read back by Prometheus' own parsers, and the places that they go to."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from gpsched.adaptive import publisher as publisher_module
from gpsched.adaptive.config import Metrics
from gpsched.adaptive.export import openmetrics
from gpsched.adaptive.histogram import BOUNDS_US, DurationHistogram, quantile
from gpsched.adaptive.publisher import Publisher
from tests.tui import scene


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    publisher = Publisher()
    yield publisher
    publisher.close()


def _samples(text: str) -> dict[tuple[str, str], float]:
    """(name, pid or other first label) -> value."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        (sample.name, next((sample.labels[key] for key in ("pid", "gpu", "state") if key in sample.labels), "")): (
            sample.value
        )
        for sample in samples
        if "le" not in sample.labels
    }


def _get(publisher: Publisher, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{publisher.port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def test_a_scrape_has_everything_in_base_units(publisher: Publisher) -> None:
    publisher.configure(Metrics(listen="127.0.0.1:0"))
    publisher.tick(lambda: scene.snapshot(3))
    text = _get(publisher, "/metrics")
    samples = _samples(text)
    assert samples["gpsched_process_calls_total", "200"] == 6000
    assert samples["gpsched_process_objective_seconds", "100"] == 0.005
    assert samples["gpsched_process_timeslice_seconds", "200"] == 1e-6
    assert samples["gpsched_process_gpu_ratio", "200"] == 0.62
    assert samples["gpsched_process_reservations_total", "100"] == 30
    assert samples["gpsched_process_wasted_seconds_total", "100"] == pytest.approx(120e-6)
    assert samples["gpsched_process_latency_seconds_count", "100"] == 100
    assert samples["gpsched_process_latency_seconds_sum", "100"] == pytest.approx((99 * 500 + 900) / 1e6)
    assert samples["gpsched_gpu_power_watts", "0"] == 412
    assert samples["gpsched_health", "ok"] == 1
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("gpsched_")
        assert family.documentation


def test_histogram_buckets_are_cumulative_and_end_at_infinity(publisher: Publisher) -> None:
    publisher.configure(Metrics(listen="127.0.0.1:0"))
    publisher.tick(lambda: scene.snapshot(1))
    families = text_string_to_metric_families(_get(publisher, "/metrics"))
    family = next(family for family in families if family.name == "gpsched_process_latency_seconds")
    buckets = [(s.labels["le"], s.value) for s in family.samples if s.labels.get("pid") == "100" and "le" in s.labels]
    assert len(buckets) == len(BOUNDS_US) + 1
    assert buckets[-1] == ("+Inf", 100)
    values = [value for _, value in buckets]
    assert values == sorted(values)
    assert dict(buckets)["0.000512"] == 99


def test_openmetrics_parses_too() -> None:
    families = {family.name for family in parse_openmetrics("".join(openmetrics([scene.snapshot(1)])))}
    assert {"gpsched_build", "gpsched_process_latency_seconds", "gpsched_process_calls"} <= families


def test_labels_with_quotes_and_newlines_survive(publisher: Publisher) -> None:
    odd = 'a"b\\c\nd'
    publisher.configure(Metrics(listen="127.0.0.1:0"))
    publisher.tick(lambda: scene.snapshot(1, processes=[scene.process(1, odd, "be", tenant=odd)]))
    samples = [s for f in text_string_to_metric_families(_get(publisher, "/metrics")) for s in f.samples]
    assert {sample.labels["name"] for sample in samples if "name" in sample.labels} == {odd}


def test_nothing_is_taken_or_opened_when_off(publisher: Publisher) -> None:
    publisher.configure(Metrics())
    publisher.tick(lambda: pytest.fail("no snapshot is needed"))
    assert publisher.port is None


def test_health_fails_once_the_loop_stands_still(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher.configure(Metrics(listen="127.0.0.1:0"))
    publisher.tick(lambda: scene.snapshot(1))
    assert _get(publisher, "/healthz") == "ok\n"
    monkeypatch.setattr(publisher_module, "_STALE_S", 0.0)
    with pytest.raises(urllib.error.HTTPError, match="503"):
        _get(publisher, "/healthz")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        _get(publisher, "/")


def test_the_textfile_is_whole_and_goes_with_the_daemon(publisher: Publisher, tmp_path: Path) -> None:
    path = tmp_path / "gpsched.prom"
    publisher.configure(Metrics(textfile=str(path)))
    publisher.tick(lambda: scene.snapshot(1))
    assert _samples(path.read_text())["gpsched_process_calls_total", "200"] == 2000
    assert [file.name for file in tmp_path.iterdir()] == ["gpsched.prom"]
    publisher.close()
    assert not path.exists()


def test_places_that_cannot_be_used_are_said(
    publisher: Publisher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publisher.configure(Metrics(listen="192.0.2.1:9", textfile=str(tmp_path / "none/x.prom")))
    publisher.tick(lambda: scene.snapshot(1))
    assert "no metrics on 192.0.2.1:9" in caplog.text
    assert "cannot write metrics" in caplog.text


def test_a_reload_moves_the_endpoint(publisher: Publisher) -> None:
    publisher.configure(Metrics(listen="127.0.0.1:0"))
    first = publisher.port
    publisher.configure(Metrics(listen="[::1]:0"))
    assert publisher.port != first
    publisher.configure(Metrics())
    assert publisher.port is None


def test_quantiles() -> None:
    histogram = DurationHistogram()
    assert quantile(histogram.view(), 0.5) is None
    for us in (1.0, 100.0, 100.0, 1e9):
        histogram.observe(us)
    view = histogram.view()
    assert sum(view.counts) == 4
    assert view.counts[-1] == 1
    assert 64 < (quantile(view, 0.5) or 0) <= 128
    assert quantile(view, 1.0) == BOUNDS_US[-1]
