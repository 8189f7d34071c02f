"""The life of the embedded GPU's server: start, stop, kill, stale mounts, garbage on its socket."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpsched.adaptive.simgpu.gpu as gpu_module
from gpsched.adaptive.errors import UnsupportedHostError
from gpsched.adaptive.simgpu import SimulatedGpu, SimulatedGpuError
from tests.sim import raw_rm as rm


pytestmark = [pytest.mark.sim, pytest.mark.root]


def mounted(directory: Path) -> bool:
    return str(directory / "dev") in Path("/proc/self/mounts").read_text()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def wait_until(condition: object, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.01)
    return bool(condition())  # type: ignore[operator]


def test_stop_leaves_nothing() -> None:
    with SimulatedGpu() as gpu:
        directory, pid = gpu.directory, gpu.pid
        assert mounted(directory)
        assert rm.device_path(directory).exists()
    assert not mounted(directory)
    assert not directory.exists()
    assert not alive(pid)
    gpu.stop()


def test_a_given_directory_is_kept_and_a_stale_mount_cleaned(tmp_path: Path) -> None:
    first = SimulatedGpu(directory=tmp_path)
    first.start()
    os.kill(first.pid, signal.SIGKILL)
    assert wait_until(lambda: not alive(first.pid))
    with pytest.raises(OSError, match="not connected"):
        os.stat(rm.device_path(tmp_path))  # noqa: PTH116
    with SimulatedGpu(directory=tmp_path) as second, rm.opened(second.directory) as fd:
        rm.Context(fd)
    first.stop()
    assert not mounted(tmp_path)
    assert tmp_path.exists()


def test_the_server_ends_with_its_parent(tmp_path: Path) -> None:
    source = (
        "import sys, time; from gpsched.adaptive.simgpu import SimulatedGpu\n"
        "g = SimulatedGpu(directory=sys.argv[1]); g.start(); print(g.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", source, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.communicate()
    assert wait_until(lambda: not alive(pid))
    assert wait_until(lambda: not mounted(tmp_path))


def test_missing_binaries_name_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_module, "BUILD", tmp_path)
    with pytest.raises(UnsupportedHostError, match="make native"):
        SimulatedGpu().start()


def test_a_path_too_long_for_a_socket_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SimulatedGpuError, match="shorter directory"):
        SimulatedGpu(directory=tmp_path / ("x" * 120)).start()


def test_no_statistics_once_stopped() -> None:
    with SimulatedGpu() as gpu:
        assert gpu.stats()["processes"] == []
    with pytest.raises(SimulatedGpuError, match="no statistics"):
        gpu.stats()


def test_an_idle_server_sleeps(two_gpus: SimulatedGpu) -> None:
    def cpu_ticks() -> int:
        fields = Path(f"/proc/{two_gpus.pid}/stat").read_text().split()
        return int(fields[13]) + int(fields[14])

    before = cpu_ticks()
    time.sleep(0.5)
    assert cpu_ticks() - before <= 1


def test_garbage_on_the_socket_ends_only_that_connection(two_gpus: SimulatedGpu) -> None:
    address = str(two_gpus.directory / "simgpu.sock")

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.binary(min_size=1, max_size=96), min_size=1, max_size=4), st.integers(0, 5))
    def fuzz(packets: list[bytes], kind: int) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(address)
            for packet in packets:
                try:
                    client.send(kind.to_bytes(4, "little") + packet)
                except OSError:
                    break

    fuzz()
    assert two_gpus.stats()["gpus"] == 2
