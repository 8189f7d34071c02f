"""The Debian package: built, judged by lintian, installed, used and removed, in a layer above this machine's root.

Building takes a minute; GPSCHED_DEB names a package that is built already.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.client import Client
from gpsched.adaptive.errors import DaemonUnreachableError
from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.bench.workload import cuda_job, cuda_service
from tests.cli.overlay import Overlay
from tests.sim.test_daemon import BE_US, LC_US, OWN_US, slice_of, until


_TOP = Path(__file__).parents[2]
_TOOLS = ("dpkg-buildpackage", "dh", "lintian", "git")

pytestmark = [pytest.mark.root, pytest.mark.sim]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("GPSCHED_DEB"):
        return Path(given).resolve()
    lacking = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if lacking or not (_TOP / ".git").exists():
        pytest.skip(f"builds a package from a checkout: needs {', '.join(lacking) or 'git history'}")
    out = tmp_path_factory.mktemp("deb")
    result = subprocess.run(
        [str(_TOP / "packaging/build-deb.sh"), str(out)], capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]  # lintian's errors fail it, too
    (deb,) = out.glob("*.deb")
    return deb


@pytest.fixture
def machine(package: Path) -> Iterator[Overlay]:
    with Overlay() as machine:
        machine.run("dpkg", "-i", str(package))
        yield machine


@pytest.mark.timeout(1200)
def test_what_is_installed_works(machine: Overlay, tmp_path: Path) -> None:
    assert "right: 0 rules" in machine.run("gpsched", "config", "check")
    assert machine.path("/usr/share/man/man1/gpsched.1.gz").exists()
    assert "gpsched:" in machine.run("getent", "group", "gpsched")
    for name in ("bash-completion/completions/gpsched", "zsh/vendor-completions/_gpsched", "gpsched/grafana.json"):
        assert machine.path(f"/usr/share/{name}").exists()
    assert "usage: gpsched run" in machine.run("gpsched", "run", "--help")
    if shutil.which("systemd-analyze"):
        machine.run("systemd-analyze", "verify", "/lib/systemd/system/gpsched.service")
    (tmp_path / "msgspec.py").write_text("raise SystemExit('imported from the working folder')")
    machine.run("env", "-C", str(tmp_path), "gpsched", "config", "check")


@pytest.mark.bpf
@pytest.mark.timeout(1200)
def test_removing_the_package_restores_what_a_killed_daemon_left(machine: Overlay) -> None:
    path = machine.path("/run/gpsched/gpsched.sock")

    def answers() -> bool:
        try:
            Client(path).close()
        except DaemonUnreachableError:
            return False
        return True

    with SimulatedGpu(gpus=1) as gpu, cuda_service(gpu.env) as service, cuda_job(gpu.env) as job:
        daemon = subprocess.Popen(machine.command("gpsched", "daemon"), cwd="/")
        try:
            until(answers)
            with Client(path) as client:
                client.attach(service.pid, "lc")
                client.attach(job.pid, "be")
        finally:
            # All at once: each alone would be undone by another.
            children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
            daemon.send_signal(signal.SIGSTOP)
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            daemon.send_signal(signal.SIGKILL)
            daemon.wait(60)
        assert (slice_of(service), slice_of(job)) == (LC_US, BE_US)
        assert re.search(r"[1-9]\d* settings restored", machine.run("dpkg", "--remove", "gpsched"))
        assert (slice_of(service), slice_of(job)) == (OWN_US, OWN_US)
    assert not machine.path("/usr/bin/gpsched").exists()
    assert not machine.path("/usr/lib/gpsched").exists()
    machine.run("dpkg", "--purge", "gpsched")
    assert not machine.path("/var/lib/gpsched").exists()
    assert not machine.path("/etc/gpsched").exists()
