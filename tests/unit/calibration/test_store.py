"""Calibrations on disk: one file each, a broken one kept aside, another version's left alone."""

import json
import logging
from pathlib import Path

import pytest

from gpsched.adaptive.calibration import store
from gpsched.adaptive.calibration.errors import CalibrationNotSavedError
from gpsched.adaptive.calibration.store import load_all, load_costs, path_of, save
from gpsched.adaptive.hints.costs import LEVELS
from tests.unit.calibration.samples import calibration


H200, DRIVER = "NVIDIA H200", "580.159.04"


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = save(tmp_path, calibration(switch=222.0))
    assert load_all(tmp_path) == [calibration(switch=222.0)]
    assert load_costs(tmp_path, H200, DRIVER)["timeslice"].switch_us == 222.0
    assert [file.name for file in path.parent.iterdir()] == ["NVIDIA-H200-580.159.04.json"]
    assert json.loads(path.read_text())["schema"] == "gpsched.calibration/1"


def test_the_defaults_hold_without_a_calibration_of_this_gpu_and_driver(tmp_path: Path) -> None:
    assert load_costs(tmp_path, H200, DRIVER) == LEVELS
    save(tmp_path, calibration(switch=222.0))
    assert load_costs(tmp_path, "NVIDIA A100", DRIVER) == LEVELS
    assert load_costs(tmp_path, H200, "570.1") == LEVELS
    assert load_costs(tmp_path, driver=DRIVER)["timeslice"].switch_us == 222.0


def test_the_newest_counts_when_the_gpu_is_not_named(tmp_path: Path) -> None:
    save(tmp_path, calibration(gpu="A", time_s=2.0, switch=2.0))
    save(tmp_path, calibration(gpu="B", time_s=1.0, switch=1.0))
    assert load_costs(tmp_path, driver=DRIVER)["timeslice"].switch_us == 2.0
    assert load_costs(tmp_path, "B", DRIVER)["timeslice"].switch_us == 1.0


def test_the_loaded_driver_is_asked_for_when_none_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "driver_version", lambda: None)
    save(tmp_path, calibration(driver=store.EMBEDDED, switch=33.0))
    assert load_costs(tmp_path)["timeslice"].switch_us == 33.0


def test_the_defaults_are_not_shared(tmp_path: Path) -> None:
    load_costs(tmp_path, H200, DRIVER).clear()
    assert set(LEVELS) == {"timeslice", "reserve", "hold"}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"schema": "gpsched.calibration/1"}', b"[]"])
def test_a_corrupt_file_is_kept_aside(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = save(tmp_path, calibration())
    path.write_bytes(content)
    assert load_costs(tmp_path, H200, DRIVER) == LEVELS
    assert not path.exists()
    assert path.with_suffix(".corrupt").read_bytes() == content
    assert "gpsched calibrate" in caplog.text
    save(tmp_path, calibration())
    assert load_all(tmp_path) == [calibration()]


@pytest.mark.parametrize("length", [1, 40, 200])
def test_a_file_cut_short_is_kept_aside(tmp_path: Path, length: int) -> None:
    path = save(tmp_path, calibration())
    path.write_bytes(path.read_bytes()[:length])
    assert load_all(tmp_path) == []
    assert path.with_suffix(".corrupt").exists()


def test_another_versions_file_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = save(tmp_path, calibration())
    path.write_text('{"schema": "gpsched.calibration/2"}')
    with caplog.at_level(logging.WARNING):
        assert load_all(tmp_path) == []
    assert path.exists()
    assert "gpsched.calibration/2" in caplog.text


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "calibration").write_text("")
    with pytest.raises(CalibrationNotSavedError, match="--state-dir"):
        save(tmp_path, calibration())


def test_names_of_gpus_make_no_paths(tmp_path: Path) -> None:
    path = path_of(tmp_path, "../../etc/NVIDIA GeForce RTX 4090", DRIVER)
    assert path.parent == tmp_path / "calibration"
