"""Where gpsched keeps its files, unless flags or the environment say otherwise."""

import os
from pathlib import Path


CONFIG = Path("/etc/gpsched/config.toml")
CONFIG_DIR = Path("/etc/gpsched/config.d")


def socket() -> Path:
    """The control socket of the node's daemon."""
    return Path(os.environ.get("GPSCHED_SOCKET", "/run/gpsched/gpsched.sock"))


def state_dir() -> Path:
    """Holds the original values of everything that was changed."""
    return Path(os.environ.get("GPSCHED_STATE_DIR", "/var/lib/gpsched"))
