"""The whole loop on the embedded GPU: the daemon starts a tuner, which measures, changes settings, and may die."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpsched.adaptive import agent
from gpsched.adaptive.client import Client
from gpsched.adaptive.knobs import SettingsView
from gpsched.bench.daemon import running_daemon
from gpsched.bench.device import Device, favour, open_device
from gpsched.bench.workload import Job, Service, cuda_job, cuda_service
from gpsched.tuner.history_file import path_in
from gpsched.tuner.history_reader import HistoryReader


pytestmark = [pytest.mark.sim, pytest.mark.root, pytest.mark.bpf]

RATE = 200.0  # in the programs' time, which is stretched: about 40 a second


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    with open_device("simulated") as gpu:
        yield gpu


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with running_daemon("[tuner]\nenabled = true\nwindow_s = 1.5\n") as client:
        yield client


@pytest.fixture
def pair(client: Client, gpu: Device) -> Iterator[tuple[Service, Job]]:
    """A service under steady load beside a job."""
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(cuda_service(dict(gpu.environment) | agent.environment(), "--prep-us", "500"))
        job = stack.enter_context(cuda_job(gpu.environment))
        favour(service.pid)
        favour(job.pid)
        client.attach(service.pid, "lc", slo_us=200_000.0)
        client.attach(job.pid, "be")
        ending = threading.Event()
        load = threading.Thread(target=lambda: _load(service, ending))
        load.start()
        yield service, job
        ending.set()
        load.join()
        for workload in (service, job):
            client.detach(workload.pid)
        assert job.finish().bad_counters == 0


def _load(service: Service, ending: threading.Event) -> None:
    while not ending.is_set():
        service.run(50, RATE)


def until(condition: Callable[[], object], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def tuned(view: SettingsView) -> bool:
    return any(knob.owner == "tuner" for gpu in view.gpus for knob in gpu.knobs)


def test_it_tunes_and_whatever_becomes_of_it_nothing_stays(client: Client, pair: tuple[Service, Job]) -> None:
    state_dir = Path(client.path).parent / "state"
    until(lambda: tuned(client.settings()))
    with HistoryReader(path_in(state_dir)) as history:
        until(lambda: any(window.learned for window in history.windows()))
        until(lambda: any(change.kind == "try" for change in history.changes()))
        window = next(window for window in history.windows() if window.learned)
    assert window.lc[0].bursts >= 20
    assert window.lc[0].triggered > 0.5
    assert window.progress
    assert any(view.last_tuning for view in client.snapshot().processes)
    first = client.settings().tuner_pid
    assert first is not None
    _costs_little(first)

    os.kill(first, signal.SIGKILL)
    until(lambda: not tuned(client.settings()), 10.0)
    until(lambda: client.settings().tuner_pid not in (None, first))

    client.pin("turn_us", 60_000)
    until(lambda: tuned(client.settings()))  # from the history, and not the pinned knob
    (settings,) = client.settings().gpus
    owners = {knob.name: knob.owner for knob in settings.knobs}
    assert owners["reservations.turn_us"] == "pin"
    client.unpin("turn_us")

    client.set({"tuner": {"enabled": False}})
    until(lambda: client.settings().tuner_pid is None)
    assert not tuned(client.settings())


def _costs_little(pid: int) -> None:
    """Its memory; its processor time is measured by docs/tuner.md, where the machine is not shared."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident_kb = int(status.split("VmRSS:")[1].split()[0])
    assert resident_kb < 400 * 1024


def test_best_effort_work_keeps_to_its_share(client: Client, gpu: Device) -> None:
    """Also a single job, which takes no turns otherwise; and it has everything again as soon as the share is lifted."""
    with cuda_service(gpu.environment) as service, cuda_job(gpu.environment) as job:
        client.attach(service.pid, "lc")
        client.attach(job.pid, "be")

        def rate() -> float:
            before = job.progress()
            time.sleep(3.0)
            after = job.progress()
            return (after.kernels - before.kernels) / (after.time_us - before.time_us)

        whole = rate()
        client.set({"reservations": {"be_share": 0.4}})
        part = min(rate() for _ in range(2))
        client.set({"reservations": {"be_share": 1.0}})
        again = max(rate() for _ in range(2))
        for workload in (service, job):
            client.detach(workload.pid)
        assert job.finish().bad_counters == 0
    assert 0.2 * whole < part < 0.65 * whole
    assert again > 0.8 * whole
