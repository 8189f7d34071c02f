"""The errors that gpsched raises on purpose.

Every class carries what a message needs as fields; the CLI prints ``str(error)`` as one line and exits with
``exit_code``.
Exit codes: 1 refused or failed check, 2 usage, 3 internal error, 4 daemon unreachable, 77 unsupported host.
"""


class GpschedError(Exception):
    """Base of all errors that have a remedy a user can apply."""

    exit_code = 1


class UsageError(GpschedError):
    """An argument or a value that the user gave is not valid."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file is wrong.

    Fields: ``path`` (str), ``key`` (dotted str), ``reason`` (str).
    """

    def __init__(self, path: str, key: str, reason: str) -> None:
        self.path, self.key, self.reason = path, key, reason
        super().__init__(f"{path}: {key}: {reason}" if key else f"{path}: {reason}")


class UnsupportedHostError(GpschedError):
    """This machine lacks something that gpsched needs.

    Fields: ``missing`` (what is not there), ``remedy`` (what to do).
    """

    exit_code = 77

    def __init__(self, missing: str, remedy: str) -> None:
        self.missing, self.remedy = missing, remedy
        super().__init__(f"{missing}; {remedy}")


class DaemonUnreachableError(GpschedError):
    """No daemon answers on the control socket. Fields: ``socket`` (str), ``reason`` (str)."""

    exit_code = 4

    def __init__(self, socket: str, reason: str) -> None:
        self.socket, self.reason = socket, reason
        super().__init__(f"no daemon answers on {socket} ({reason}); start one with: gpsched daemon")


class ProcessGoneError(GpschedError):
    """The process does not exist (any more). Field: ``pid``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(f"process {pid} does not exist; see: gpsched list")


class NoGpuError(GpschedError):
    """The process has no GPU context. Field: ``pid``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(
            f"process {pid} has no GPU context; attach it once it uses CUDA, or start it with: gpsched run"
        )


class NotManagedError(GpschedError):
    """The process is not managed. Field: ``pid``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(f"process {pid} is not managed; see: gpsched list")


class NotLatencyCriticalError(GpschedError):
    """Only latency-critical processes have hints. Field: ``pid``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(f"process {pid} is best-effort, which has no hints; see: gpsched list")
