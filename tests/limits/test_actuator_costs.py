"""What the actuator costs when nothing happens, and that it bears storms. Memory and CPU time, no wall times."""

import time
from pathlib import Path

from gpsched.adaptive.actuator import Reason
from tests.unit.actuator.conftest import fake_rm, make_rig, rig  # noqa: F401 - fixtures
from tests.unit.actuator.rig import until


MAX_RESIDENT_KB = 10_240


def status(pid, name):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name + ":")))


def cpu_seconds(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def test_memory_and_idle_time(rig):  # noqa: F811
    rig.publish(rig.plan())
    time.sleep(0.5)
    before = cpu_seconds(rig.actuator.pid)
    wakes = status(rig.actuator.pid, "voluntary_ctxt_switches")
    time.sleep(3)
    assert cpu_seconds(rig.actuator.pid) - before < 3 * 0.005
    assert status(rig.actuator.pid, "voluntary_ctxt_switches") == wakes
    assert status(rig.actuator.pid, "VmRSS") < MAX_RESIDENT_KB


def test_a_storm_grows_nothing(rig):  # noqa: F811
    rig.publish(rig.plan(max_per_second=50, launch_within_us=1000))
    rig.trigger()
    rig.record()
    descriptors = len(list(Path(f"/proc/{rig.actuator.pid}/fd").iterdir()))
    for _ in range(20_000):
        rig.trigger()
    until(lambda: rig.actuator.counters().events == 20_001)
    counters = rig.actuator.counters()
    assert counters.triggers == 20_001
    assert counters.reservations < 60 + 50 * 10
    until(lambda: rig.actuator.counters().disabled == 0)
    assert {record.reason for record in rig.actuator.records()} <= {Reason.NO_LAUNCH}
    assert len(list(Path(f"/proc/{rig.actuator.pid}/fd").iterdir())) == descriptors
    assert status(rig.actuator.pid, "VmRSS") < MAX_RESIDENT_KB
