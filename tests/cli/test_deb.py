"""The Debian package, installed and removed on this machine: only where GPSCHED_DEB names the file to try."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.client import Client
from gpsched.adaptive.errors import DaemonUnreachableError
from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.bench.workload import cuda_job, cuda_service
from tests.sim.test_daemon import BE_US, LC_US, OWN_US, slice_of, until


_DEB = os.environ.get("GPSCHED_DEB", "")

pytestmark = [
    pytest.mark.root,
    pytest.mark.sim,
    pytest.mark.skipif(not _DEB, reason="installs a package: set GPSCHED_DEB to one that packaging/build-deb.sh made"),
]


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd="/")
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def installed() -> Iterator[None]:
    _run("dpkg", "-i", _DEB)
    yield
    _run("dpkg", "--purge", "gpsched")


def _answers() -> bool:
    try:
        Client("/run/gpsched/gpsched.sock").close()
    except DaemonUnreachableError:
        return False
    return True


def test_what_is_installed_works(installed: None) -> None:
    assert "right: 0 rules" in _run("gpsched", "config", "check")
    assert _run("man", "-w", "gpsched").strip().endswith("gpsched.1.gz")
    assert "gpsched:" in _run("getent", "group", "gpsched")
    _run("systemd-analyze", "verify", "/lib/systemd/system/gpsched.service")
    for name in ("bash-completion/completions/gpsched", "zsh/vendor-completions/_gpsched", "gpsched/grafana.json"):
        assert Path("/usr/share", name).exists()
    assert "usage: gpsched run" in _run("gpsched", "run", "--help")


def test_nothing_is_imported_from_where_one_stands(installed: None, tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('imported from the working folder')")
    result = subprocess.run(["gpsched", "config", "check"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.mark.bpf
def test_removing_the_package_restores_what_a_killed_daemon_left(installed: None) -> None:
    with SimulatedGpu(gpus=1) as gpu, cuda_service(gpu.env) as service, cuda_job(gpu.env) as job:
        daemon = subprocess.Popen(["gpsched", "daemon"], cwd="/")
        try:
            until(_answers)
            with Client("/run/gpsched/gpsched.sock") as client:
                client.attach(service.pid, "lc")
                client.attach(job.pid, "be")
        finally:
            # Both at once: each alone would be undone by the other.
            children = subprocess.run(["pgrep", "-P", str(daemon.pid)], capture_output=True, text=True).stdout.split()
            daemon.send_signal(signal.SIGSTOP)
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            daemon.send_signal(signal.SIGKILL)
            daemon.wait(60)
        assert (slice_of(service), slice_of(job)) == (LC_US, BE_US)
        assert re.search(r"[1-9]\d* settings restored", _run("dpkg", "--remove", "gpsched"))
        assert (slice_of(service), slice_of(job)) == (OWN_US, OWN_US)
    assert not Path("/usr/bin/gpsched").exists()
    assert not Path("/usr/lib/gpsched").exists()
    _run("dpkg", "--purge", "gpsched")
    assert not Path("/var/lib/gpsched").exists()
    assert not Path("/etc/gpsched").exists()
