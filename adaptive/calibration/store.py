"""Calibrations on disk: one file for each GPU model and driver, in the daemon's state directory."""

import logging
import os
import re
from pathlib import Path

import msgspec

from gpsched.adaptive.calibration.costs import to_costs
from gpsched.adaptive.calibration.errors import CalibrationNotSavedError
from gpsched.adaptive.calibration.model import SCHEMA, Calibration
from gpsched.adaptive.driver.probe import driver_version
from gpsched.adaptive.hints.costs import LEVELS, Costs


log = logging.getLogger(__name__)
EMBEDDED = "embedded"  # in place of the version where no driver is loaded
_FOLDER = "calibration"


class _Head(msgspec.Struct, frozen=True):
    schema: str


def driver_name() -> str:
    """Return the loaded driver's version, as it is filed here."""
    driver = driver_version()
    return driver.version if driver else EMBEDDED


def path_of(state_dir: Path, gpu: str, driver: str) -> Path:
    """Return where the calibration of this GPU model and driver is, if there is one."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{gpu} {driver}").strip("-")
    return state_dir / _FOLDER / f"{name}.json"


def check_writable(state_dir: Path) -> None:
    """Raise ``CalibrationNotSavedError`` where ``save`` would: measuring takes time."""
    folder = state_dir / _FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise CalibrationNotSavedError(str(folder), error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK):
        raise CalibrationNotSavedError(str(folder), "no permission")


def save(state_dir: Path, calibration: Calibration) -> Path:
    """Write the calibration in place of an earlier one; raise ``CalibrationNotSavedError``."""
    path = path_of(state_dir, calibration.gpu, calibration.driver)
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(calibration)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise CalibrationNotSavedError(str(path), error.strerror or str(error)) from error
    return path


def load_all(state_dir: Path) -> list[Calibration]:
    """Return every readable calibration, the newest first."""
    found = [_load(path) for path in sorted((state_dir / _FOLDER).glob("*.json"))]
    return sorted((each for each in found if each), key=lambda each: each.time_s, reverse=True)


def load_costs(state_dir: Path, gpu: str | None = None, driver: str | None = None) -> dict[str, Costs]:
    """Return the costs of each level: as calibrated for this GPU model and driver, else the safe defaults.

    ``gpu`` is the name as NVML or CUDA has it; without one the newest calibration under the driver counts. ``driver``
    is the version that is loaded, unless given.
    """
    driver = driver or driver_name()
    for calibration in load_all(state_dir):
        if calibration.driver == driver and gpu in (None, calibration.gpu):
            return {**LEVELS, **to_costs(calibration)}
    return dict(LEVELS)


def _load(path: Path) -> Calibration | None:
    """A file that makes no sense is kept aside for whoever wants to see it; another version's is left alone."""
    try:
        content = path.read_bytes()
        schema = msgspec.json.decode(content, type=_Head).schema
        if schema != SCHEMA:
            log.warning("%s has schema %s, not %s; run: gpsched calibrate", path, schema, SCHEMA)
            return None
        return msgspec.json.decode(content, type=Calibration)
    except OSError as error:
        log.warning("cannot read %s (%s); run: gpsched calibrate", path, error.strerror)
    except msgspec.MsgspecError as error:
        _keep_aside(path, str(error))
    return None


def _keep_aside(path: Path, reason: str) -> None:
    aside = path.with_suffix(".corrupt")
    try:
        path.replace(aside)
    except OSError:
        aside = path  # read-only: it is warned of again
    log.warning("%s is not a calibration (%s); run: gpsched calibrate", aside, reason)
