"""The daemon as systemd would run it: same capabilities, messages and reloads."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpsched.adaptive.driver import DriverFiles, StockControl, scan_process
from gpsched.adaptive.record import Record
from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.bench.workload import Job, Service
from tests.sim.test_daemon import GPSCHED, OWN_US, Node, _target, slice_of, until


pytestmark = [pytest.mark.sim, pytest.mark.root, pytest.mark.bpf]

_UNIT = Path(__file__).parents[2] / "packaging/systemd/gpsched.service"


class Managed(Node):
    """A node whose daemon has the unit's capabilities, and a manager's socket to talk to."""

    def __init__(self, directory: Path, gpu: SimulatedGpu) -> None:
        super().__init__(directory, gpu)
        self.log, self.scale = directory / "log", gpu.scale
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(directory / "notify"))
        self.manager.settimeout(60)
        self.stack.callback(self.manager.close)

    def start(self) -> None:
        bounds = re.findall(
            r"CAP_(\w+)", next(line for line in _UNIT.read_text().splitlines() if "CapabilityB" in line)
        )
        only = ",".join(["-all", *(f"+{name.lower()}" for name in bounds)])
        command = ["setpriv", "--bounding-set", only, "--no-new-privs", *GPSCHED, "daemon", "--log-format", "json"]
        command += ["--socket", str(self.socket), "--state-dir", str(self.state), "--config", str(self.config)]
        environment = dict(
            os.environ, NOTIFY_SOCKET=self.manager.getsockname(), WATCHDOG_USEC="2000000", JOURNAL_STREAM="1:1"
        )
        with self.log.open("wb") as log:
            self.daemon = subprocess.Popen(command, env=environment, stderr=log)
        assert "STATUS=levels up to" in self.told("READY=1")

    def told(self, what: str) -> str:
        """Wait for a message of the daemon to its manager."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = self.manager.recv(4096).decode()
            if what in message:
                return message
        raise AssertionError(f"never told {what}")

    def gpsched(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [*GPSCHED, *args, "--socket", str(self.socket)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def reload(self, config: str) -> str:
        self.config.write_text(config)
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGHUP)
        self.told("RELOADING=1")
        return self.told("READY=1")


@pytest.fixture
def node(tmp_path: Path, two_gpus: SimulatedGpu) -> Iterator[Managed]:
    node = Managed(tmp_path, two_gpus)
    yield node
    node.close()


@pytest.fixture
def pair(node: Managed) -> tuple[Service, Job]:
    service, job = node.service(), node.job()
    node.start()
    node.attach(service, "lc")
    node.attach(job, "be")
    return service, job


def _entries(node: Managed) -> list[dict[str, object]]:
    return [json.loads(line[3:]) for line in node.log.read_text().splitlines()]


def test_all_works_within_the_units_capabilities(node: Managed, pair: tuple[Service, Job]) -> None:
    assert [slice_of(workload) != OWN_US for workload in pair] == [True, True]
    assert "2 of 2 timeslices are as intended" in node.gpsched("verify").stdout
    node.told("WATCHDOG=1")
    node.told("WATCHDOG=1")
    assert node.end(signal.SIGTERM) == 0
    node.told("STOPPING=1")
    assert [slice_of(workload) for workload in pair] == [OWN_US, OWN_US]
    assert all(entry["level"] in ("info", "warning") for entry in _entries(node))
    assert any("no NVIDIA driver is loaded" in str(entry["message"]) for entry in _entries(node)) or (
        Path("/proc/driver/nvidia/version").exists()
    )


def test_verify_tells_what_others_changed(node: Managed, pair: tuple[Service, Job]) -> None:
    _, job = pair
    with DriverFiles(job.pid) as files:
        (group,) = (group for group in scan_process(files) if group.engine == "compute")
        StockControl(files).set_timeslice(group, 777)
    result = node.gpsched("verify")
    assert result.returncode == 1
    assert f"pid {job.pid} group" in result.stdout
    assert "777 µs, intended 1 µs" in result.stdout
    assert "1 of 2" in result.stdout
    checks = json.loads(node.gpsched("verify", "--json").stdout)
    assert sorted(check["live_us"] == check["intended_us"] for check in checks) == [False, True]


def test_a_reload_classifies_anew_and_a_wrong_one_changes_nothing(node: Managed) -> None:
    rules = '[[rule]]\nname = "{}"\nclass = "{}"\nexe = "*/gpsched-be"\n[[rule]]\nclass = "lc"\nexe = "*/gpsched-lc"\n'
    node.config.write_text(rules.format("one", "be"))
    service, job = node.service(), node.job()
    node.start()
    until(lambda: slice_of(job) != OWN_US)
    assert "wrong configuration" in node.reload("[timeslise]\n")
    assert slice_of(job) != OWN_US
    status = node.gpsched("status")
    assert status.returncode == 1
    assert "did you mean 'timeslice'?" in status.stdout
    assert "levels up to" in node.reload(rules.format("two", "unmanaged"))
    assert slice_of(job) == OWN_US  # the manager hears READY when it is in force, not before
    assert node.view(job) is None
    assert node.view(service) is not None
    assert node.gpsched("status").returncode == 0
    node.reload(rules.format("three", "be"))
    assert slice_of(job) != OWN_US
    view = node.view(job)
    assert view is not None
    assert view.source == "rule three"


def test_metrics_come_with_a_reload(node: Managed, pair: tuple[Service, Job]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    node.reload(f'[metrics]\nlisten = "127.0.0.1:{port}"\n')

    def scraped() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            samples = [sample for family in families for sample in family.samples]
        slices = [sample for sample in samples if sample.name == "gpsched_process_timeslice_seconds"]
        return {sample.labels["class"]: sample.value for sample in slices}

    until(lambda: set(scraped()) == {"lc", "be"})
    assert scraped()["be"] < scraped()["lc"]
    node.reload("")
    with pytest.raises(OSError, match="refused"):
        scraped()


def test_record_ends_with_the_daemon_and_top_shows_the_pair(
    node: Managed, pair: tuple[Service, Job], tmp_path: Path
) -> None:
    once = node.gpsched("top", "--once")
    assert [line.split()[:2] for line in once.stdout.splitlines()[3:]] == [
        [str(pair[0].pid), "lc"],
        [str(pair[1].pid), "be"],
    ]
    dumped = node.gpsched("dump", "-O", "csv").stdout.splitlines()
    assert len(dumped) == 3
    file = tmp_path / "r.jsonl.gz"
    recorder = subprocess.Popen([*GPSCHED, "record", str(file), "-i", "250ms", "--socket", str(node.socket)])
    until(lambda: file.exists() and file.stat().st_size > 500)
    assert node.end(signal.SIGTERM) == 0
    assert recorder.wait(30) == 0
    record = Record(file)
    assert record.complete
    assert {view.pid for view in record.snapshots[0].processes} == {pair[0].pid, pair[1].pid}


def test_a_second_signal_to_reload_leaks_nothing(node: Managed) -> None:
    node.start()
    daemon = node.daemon
    assert daemon is not None

    def descriptors() -> list[str]:
        links = Path(f"/proc/{daemon.pid}/fd").iterdir()
        return [re.sub(r"\d+", "N", _target(link)) for link in links]

    node.reload("")
    before = descriptors()
    for _ in range(10):
        node.reload('[[rule]]\nclass = "be"\nuser = "nobody"\n')
    until(lambda: not Counter(descriptors()) - Counter(before))  # it may still be looking through /proc


def test_requests_are_seen_as_bursts_with_latencies(node: Managed, pair: tuple[Service, Job]) -> None:
    service, job = pair
    until(lambda: "libcuda" in node.gpsched("status").stdout)  # its probes are in place
    run = service.run(40, 50.0)

    def counted() -> int:
        view = node.view(service)
        return sum(view.latency.counts) if view and view.latency else 0

    until(lambda: counted() >= 30)  # on a busy machine some bursts run into the next
    view, other = node.view(service), node.view(job)
    assert view is not None
    assert view.hints is not None
    assert view.latency is not None
    assert view.hints.bursts == sum(view.latency.counts) <= 45  # its calibration came before it was attached
    assert view.spans
    assert {span.kind for span in view.spans} <= {"burst", "reservation"}
    mean_us = view.latency.sum_us / sum(view.latency.counts)
    assert mean_us <= 1.2 * node.scale * sum(run.latency_us) / len(run.latency_us)
    assert other is not None
    assert other.latency is None
    assert {span.kind for span in other.spans} == {"turn"}
    assert view.gpu_share is not None
    assert other.gpu_share is not None
    assert 0 < view.gpu_share < 1
    assert 0 < other.gpu_share <= 1


def test_settings_change_while_it_runs_until_the_next_reload(node: Managed, pair: tuple[Service, Job]) -> None:
    _, job = pair
    result = node.gpsched("policy", "timeslice.be_us=77", "reservations.level=timeslice")
    assert result.returncode == 0
    assert "be_us = 77" in result.stdout
    assert 'level = "timeslice"' in result.stdout
    until(lambda: slice_of(job) == 77)
    for wrong, message in (
        ("timeslice.be=1", "did you mean 'be_us'?"),
        ("timeslice.be_us=0", "policy: timeslice.be_us: Expected `int` >= 1"),
        ("timeslise.be_us=1", "did you mean 'timeslice'?"),
        ("rule.x=1", "change it in the configuration file"),
        ("fifo", "nor one of deadline, laxity, priority, share"),
        ("be_us", "is not SECTION.KEY=VALUE"),
    ):
        refused = node.gpsched("policy", wrong)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr
    assert slice_of(job) == 77
    node.reload("")
    assert slice_of(job) == 1
