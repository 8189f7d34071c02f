"""A limit on everything that the main thread does, system calls included."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gpsched.adaptive.calibration.errors import CalibrationTimeoutError


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``CalibrationTimeoutError`` in the ``with`` block, wherever it is, after ``seconds``. Main thread only."""

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise CalibrationTimeoutError(seconds)

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
