"""Level ``freeze`` in the daemon: a job whose controls the driver refuses is stopped during a service's bursts."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.client import Client
from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.adaptive.undo import UndoLog
from gpsched.bench.workload import Job, Service
from tests.sim.test_daemon import Node, runs_on, until


pytestmark = [pytest.mark.sim, pytest.mark.root, pytest.mark.bpf]

# The command gpsched, but the driver refuses to change the slices of jobs.
REFUSING = """
import sys
from pathlib import Path
from gpsched.adaptive import slices
from gpsched.adaptive.driver.errors import ControlError
from gpsched.cli.main import main

class Refusing(slices.StockControl):
    def __init__(self, files):
        super().__init__(files)
        self.refused = Path(f"/proc/{files.pid}/comm").read_text() == "gpsched-be\\n" and files.pid

    def set_timeslice(self, group, us):
        if self.refused:
            raise ControlError("SET_TIMESLICE", self.refused, group.client, group.handle, 0x56)
        super().set_timeslice(group, us)

slices.StockControl = Refusing
sys.exit(main())
"""
RATE = 20.0


@pytest.fixture
def node(tmp_path: Path, two_gpus: SimulatedGpu) -> Iterator[Node]:
    node = Node(tmp_path, two_gpus)
    node.program = [sys.executable, "-c", REFUSING]
    yield node
    node.close()


@pytest.fixture
def pair(node: Node) -> tuple[Service, Job]:
    service, job = node.service(), node.job()
    node.start()
    node.attach(service, "lc")
    node.attach(job, "be")
    return service, job


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_stopped_during_bursts_and_never_without(node: Node, pair: tuple[Service, Job]) -> None:
    service, job = pair
    plain = node.stack.enter_context(
        subprocess.Popen([sys.executable, "-c", "import os; os.nice(19)\nwhile True: pass"])
    )
    node.stack.callback(plain.kill)
    with Client(node.socket) as client:
        client.attach(plain.pid, "be", starting=True)
    view = node.view(job)
    assert view is not None
    assert view.level == "freeze"
    assert "SET_TIMESLICE" in view.reason
    assert f"stopped during bursts of {service.pid}" in view.reason
    runs_on(job)  # nobody is busy
    service.begin(60, RATE)
    seen = set()
    until(lambda: seen.add(stopped(job.pid)) or seen == {True, False})
    assert not stopped(plain.pid)
    service.result()
    until(lambda: not stopped(job.pid))
    runs_on(job)
    view = node.view(plain)
    assert view is not None
    assert view.level == "observe"
    assert node.end(signal.SIGTERM) == 0
    undo = UndoLog(node.state)
    assert undo.frozen() == []
    undo.close()
    assert job.finish().ok


def test_a_killed_daemon_leaves_nobody_stopped(node: Node, pair: tuple[Service, Job]) -> None:
    service, job = pair
    service.begin(60, RATE)
    until(lambda: stopped(job.pid))
    node.end(signal.SIGKILL)
    until(lambda: not stopped(job.pid))
    runs_on(job)
    service.result()
    assert not stopped(job.pid)
