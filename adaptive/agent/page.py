"""The page that a hold agent shares with the actuator, as the daemon reads it: whether the agent can launch."""

import ctypes
import fcntl
import mmap
import os


MAGIC = 0x444C4F48  # GS_HOLD_MAGIC; this file mirrors native/hold_page.h
VERSION = 2
BYTES = 4096
MAX_FAILURES = 3  # of agent.c: the agent ends then

_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64


class Layout(ctypes.Structure):
    """``struct gs_hold_page``."""

    _fields_ = (
        ("magic", _U32),
        ("version", _U32),
        ("bell", _U32),
        ("wanted", _U32),
        ("released", _U32),
        ("kernels", _U32),
        ("limit_us", _U32),
        ("pad", _U32),
        ("ready", _U32),
        ("launched", _U32),
        ("failures", _U32),
        ("last_error", _U32),
        ("launched_ns", _U64),
    )


class Page:
    """One program's page. Reading costs no system call."""

    def __init__(self, descriptor: int) -> None:
        """``descriptor`` remains the caller's. Raises ValueError for a file that is none of an agent, and OSError."""
        # The file belongs to a program that is not trusted: without the seal it could shrink it and kill us by SIGBUS.
        sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
        if not sealed or os.fstat(descriptor).st_size < BYTES:
            raise ValueError("not a sealed page")
        self._memory = mmap.mmap(descriptor, BYTES, prot=mmap.PROT_READ)
        found = self._read()
        if (found.magic, found.version) != (MAGIC, VERSION):
            raise ValueError("a page of another version")

    @property
    def inability(self) -> str:
        """Why no hold can be launched now; empty when one can."""
        found = self._read()
        if found.ready:
            return ""
        if found.failures >= MAX_FAILURES:
            return f"its hold agent gave up (CUDA error {found.last_error})"
        return "it has no primary CUDA context, in which holds are launched"

    def _read(self) -> Layout:
        return Layout.from_buffer_copy(self._memory)
