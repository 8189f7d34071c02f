"""This machine's root with a layer above it: what is installed or removed there never reaches the machine.

Pids, BPF and devices are the machine's own, so that a daemon works there as it would outside; /run is fresh.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest


_START = """set -e
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/root"
for folder in proc sys dev tmp; do mount --rbind "/$folder" "$0/root/$folder"; done
mount -t tmpfs tmpfs "$0/root/run"
echo ready
exec sleep infinity"""


class Overlay:
    """A context manager; skips the test where the kernel allows no such layer."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gpd-"))  # short: paths of sockets end at 107 characters

    def __enter__(self) -> "Overlay":
        command = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", _START, str(self._folder)]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            _, error = self._holder.communicate()
            self._folder.rmdir()
            pytest.skip(f"no overlay of this machine's root: {error.strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.kill()
        self._holder.communicate()
        self._folder.rmdir()

    def path(self, name: str) -> Path:
        """A file in there (absolute name), as seen from outside."""
        return Path(f"/proc/{self._holder.pid}/root{self._folder}/root{name}")

    def command(self, *words: str) -> list[str]:
        """The command line that runs ``words`` in there; it becomes the program, with the same pid."""
        enter = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "chroot", f"{self._folder}/root"]
        return [*enter, "env", "-C", "/", "DEBIAN_FRONTEND=noninteractive", *words]

    def run(self, *words: str) -> str:
        """What it prints; fails the test when it fails."""
        command = self.command(*words)
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd="/", env=_environment())
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


def _environment() -> dict[str, str]:
    """Nothing of the checkout that runs the tests."""
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": os.environ.get("HOME", "/root")}
