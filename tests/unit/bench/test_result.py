"""The result's figures and its JSON."""

import json

import msgspec
import pytest

from gpsched.bench.messages import End
from gpsched.bench.result import DemoResult
from tests.unit.bench.samples import demo_result


def test_json_round_trip_keeps_every_latency() -> None:
    result = demo_result()
    text = msgspec.json.encode(result)
    assert msgspec.json.decode(text, type=DemoResult) == result
    plain = json.loads(text)
    assert plain["schema"] == "gpsched.demo/1"
    assert [len(block["latency_us"]) for arm in plain["arms"] for block in arm["blocks"]] == [50] * 6


def test_rates_and_ratios() -> None:
    result = demo_result()
    alone, default, gpsched = result.arms
    assert alone.be_per_s is None
    assert default.be_per_s == pytest.approx(2380)
    assert gpsched.latency.count == 100
    assert result.ratios.be == pytest.approx(1180 / 1190)
    assert result.ratios.mean == pytest.approx(560 / 1600, rel=0.03)
    assert result.ratios.mean_interval.low < result.ratios.mean < result.ratios.mean_interval.high
    assert result.ratios.default_mean_over_alone == pytest.approx(1600 / 380, rel=0.03)


def test_unverified_or_corrupted_state_is_not_ok() -> None:
    assert demo_result().ok
    assert not demo_result(bad_counters=1).ok
    assert not End(kernels=1, verified=False, bad_counters=0).ok
    assert not End(kernels=1, verified=True, bad_counters=0, bad_states=1).ok
