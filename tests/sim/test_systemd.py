"""The unit under a real systemd: start, reload, watchdog, kill, stop; every slice is read back from the driver."""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.client import Client
from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.bench.workload import Job, Service, cuda_job, cuda_service
from tests.sim.systemd_manager import SYSTEMD, UNIT, Manager
from tests.sim.test_daemon import BE_US, LC_US, OWN_US, slice_of, until


pytestmark = [
    pytest.mark.sim,
    pytest.mark.root,
    pytest.mark.bpf,
    pytest.mark.skipif(not (SYSTEMD.exists() and shutil.which("unshare")), reason="no systemd here"),
]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with Manager(tmp_path, "WatchdogSec=3\nRestartSec=0.5\n") as manager:
        yield manager


@pytest.fixture(scope="module")
def pair(two_gpus: SimulatedGpu) -> Iterator[tuple[Service, Job]]:
    with cuda_service(two_gpus.env) as service, cuda_job(two_gpus.env) as job:
        yield service, job


def _attach(manager: Manager, pair: tuple[Service, Job]) -> None:
    with Client(manager.socket) as client:
        client.attach(pair[0].pid, "lc")
        client.attach(pair[1].pid, "be")
    assert _slices(pair) == (LC_US, BE_US)


def _slices(pair: tuple[Service, Job]) -> tuple[int, int]:
    return slice_of(pair[0]), slice_of(pair[1])


def _status(pid: int, name: str) -> str:
    found = re.search(rf"^{name}:\s*(\S+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found is not None
    return found[1]


def _kill_all(manager: Manager) -> None:
    """The daemon and its children at once: none of them can undo what another leaves."""
    pid = manager.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(pid, signal.SIGSTOP)
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def test_start_reload_and_stop(manager: Manager, pair: tuple[Service, Job]) -> None:
    manager.do("start")  # returns once the daemon said READY
    assert "levels up to" in manager.ask("StatusText")
    _attach(manager, pair)
    manager.config.write_text("[timeslise]\n")
    manager.do("reload")
    until(lambda: "did you mean 'timeslice'?" in manager.ask("StatusText"))
    assert _slices(pair) == (LC_US, BE_US)
    manager.config.write_text("[timeslice]\nbe_us = 77\n")
    manager.do("reload")
    until(lambda: slice_of(pair[1]) == 77)
    until(lambda: "levels up to" in manager.ask("StatusText"))
    manager.do("stop")
    assert _slices(pair) == (OWN_US, OWN_US)
    assert not manager.socket.exists()
    assert (manager.ask("Result"), manager.ask("NRestarts")) == ("success", "0")


def test_the_sandbox_is_the_units(manager: Manager) -> None:
    manager.do("start")
    names = re.findall(r"CAP_\w+", next(line for line in UNIT.read_text().splitlines() if "CapabilityB" in line))
    bounds, ours = (int(_status(pid, "CapBnd"), 16) for pid in (manager.pid, os.getpid()))
    assert bounds.bit_count() <= len(names) < ours.bit_count()  # a container may lack some of them
    assert bounds & ~ours == 0
    assert _status(manager.pid, "NoNewPrivs") == "1"
    assert _status(manager.pid, "Seccomp") == "2"


def test_after_a_kill_stop_post_restores_and_the_service_starts_again(
    manager: Manager, pair: tuple[Service, Job]
) -> None:
    manager.do("start")
    _attach(manager, pair)
    before = manager.pid
    _kill_all(manager)
    until(lambda: manager.ask("NRestarts") == "1" and manager.ask("ActiveState") == "active")
    assert manager.pid not in (0, before)
    assert re.search(r"[1-9]\d* settings restored\nended: signal", manager.log.read_text())
    assert _slices(pair) == (OWN_US, OWN_US)


def test_a_daemon_that_hangs_is_ended_by_the_watchdog(manager: Manager, pair: tuple[Service, Job]) -> None:
    manager.do("start")
    _attach(manager, pair)
    os.kill(manager.pid, signal.SIGSTOP)
    until(lambda: manager.ask("NRestarts") == "1" and manager.ask("ActiveState") == "active")
    assert "ended: watchdog" in manager.log.read_text()
    assert _slices(pair) == (OWN_US, OWN_US)
