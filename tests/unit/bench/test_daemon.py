"""What the daemons of a benchmark are told about the GPU's clock and costs."""

import tomllib
from pathlib import Path

import pytest

from gpsched.adaptive.calibration import store
from gpsched.adaptive.config import Reservations
from gpsched.adaptive.hints.costs import LEVELS
from gpsched.bench.calibration import assumed
from gpsched.bench.daemon import stretched
from gpsched.bench.device import Device


@pytest.mark.parametrize("scale", [1.0, 5.0, 40.0])
def test_limits_and_turns_last_as_long_on_the_gpus_clock(scale: float) -> None:
    section = tomllib.loads(stretched('[reservations]\nlevel = "hold"\n', scale))["reservations"]
    assert section["level"] == "hold"
    assert section["limit_us"] == 100_000 * scale
    assert section["turn_us"] == min(50_000 * scale, 1_000_000)


def test_what_is_set_stays() -> None:
    text = '[reservations]\nturn_us = 20000\n[policy]\norder = "share"\n'
    raw = tomllib.loads(stretched(text, 5.0))
    assert raw["reservations"]["turn_us"] == 20_000
    assert raw["policy"] == {"order": "share"}
    assert tomllib.loads(stretched("", 1.0))["reservations"]["limit_us"] == Reservations().limit_us


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_assumed_costs_are_the_defaults_on_the_gpus_clock(scale: float, tmp_path: Path) -> None:
    store.save(tmp_path, assumed(Device(simulated=True, name="g", driver="d", scale=scale, environment={})))
    costs = store.load_costs(tmp_path)  # as the daemon does
    for level in ("reserve", "timeslice"):
        for field in ("switch_us", "residual_us", "need_us", "late_us", "control_us"):
            assert getattr(costs[level], field) == pytest.approx(scale * getattr(LEVELS[level], field), abs=scale)
