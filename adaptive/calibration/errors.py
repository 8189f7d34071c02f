"""What can go wrong while a GPU is calibrated."""

from collections.abc import Sequence

from gpsched.adaptive.errors import GpschedError


class GpuBusyError(GpschedError):
    """Managed processes use the GPU, so that every figure would be wrong. Fields: ``gpu``, ``pids``."""

    def __init__(self, gpu: int, pids: Sequence[int]) -> None:
        self.gpu, self.pids = gpu, tuple(pids)
        named = ", ".join(map(str, pids))
        super().__init__(f"processes {named} use GPU {gpu} and would falsify the figures; end them, or give --force")


class ProgramsManagedError(GpschedError):
    """A rule of the daemon's took hold of the programs that measure. Field: ``pids``."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids = tuple(pids)
        super().__init__(
            "a rule of the daemon's manages gpsched-lc or gpsched-be; narrow it, or stop the daemon meanwhile"
        )


class CalibrationFailedError(GpschedError):
    """The GPU could not be measured. Field: ``reason``."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"calibration failed: {reason}; run it again on a quiet machine. Nothing was saved")


class CalibrationTimeoutError(CalibrationFailedError):
    """It took too long. Field: ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"not done within {seconds:.0f} s")


class CalibrationNotSavedError(GpschedError):
    """The result cannot be written. Fields: ``path``, ``reason``."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"cannot write {path} ({reason}); run it as root, or choose another place with --state-dir")
