"""The time limit interrupts whatever happens, and leaves nothing behind."""

import signal
import time

import pytest

from gpsched.adaptive.calibration.errors import CalibrationTimeoutError
from gpsched.adaptive.calibration.limit import time_limit


def test_a_wait_ends_at_the_limit() -> None:
    with pytest.raises(CalibrationTimeoutError, match="0 s"), time_limit(0.05):
        time.sleep(30)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_nothing_happens_within_the_limit() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(30):
        pass
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
