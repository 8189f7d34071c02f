"""One RM control through one descriptor: the only place that issues ioctls to the driver.

The outer structure is allocated once, since a control is issued at every burst of a latency-critical process; the lock
makes it safe to share between threads.
"""

import ctypes
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from gpsched.adaptive.driver import abi
from gpsched.adaptive.driver.classes import ROOT_CLIENT
from gpsched.adaptive.driver.status import NV_OK, RETRY, TIMEOUT


Ioctl = Callable[[int, int, Any], int]

_UNANSWERED = 0xFFFF  # NV_ERR_GENERIC
_RETRY_ERRNO = frozenset({errno.EINTR, errno.EAGAIN, errno.EBUSY})
_RETRY_PAUSES_S = (0.0001, 0.0002, 0.0004, 0.0008)


def _ask_again(control: abi.Control, status: int) -> bool:
    # A timed-out disable or enable leaves channels in between; repeating it is harmless, leaving them so is not.
    return status in RETRY or (status == TIMEOUT and control is abi.DISABLE_CHANNELS)


def _system_ioctl(fd: int, request: int, argument: Any) -> int:
    return int(fcntl.ioctl(fd, request, argument, True))


class RmCalls:
    """Issues RM controls and measures them.

    ``ioctl(fd, request, structure)`` is the boundary to the kernel, replaced in tests. ``last_cost_us`` is the duration
    of the last control in µs, retries and pauses included.
    """

    def __init__(self, ioctl: Ioctl = _system_ioctl) -> None:
        self.last_cost_us = 0.0
        self._ioctl = ioctl
        self._lock = threading.Lock()
        self._outer = abi.NVOS54()

    def control(self, fd: int, client: int, object_: int, control: abi.Control, params: abi.Params) -> int:
        """Issue ``control`` once, and again at most four times while the driver says that it is busy.

        Returns the NV_STATUS; results are in ``params``. Raises OSError when the ioctl itself fails.
        """
        started = time.perf_counter_ns()
        try:
            for pause in _RETRY_PAUSES_S:
                status = self._attempt(fd, client, object_, control, params)
                if status is not None and not _ask_again(control, status):
                    return status
                time.sleep(pause)
            return self.once(fd, client, object_, control, params)
        finally:
            self.last_cost_us = (time.perf_counter_ns() - started) / 1000

    def newest_client(self, path: str) -> int | None:
        """Return the client handle that the driver gives out now; None when ``path`` cannot be opened or it gives none.

        Makes a client on a file of its own, which ends with the file.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            made = abi.NVOS21(hClass=ROOT_CLIENT, status=_UNANSWERED)
            self._ioctl(fd, abi.RM_ALLOC, made)
            return int(made.hObjectNew) if made.status == NV_OK else None
        except OSError:
            return None
        finally:
            os.close(fd)

    def _attempt(self, fd: int, client: int, object_: int, control: abi.Control, params: abi.Params) -> int | None:
        try:
            return self.once(fd, client, object_, control, params)
        except OSError as error:
            if error.errno not in _RETRY_ERRNO:
                raise
            return None

    def once(self, fd: int, client: int, object_: int, control: abi.Control, params: abi.Params) -> int:
        """Issue ``control`` exactly once. Returns the NV_STATUS; raises OSError when the ioctl itself fails."""
        with self._lock:
            outer = self._outer
            outer.hClient, outer.hObject, outer.cmd, outer.flags = client, object_, control.command, 0
            outer.params, outer.paramsSize = ctypes.addressof(params), ctypes.sizeof(params)
            # A driver that does not know the ioctl leaves the status as it was: it must not read as success.
            outer.status = _UNANSWERED
            self._ioctl(fd, abi.RM_CONTROL, outer)
            return int(outer.status)
