"""Whether gpsched itself is whole: native programs, folders, group, configuration."""

import grp
import os
from pathlib import Path

from gpsched.adaptive import config
from gpsched.adaptive.calibration.store import EMBEDDED, load_all
from gpsched.adaptive.doctor.host import Host
from gpsched.adaptive.doctor.model import Finding, Rule, degraded, missing, ok
from gpsched.adaptive.driver.probe import driver_version
from gpsched.adaptive.errors import ConfigError


_HERE = "Linux 6.1 and 6.18, Debian 12"
_PACKAGE = Path(__file__).parents[1]


def _built(folder: str) -> Finding:
    built = _PACKAGE / folder / "build"
    files = sorted(file.name for file in built.iterdir() if file.suffix != ".o") if built.is_dir() else []
    return ok(", ".join(files)) if files else missing(f"{built} is empty")


def _state(host: Host) -> Finding:
    folder = next(path for path in (host.state_dir, *host.state_dir.parents) if path.exists())
    if not os.access(folder, os.W_OK):
        return missing(f"{folder} is not writable")
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize < 1 << 20:
        return missing(f"less than 1 MiB is free in {folder}")
    return ok(str(host.state_dir))


def _group(host: Host) -> Finding:
    names = [line.partition(":")[0] for line in host.text("/etc/group").splitlines()]
    if host.real:
        names = [entry.gr_name for entry in grp.getgrall()]
    return ok("gpsched") if "gpsched" in names else degraded("no group gpsched: only root can list")


def _calibration(host: Host) -> Finding:
    driver = driver_version(host.path("/proc/driver/nvidia/version"))
    wanted = driver.version if driver else EMBEDDED
    every = load_all(host.state_dir)
    found = [each for each in every if each.driver == wanted]
    if found:
        return ok(", ".join(f"{each.gpu}, driver {each.driver}" for each in found))
    if driver is None:
        return ok("no driver to calibrate for")
    other = f"; there is one for driver {every[0].driver}" if every else ""
    return degraded(f"none for driver {wanted}{other}: costs measured on an H200 are used")


def _config(host: Host) -> Finding:
    try:
        settings = config.load(host.config, host.config_dir)
    except ConfigError as error:
        return missing(str(error), "gpsched config check names each mistake")
    where = str(host.config) if host.config.exists() else "defaults"
    return ok(f"{where}, {len(settings.rule)} rules")


RULES = (
    Rule(
        "actuator",
        "Actuator",
        ("reserve", "hold"),
        "no reservations",
        "make native",
        _HERE,
        lambda _host: _built("actuator"),
    ),
    Rule("agent", "Hold agent", ("hold",), "no holds", "make native", _HERE, lambda _host: _built("agent")),
    Rule(
        "state",
        "State folder",
        ("freeze", "timeslice", "reserve", "hold", "module"),
        "nothing is changed, since originals cannot be kept",
        "choose another with --state-dir",
        _HERE,
        _state,
    ),
    Rule(
        "group",
        "Group gpsched",
        (),
        "only root can read the daemon's state",
        "groupadd --system gpsched",
        _HERE,
        _group,
    ),
    Rule(
        "calibration",
        "Calibration",
        (),
        "levels are chosen by another GPU's costs",
        "gpsched calibrate",
        "embedded GPU",
        _calibration,
    ),
    Rule(
        "config",
        "Configuration",
        (),
        "the daemon does not start, or keeps its earlier configuration",
        "gpsched config check",
        _HERE,
        _config,
    ),
)
