"""What can go wrong while workload programs run."""

from gpsched.adaptive.errors import GpschedError, UnsupportedHostError


class ProgramMissingError(UnsupportedHostError):
    """A sample program was not built. Field: ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} does not exist", "build it with: make native")


class ProgramFailedError(GpschedError):
    """A program ended, or said something else than expected. Fields: ``program``, ``reason``, ``returncode``."""

    def __init__(self, program: str, reason: str, returncode: int | None = None) -> None:
        self.program, self.reason, self.returncode = program, reason, returncode
        ended = "" if returncode is None else f" ended with code {returncode}"
        super().__init__(f"{program}{ended}: {reason}")
        if returncode == UnsupportedHostError.exit_code:
            self.exit_code = returncode


class ProgramTimeoutError(GpschedError):
    """A program did not answer. Fields: ``program``, ``awaited``, ``seconds``."""

    def __init__(self, program: str, awaited: str, seconds: float) -> None:
        self.program, self.awaited, self.seconds = program, awaited, seconds
        super().__init__(f"{program}: no {awaited} within {seconds:.0f} s; run it alone to see why")


class NoRealGpuError(UnsupportedHostError):
    """A real GPU was asked for and there is none."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no NVIDIA GPU here ({reason})", "use the embedded one: --device simulated")


class ArmUnavailableError(GpschedError):
    """An arm's mechanism does not work here. Fields: ``arm``, ``reason``."""

    def __init__(self, arm: str, reason: str) -> None:
        self.arm, self.reason = arm, reason
        super().__init__(f"arm {arm} cannot run here: {reason}")
