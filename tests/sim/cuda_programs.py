"""Programs that call the simulated libcuda through ctypes, as child processes of a test."""

import ctypes
import json
import os
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from gpsched.adaptive.simgpu import SimulatedGpu
from tests.sim import raw_rm as rm


ROOT = Path(__file__).parents[2]
PRELUDE = "import ctypes, json, os, statistics, sys, time\nfrom tests.sim.cuda_client import Cuda, U32, U64, POINTER\n"


def start(gpu: SimulatedGpu, source: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(source)],
        env={**os.environ, **gpu.env, "PYTHONPATH": str(ROOT), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(gpu: SimulatedGpu, source: str, **env: str) -> Any:
    """What the program prints as JSON on its last line."""
    child = start(gpu, source, **env)
    try:
        output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 0
    return json.loads(output.splitlines()[-1])


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def finish(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def process(gpu: SimulatedGpu, pid: int) -> dict[str, Any] | None:
    return next((p for p in gpu.stats()["processes"] if p["pid"] == pid), None)


def gone(gpu: SimulatedGpu, pid: int) -> bool:
    deadline = time.monotonic() + 5
    while process(gpu, pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return process(gpu, pid) is None


def scan(pid: int, number: int) -> dict[int, list[int]]:
    """Channels by group of the only client, found by asking."""
    pidfd = os.pidfd_open(pid)
    fd = ctypes.CDLL(None).syscall(438, pidfd, number, 0)
    os.close(pidfd)
    try:
        groups: dict[int, list[int]] = {}
        for client in range(0xC1D00000, 0xC1D00020):
            for handle in range(0x5C000000, 0x5C000060):
                if rm.control(fd, client, handle, rm.GET_TIMESLICE, bytes(8))[0] == rm.OK:
                    groups[handle] = []
                elif groups and rm.control(fd, client, handle, 0xC36F0108, bytes(4))[0] == rm.OK:
                    groups[max(groups)].append(handle)
        return groups
    finally:
        os.close(fd)


def set_slice(pid: int, us: int) -> None:
    number = next(int(p.name) for p in Path(f"/proc/{pid}/fd").iterdir() if p.readlink().name == "nvidiactl")
    found = scan(pid, number)
    group = next(handle for handle, channels in found.items() if len(channels) == 8)
    pidfd = os.pidfd_open(pid)
    fd = ctypes.CDLL(None).syscall(438, pidfd, number, 0)
    os.close(pidfd)
    statuses = [
        rm.control(fd, client, group, rm.SET_TIMESLICE, struct.pack("<Q", us))[0]
        for client in range(0xC1D00000, 0xC1D00010)
    ]
    os.close(fd)
    assert statuses.count(rm.OK) == 1
