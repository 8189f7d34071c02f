"""What can go wrong between the daemon and its actuator."""

from pathlib import Path

from gpsched.adaptive.errors import GpschedError, UnsupportedHostError


class ActuatorMissingError(UnsupportedHostError):
    """The native program was not built. Field: ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} does not exist", "build it with: make native")


class ActuatorGoneError(GpschedError):
    """The actuator ended or does not answer. Field: ``returncode`` (None when it still runs)."""

    def __init__(self, returncode: int | None) -> None:
        self.returncode = returncode
        how = "does not answer" if returncode is None else f"ended with {returncode}"
        super().__init__(f"the actuator {how}; what it changed is undone, restart the daemon if this stays")


class PlanRefusedError(GpschedError):
    """The actuator did not take a message. Fields: ``what`` (name of the message), ``code`` (errno)."""

    def __init__(self, what: str, code: int, reason: str) -> None:
        self.what, self.code = what, code
        super().__init__(f"the actuator refused {what} ({reason}); see its line in the daemon's log")


class PlanLimitError(GpschedError):
    """More was planned than the actuator has room for. Fields: ``what``, ``count``, ``limit``."""

    def __init__(self, what: str, count: int, limit: int) -> None:
        self.what, self.count, self.limit = what, count, limit
        super().__init__(f"{count} {what}, the actuator takes {limit}; detach some processes")
