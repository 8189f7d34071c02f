"""Real processes that count, so that a test can see whether they run."""

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpsched.adaptive import cgroups


_PROGRAM = """
import mmap, os, struct, sys, threading, time
page = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 16)
def count(slot):
    number = 0
    while True:
        number += 1
        struct.pack_into("q", page, 8 * slot, number)
        time.sleep(0.001)
threading.Thread(target=count, args=(1,), daemon=True).start()
count(0)
"""


class Victim:
    """A process with two threads that count."""

    def __init__(self, directory: Path) -> None:
        file = directory / uuid.uuid4().hex
        file.write_bytes(bytes(16))
        self._page = mmap.mmap(os.open(file, os.O_RDWR), 16)
        # A process group of its own with a parent outside it: the kernel does not stop the members of orphaned ones.
        self.process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(file)], process_group=0)
        self.pid = self.process.pid
        until(lambda: all(self.counts()))

    def counts(self) -> tuple[int, int]:
        return struct.unpack_from("qq", self._page)

    def runs(self) -> bool:
        """Both threads count on."""
        before = self.counts()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if all(now > then for now, then in zip(self.counts(), before, strict=True)):
                return True
            time.sleep(0.005)
        return False

    def still(self) -> bool:
        """Neither thread counts for a while."""
        before = self.counts()
        time.sleep(0.1)
        return self.counts() == before

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextlib.contextmanager
def cgroup() -> Iterator[Path]:
    """A cgroup of its own; skips where cgroup v2 is not mounted or not writable."""
    hierarchy = cgroups.mount()
    if hierarchy is None:
        pytest.skip("no cgroup v2 hierarchy is mounted")
    directory = hierarchy / f"gpsched-test-{uuid.uuid4().hex[:8]}"
    try:
        directory.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    try:
        yield directory
    finally:
        with contextlib.suppress(OSError):
            (directory / "cgroup.freeze").write_text("0")
        until(lambda: remove(directory))


def remove(directory: Path) -> bool:
    """Whether the cgroup is gone; its processes may still be ending."""
    with contextlib.suppress(OSError):
        for child in directory.glob("*/"):
            child.rmdir()
        directory.rmdir()
    return not directory.exists()


def join(directory: Path, *victims: Victim) -> None:
    for victim in victims:
        (directory / "cgroup.procs").write_text(str(victim.pid))
