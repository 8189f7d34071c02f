"""Starts and stops the embedded GPU: the server process, its directory, the environment of programs that use it.

The server speaks NVIDIA's RM ABI on a FUSE file and runs the engine by the clock; programs find ``libcuda.so.1``
through ``LD_LIBRARY_PATH``. See docs/simgpu.md for what is modelled.
"""

import contextlib
import json
import os
import selectors
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

from gpsched.adaptive.errors import GpschedError, UnsupportedHostError
from gpsched.adaptive.scratch import Scratch


BUILD = Path(__file__).parent / "build"
_SOCKET = "simgpu.sock"  # protocol.h: SIM_SOCKET
_STATS = 4  # protocol.h: SIM_STATS
_HEADER = struct.Struct("=6IQ")  # protocol.h: struct sim_message without operations
_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 5.0


class SimulatedGpuError(GpschedError):
    """The embedded GPU's server did not start or does not answer.

    Fields: ``directory`` (str), ``reason`` (str).
    """

    def __init__(self, directory: str, reason: str) -> None:
        self.directory, self.reason = directory, reason
        super().__init__(f"the embedded GPU in {directory} failed: {reason}; rebuild it: make native")


def _check_host() -> None:
    for name in ("simgpud", "libcuda.so.1"):
        if not (BUILD / name).exists():
            raise UnsupportedHostError(f"the embedded GPU is not built ({name} is missing)", "run: make native")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise UnsupportedHostError("/dev/fuse cannot be opened", "run as root on a kernel with FUSE (modprobe fuse)")


class SimulatedGpu:
    """One server with ``gpus`` simulated GPUs whose time runs ``scale`` times slower than the clock.

    Context manager. ``directory`` is created when missing; a temporary one is made and removed by default. The server
    ends when this process does, however that happens, and programs then get CUDA_ERROR_LAUNCH_FAILED.

    Raises:
        UnsupportedHostError: the binaries or FUSE are missing.
        SimulatedGpuError: the server did not become ready.
    """

    def __init__(self, gpus: int = 1, scale: float = 5.0, directory: str | Path | None = None) -> None:
        self.gpus, self.scale = gpus, scale
        self._temporary = directory is None
        self._scratch: Scratch | None = None
        self.directory = Path(directory) if directory is not None else Path()
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "SimulatedGpu":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def env(self) -> dict[str, str]:
        """What to merge into the environment of a program so that it uses this GPU."""
        inherited = os.environ.get("LD_LIBRARY_PATH")
        library = str(self.directory / "lib")
        return {
            "LD_LIBRARY_PATH": f"{library}:{inherited}" if inherited else library,
            "GPSCHED_SIM_DIR": str(self.directory),
            "GPSCHED_TIME_SCALE": f"{self.scale:g}",
        }

    @property
    def pid(self) -> int:
        """The server's process."""
        if self._server is None:
            raise SimulatedGpuError(str(self.directory), "it is not running")
        return self._server.pid

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        _check_host()
        if self._temporary:
            self._scratch = Scratch("gpsched-sim-")
            self.directory = self._scratch.path
            self.directory.chmod(0o755)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._copy_library()
        self._server = subprocess.Popen(
            [BUILD / "simgpud", str(self.directory), str(self.gpus), f"{self.scale:g}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._await_ready(self._server)
        except BaseException:
            self.stop()
            raise

    def _copy_library(self) -> None:
        """Copy the library to the directory: a probe by inode then concerns this GPU's programs only."""
        library = self.directory / "lib" / "libcuda.so.1"
        library.parent.mkdir(exist_ok=True)
        library.unlink(missing_ok=True)
        shutil.copy2(BUILD / "libcuda.so.1", library)
        link = library.with_name("libcuda.so")
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)

    def _await_ready(self, server: subprocess.Popen[bytes]) -> None:
        assert server.stdout is not None
        assert server.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(server.stdout, selectors.EVENT_READ)
            ready = selector.select(_START_TIMEOUT_S)
        if ready and server.stdout.readline() == b"READY\n":
            return
        server.kill()
        reason = server.stderr.read().decode(errors="replace").strip()
        raise SimulatedGpuError(str(self.directory), reason or "the server did not become ready")

    def stop(self) -> None:
        """End the server; its mount and a temporary directory disappear. Safe to call twice."""
        server, self._server = self._server, None
        if server is not None:
            server.terminate()
            try:
                server.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            for pipe in (server.stdin, server.stdout, server.stderr):
                if pipe is not None:
                    pipe.close()
        if not self.directory.parts:
            return
        mount = self.directory / "dev"
        if _is_stale(mount):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def stats(self) -> dict[str, Any]:
        """What the GPU did, on its own clock.

        ``now_us``, ``scale``, ``gpus``, and for each connected process ``pid``, ``gpu_us``, ``kernels``, ``switches``
        and ``launches``: (submit, start, finish) in µs of the last kernels, oldest first.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(_STOP_TIMEOUT_S)
            try:
                client.connect(str(self.directory / _SOCKET))
                client.send(_HEADER.pack(_STATS, 0, 0, 0, 0, 0, 0))
                answer: dict[str, Any] = json.loads(client.recv(1 << 20))
            except (OSError, ValueError) as error:
                raise SimulatedGpuError(str(self.directory), f"no statistics ({error})") from error
        return answer


def _is_stale(mount: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        try:
            mount.stat()
        except OSError as error:
            return not isinstance(error, FileNotFoundError)
    return False
