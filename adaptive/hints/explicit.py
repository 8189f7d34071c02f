"""Explicit hints for Python programs: tell gpsched that this process is about to use the GPU.

    from gpsched.adaptive.hints import explicit
    explicit.reserve_in(800)    # the first launch comes in about 800 µs

A hint calls an empty function of ``libgpsched_hint.so``, on which the daemon puts a uprobe when it manages the process.
Without a daemon, or where the library was not built, nothing happens. About 1 µs a call.
"""

import ctypes
from functools import cache
from pathlib import Path


LIBRARY = Path(__file__).parent / "build" / "libgpsched_hint.so"
SYMBOL = "gpsched_hint"
RESERVE = 1  # enum gpsched_hint_what
CANCEL = 2


def available() -> bool:
    """Whether the probe point exists, so that hints can reach a daemon."""
    return _probe() is not None


def reserve_now() -> None:
    """The GPU is needed now."""
    reserve_in(0)


def reserve_in(us: float) -> None:
    """Announce that the GPU will be needed in ``us`` µs; raise ``ValueError`` when that is negative."""
    if us < 0:
        raise ValueError(f"a hint cannot be {us} µs in the past; use 0 or more")
    _hint(RESERVE, int(us))


def cancel() -> None:
    """Take the announcement back: the GPU is not needed."""
    _hint(CANCEL, 0)


def _hint(what: int, us: int) -> None:
    probe = _probe()
    if probe is not None:
        probe(what, us)


@cache
def _probe() -> "ctypes._NamedFuncPointer | None":
    try:
        function = ctypes.CDLL(str(LIBRARY))[SYMBOL]
    except OSError:
        return None
    function.argtypes = (ctypes.c_uint32, ctypes.c_uint64)
    function.restype = None
    return function
