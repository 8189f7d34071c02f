"""The whole node on the embedded GPU: real daemon, real BPF, unmodified programs; slices are read back."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.client import Client, RemoteError
from gpsched.adaptive.driver import DriverFiles, StockControl, scan_process
from gpsched.adaptive.errors import DaemonUnreachableError
from gpsched.adaptive.model import ProcessView
from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.bench.workload import Job, Service, cuda_job, cuda_service


pytestmark = [pytest.mark.sim, pytest.mark.root, pytest.mark.bpf]

GPSCHED = [sys.executable, "-m", "gpsched.cli.main"]
OWN_US, LC_US, BE_US = 2048, 1_000_000, 1


class Node:
    """A daemon with its own socket and state, and the programs beside it. ``program``: the command gpsched."""

    program = GPSCHED

    def __init__(self, directory: Path, gpu: SimulatedGpu) -> None:
        self.socket, self.state, self.config = directory / "s.sock", directory / "state", directory / "config.toml"
        self.config.touch()  # a configuration that is named must be there
        self.environment = dict(gpu.env)
        self.stack = contextlib.ExitStack()
        self.daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [*self.program, "daemon", "--socket", str(self.socket), "--state-dir", str(self.state)]
        self.daemon = subprocess.Popen([*command, "--config", str(self.config)])
        until(lambda: self._answers())

    def _answers(self) -> bool:
        assert self.daemon is not None
        assert self.daemon.poll() is None
        try:
            Client(self.socket).close()
        except DaemonUnreachableError:
            return False
        return True

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.daemon is not None
        self.daemon.send_signal(number)
        code = self.daemon.wait(60)
        self.daemon = None
        return code

    def actuator(self) -> int:
        """The pid of the daemon's actuator."""
        assert self.daemon is not None
        children = Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children").read_text().split()
        (actuator,) = (int(pid) for pid in children if "gpsched-act" in Path(f"/proc/{pid}/comm").read_text())
        return actuator

    def kill_both(self) -> None:
        """Neither the daemon nor the actuator has the time to undo anything."""
        assert self.daemon is not None
        actuator = self.actuator()
        self.daemon.send_signal(signal.SIGSTOP)
        os.kill(actuator, signal.SIGKILL)
        self.end(signal.SIGKILL)

    def copies(self) -> int:
        """How many descriptors of the driver the daemon holds."""
        assert self.daemon is not None
        return sum(_target(link) == "nvidiactl" for link in Path(f"/proc/{self.daemon.pid}/fd").iterdir())

    def restore(self) -> str:
        command = [*GPSCHED, "restore", "--socket", str(self.socket), "--state-dir", str(self.state)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    def service(self) -> Service:
        return self.stack.enter_context(cuda_service(self.environment))

    def job(self) -> Job:
        return self.stack.enter_context(cuda_job(self.environment))

    def attach(self, workload: Service | Job, class_: str) -> None:
        with Client(self.socket) as client:
            client.attach(workload.pid, class_)  # type: ignore[arg-type]

    def detach(self, workload: Service | Job) -> None:
        with Client(self.socket) as client:
            client.detach(workload.pid)

    def view(self, workload: Service | Job) -> ProcessView | None:
        with Client(self.socket) as client:
            views = client.snapshot().processes
        return next((view for view in views if view.pid == workload.pid), None)

    def close(self) -> None:
        with self.stack:
            if self.daemon is not None:
                self.daemon.kill()
                self.daemon.wait()


def _target(link: Path) -> str:
    """The name of what a descriptor refers to; empty for one that was closed since it was listed."""
    try:
        return link.readlink().name
    except FileNotFoundError:
        return ""


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for other processes; generous, since the machine may be busy."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def slice_of(workload: Service | Job) -> int:
    """Ask the driver, by a descriptor copy of our own."""
    with DriverFiles(workload.pid) as files:
        (group,) = (group for group in scan_process(files) if group.engine == "compute")
        return StockControl(files).get_timeslice(group)


def runs_on(*jobs: Job) -> None:
    """Every job completes kernels from now on: none is left disabled."""
    before = [job.progress().kernels for job in jobs]
    until(lambda: all(job.progress().kernels > count + 20 for job, count in zip(jobs, before, strict=True)))


def standing_still(gpu: SimulatedGpu, *jobs: Job) -> list[Job]:
    """Those whose channels are disabled. The GPU tells, since such a job cannot answer."""
    done = lambda: {each["pid"]: each["kernels"] for each in gpu.stats()["processes"]}  # noqa: E731
    before = done()
    time.sleep(1.0)
    after = done()
    return [job for job in jobs if after[job.pid] == before[job.pid]]


@pytest.fixture
def node(tmp_path: Path, two_gpus: SimulatedGpu) -> Iterator[Node]:
    node = Node(tmp_path, two_gpus)
    yield node
    node.close()


@pytest.fixture
def pair(node: Node) -> tuple[Service, Job]:
    """A managed service and a managed job, both attached after they had started."""
    service, job = node.service(), node.job()
    node.start()
    node.attach(service, "lc")
    node.attach(job, "be")
    assert (slice_of(service), slice_of(job)) == (LC_US, BE_US)
    return service, job


def test_sigterm_restores_every_value(node: Node, pair: tuple[Service, Job]) -> None:
    assert node.end(signal.SIGTERM) == 0
    assert [slice_of(workload) for workload in pair] == [OWN_US, OWN_US]
    assert (node.state / "undo.jsonl").read_bytes() == b""
    assert not node.socket.exists()


def test_the_actuator_restores_when_the_daemon_is_killed(node: Node, pair: tuple[Service, Job]) -> None:
    actuator = node.actuator()
    node.end(signal.SIGKILL)
    until(lambda: [slice_of(workload) for workload in pair] == [OWN_US, OWN_US])
    until(lambda: not Path(f"/proc/{actuator}").exists())  # it does not stay behind


def test_restore_after_both_were_killed(node: Node, pair: tuple[Service, Job]) -> None:
    node.kill_both()
    assert [slice_of(workload) for workload in pair] == [LC_US, BE_US]
    assert node.restore() == "3 settings restored\n"  # two slices, and channels that may have been disabled
    assert [slice_of(workload) for workload in pair] == [OWN_US, OWN_US]
    assert node.restore() == "0 settings restored\n"


def test_the_next_start_restores_after_both_were_killed(node: Node, pair: tuple[Service, Job]) -> None:
    node.kill_both()
    node.start()  # over the socket that the killed one left
    assert [slice_of(workload) for workload in pair] == [OWN_US, OWN_US]


@pytest.mark.parametrize("restart", [False, True], ids=["restore", "start"])
def test_jobs_in_turns_run_on_after_both_were_killed(
    node: Node, pair: tuple[Service, Job], two_gpus: SimulatedGpu, restart: bool
) -> None:
    """One of the two is disabled at any moment, so a kill leaves one that only the undo log knows of."""
    service, job = pair
    second = node.job()
    node.attach(second, "be")
    runs_on(job, second)
    node.kill_both()
    assert len(standing_still(two_gpus, job, second)) == 1
    if restart:
        node.start()
    else:
        assert node.restore() == "5 settings restored\n"  # three slices, and the channels of two jobs
    runs_on(job, second)
    assert [slice_of(workload) for workload in (service, job, second)] == [OWN_US] * 3


def test_restore_with_a_running_daemon(node: Node, pair: tuple[Service, Job]) -> None:
    assert node.restore() == "3 settings restored\n"  # two slices, and channels that may have been disabled
    assert [slice_of(workload) for workload in pair] == [OWN_US, OWN_US]
    assert node.view(pair[0]) is None


def test_two_jobs_take_turns_and_both_run_on_whoever_dies(node: Node, pair: tuple[Service, Job]) -> None:
    service, job = pair
    with cuda_job(node.environment) as second:
        node.attach(second, "be")
        view = node.view(second)
        assert view is not None
        assert "takes turns with 1 other" in view.reason
        runs_on(job, second)
        os.kill(node.actuator(), signal.SIGKILL)
        runs_on(job, second)
        # Without an actuator nobody passes turns on, and short slices would starve both.
        until(lambda: (slice_of(job), slice_of(second)) == (OWN_US, OWN_US))
        until(lambda: (slice_of(job), slice_of(second)) == (BE_US, BE_US))  # another one was started
        runs_on(job, second)
        second.finish()
    until(lambda: slice_of(job) == BE_US)
    runs_on(job)
    service.finish()
    until(lambda: slice_of(job) == OWN_US)


def test_jobs_in_turns_that_reservations_disable_run_on(node: Node) -> None:
    """On an H200 one of them stood still for good: its turn had taken it off the runlist, a reservation disabled it."""
    node.config.write_text('[reservations]\nlevel = "reserve"\n')
    service, jobs = node.service(), [node.job(), node.job()]
    node.start()
    for job in jobs:
        node.attach(job, "be")
    node.attach(service, "lc")
    service.run(150, 100.0)
    view = node.view(service)
    assert view is not None
    assert view.hints is not None
    assert view.hints.reservations > 20
    runs_on(*jobs)


def test_detach_gives_everything_back(node: Node, pair: tuple[Service, Job]) -> None:
    service, job = pair
    node.detach(service)
    assert [slice_of(workload) for workload in pair] == [OWN_US, OWN_US]
    view = node.view(job)
    assert view is not None
    assert "no latency-critical process" in view.reason
    with pytest.raises(RemoteError, match="not managed"):
        node.detach(service)


def test_copies_of_a_dead_jobs_descriptors_are_closed(node: Node, pair: tuple[Service, Job]) -> None:
    _, job = pair
    assert node.copies() == 2
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: node.copies() == 1)  # one that is kept would keep the job's GPU memory allocated
    until(lambda: node.view(job) is None)


def test_rules_classify_programs_that_nobody_registered(node: Node) -> None:
    early = node.service()
    here = f'env = {{ GPSCHED_SIM_DIR = "{node.environment["GPSCHED_SIM_DIR"]}" }}'  # not other tests' programs
    node.config.write_text(
        f'[[rule]]\nname = "svc"\nclass = "lc"\nexe = "*/gpsched-lc"\nslo = "5ms"\n{here}\n'
        f'[[rule]]\nclass = "be"\ncommand = "gpsched-be"\ntenant = "batch"\n{here}\n'
    )
    node.start()
    late = node.job()
    until(lambda: slice_of(late) == BE_US)
    assert slice_of(early) == LC_US
    views = node.view(early), node.view(late)
    assert views[0] is not None
    assert views[1] is not None
    assert (views[0].source, views[0].slo_us, views[1].tenant) == ("rule svc", 5000.0, "batch")
    assert views[1].groups[0].gpu == 0


def test_unmanaged_programs_are_never_touched(node: Node, pair: tuple[Service, Job]) -> None:
    with cuda_job(node.environment) as other:
        assert slice_of(other) == OWN_US
        assert node.view(other) is None
        node.detach(pair[1])
        assert slice_of(other) == OWN_US


def test_a_program_is_managed_from_its_first_allocation(node: Node) -> None:
    node.start()
    job = node.job()
    node.attach(job, "be")
    options = ["--socket", str(node.socket), "--class", "lc", "--"]
    program = Path(__file__).parents[2] / "bench/build/gpsched-lc"
    environment = dict(os.environ, **node.environment)
    service = subprocess.Popen([*GPSCHED, "run", *options, str(program)], env=environment, stdin=subprocess.PIPE)
    try:
        until(lambda: slice_of(job) == BE_US)
        with Client(node.socket) as client:
            view = next(view for view in client.snapshot().processes if view.class_ == "lc")
            daemon = client.snapshot().daemon
        assert view.source == "run"
        assert view.groups[0].timeslice_us == LC_US  # although CUDA set its own value after creating the group
        assert (daemon.lost_events, daemon.failed_controls) == (0, 0)
        assert [Path(library).name for library in daemon.libraries] == ["libcuda.so.1"]
    finally:
        service.terminate()
        service.wait(60)
    until(lambda: slice_of(job) == OWN_US)


def test_two_gpus_are_apart(node: Node) -> None:
    node.start()
    service = node.service()
    other = node.stack.enter_context(cuda_job(node.environment | {"CUDA_VISIBLE_DEVICES": "1"}))
    node.attach(service, "lc")
    node.attach(other, "be")
    views = node.view(service), node.view(other)
    assert [view and view.gpus for view in views] == [[0], [1]]
    assert (slice_of(service), slice_of(other)) == (OWN_US, OWN_US)
