"""What this machine's driver is, and which controls it offers.

Nothing can be asked of the driver without a GPU context, and the daemon makes none: the controls are probed on the
first managed process, with queries and with writes of the value that is already set.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpsched.adaptive.driver.control import StockControl
from gpsched.adaptive.driver.errors import ControlError, HandleGoneError, NoSubdeviceError, UnsupportedDriverError
from gpsched.adaptive.driver.types import ChannelGroup


VERSION_FILE = Path("/proc/driver/nvidia/version")
OLDEST_BRANCH = 535  # the oldest whose published source was read

_VERSION = re.compile(r"NVRM version:.*?(?P<open>Open)?\s*Kernel Module\b.*?\s(?P<version>\d+(?:\.\d+)+)\s")


@dataclass(frozen=True, slots=True)
class DriverVersion:
    """The loaded driver: its version, such as "580.159.04", and whether its kernel modules are the open ones."""

    version: str
    open_modules: bool

    @property
    def flavour(self) -> str:
        """Return "open" or "proprietary"."""
        return "open" if self.open_modules else "proprietary"


def driver_version(path: Path = VERSION_FILE) -> DriverVersion | None:
    """Return the loaded driver's version; None when no NVIDIA driver is loaded (as with the embedded GPU)."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _VERSION.search(text)
    return DriverVersion(found["version"], found["open"] is not None) if found else DriverVersion("unknown", False)


def require_known_abi(driver: DriverVersion | None) -> None:
    """Raise UnsupportedDriverError for a driver older than the ABI that was read. No driver at all passes.

    Both flavours pass: the same libcuda speaks to both, so their ABI is one. Only the open one was run.
    """
    branch = re.match(r"\d+", driver.version) if driver else None
    if driver and branch and int(branch[0]) < OLDEST_BRANCH:
        raise UnsupportedDriverError(driver.version, driver.flavour, "is older than the RM ABI that gpsched knows")


@dataclass(frozen=True, slots=True)
class Offer:
    """Which controls worked on a process; ``reasons`` says why for each that did not, by the control's name."""

    timeslice: bool
    interleave: bool
    enable: bool
    restart: bool
    reasons: dict[str, str]


def probe_controls(control: StockControl, group: ChannelGroup) -> Offer:
    """Try, on one group, each control that can be tried without changing anything.

    The timeslice and the interleave level are set to what they are, channels that run are enabled, and the runlist is
    restarted once without force. Call it before anything was disabled: it would be enabled. Raises HandleGoneError when
    the group died meanwhile.
    """
    reasons: dict[str, str] = {}
    attempts: dict[str, Callable[[], None]] = {
        "timeslice": lambda: control.set_timeslice(group, control.get_timeslice(group)),
        "interleave": lambda: control.set_interleave(group, control.get_interleave(group)),
        "enable": lambda: control.enable(group),
        "restart": lambda: control.restart_runlist(group),
    }
    for name, attempt in attempts.items():
        reason = _reason(attempt)
        if reason:
            reasons[name] = reason
    return Offer(**{name: name not in reasons for name in attempts}, reasons=reasons)


def _reason(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except HandleGoneError:
        raise
    except (ControlError, NoSubdeviceError) as error:
        return str(error)
    return ""
