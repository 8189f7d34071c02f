"""What checks are made of. They run inside the virtual machine, against the real driver module, as root.

Every check leaves nothing behind: the runner compares the module's counters before and after each.
"""

# ruff: noqa: PT017 not run by pytest

import errno
import json
import os
import signal
import struct
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import netlink as nl
import rm


DEBUG = Path("/sys/kernel/debug/gpsched")
SHARE = Path("/share")
CHECKS: dict[str, Callable[[], object]] = {}


def check(function: Callable[[], object]) -> Callable[[], object]:
    CHECKS[function.__name__] = function
    return function


def wait_for(condition: Callable[[], object], what: str, limit_s: float = 60) -> object:
    """Poll; generous limit, since emulation on a busy machine is slow."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"never: {what}")


def fails(code: int, call: Callable[[], object]) -> None:
    try:
        call()
    except OSError as error:
        assert error.errno == code, f"{errno.errorcode.get(error.errno)} and not {errno.errorcode[code]}"
    else:
        raise AssertionError(f"accepted, {errno.errorcode[code]} expected")


def log() -> list[tuple]:
    """The controls that the believed objects got: (client, object, command, status, parameters)."""
    rows = [line.split() for line in (DEBUG / "log").read_text().splitlines()]
    return [(int(r[1], 16), int(r[2], 16), int(r[3], 16), int(r[5], 16), bytes.fromhex(r[6])) for r in rows]


def slices(rm_: "rm.Rm", handle: int = 0x5C000003) -> list[int]:
    return [
        struct.unpack("<Q", p)[0] for c, o, cmd, s, p in log() if (c, o, cmd, s) == (rm_.client, handle, 0xA06C0103, 0)
    ]


def switches(since: int = 0) -> list[tuple[int, int, int]]:
    """FIFO_DISABLE_CHANNELS since a length of the log: (disable, channels, scheduling only)."""
    return [
        (p[0], struct.unpack_from("<I", p, 4)[0], p[8])
        for _, _, cmd, s, p in log()[since:]
        if cmd == 0x2080110B and s == 0
    ]


def own(link: nl.Netlink) -> list[dict]:
    return link.list(os.getpid())


def in_child(function: Callable[[], object], uid: int = 0, limit_s: int = 0) -> tuple[int, str]:
    """Run in a forked child; return its status and what it returned, or its traceback.

    Its files end with it, and so do its own children: one that was left would keep the pipe, and the checks, waiting.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.close(read)
        signal.alarm(limit_s)
        try:
            if uid:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            value = function()
            os.write(write, json.dumps(value).encode() if value is not None else b"")
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-1500:])
            os._exit(1)
        os._exit(0)
    os.close(write)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    message = os.read(read, 65536).decode()
    os.close(read)
    return status, message


def child_passes(function: Callable[[], object], uid: int = 0) -> None:
    status, message = in_child(function, uid)
    assert status == 0, message
