"""SIGKILL of the daemon or of the actuator at every step: the survivor enables all channels and restores all slices.

Times are on the embedded GPU's own clock (scale 1: it runs as fast as the wall's).
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpsched.adaptive.actuator import ActuatorGoneError, Mechanism
from gpsched.adaptive.errors import UnsupportedHostError
from gpsched.adaptive.simgpu import SimulatedGpu
from tests.sim.actuator_bed import BE_US, LC_US, OWN_US, Bed, until


pytestmark = [pytest.mark.sim, pytest.mark.root]

LIMIT_US = 250_000
IN_FLIGHT_S = (0.0, 0.0002, 0.0005, 0.001, 0.002)  # within the controls of a reservation, which take about 1 ms


@pytest.fixture(scope="module")
def gpu():
    try:
        gpu = SimulatedGpu(scale=1)
        gpu.start()
    except UnsupportedHostError as error:
        pytest.skip(str(error))
    yield gpu
    gpu.stop()


@pytest.fixture
def bed(gpu):
    bed = Bed(gpu, jobs=2)
    yield bed
    bed.close()


def started(bed):
    """Nothing is in force yet."""
    bed.publish()


def planned(bed):
    bed.publish(bed.plan(limit_us=60_000_000), original_us=OWN_US)


def reserved(bed):
    planned(bed)
    bed.reserve()


def in_turns(bed):
    bed.publish(turns_us=(20_000, 20_000), original_us=OWN_US)
    until(lambda: bed.actuator.counters().turns >= 2)


def preempting(bed):
    mechanism = Mechanism.DISABLE_SCHEDULING | Mechanism.PREEMPT | Mechanism.RESTART
    bed.publish(bed.plan(mechanism, limit_us=60_000_000), original_us=OWN_US)
    bed.announce()
    until(lambda: bed.actuator.counters().controls >= 4)


def in_flight(after_s):
    def step(bed):
        planned(bed)
        bed.announce()
        time.sleep(after_s)

    step.__name__ = f"in flight after {after_s * 1e6:.0f} µs"
    return step


STEPS = [started, planned, reserved, in_turns, preempting, *map(in_flight, IN_FLIGHT_S)]


def assert_all_undone(bed):
    assert bed.slices() == [OWN_US] * 3
    assert bed.working() == [job.pid for job in bed.jobs]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_the_actuator_is_killed(bed, step):
    bed.start()
    bed.set_slices()
    step(bed)
    os.kill(bed.actuator.pid, signal.SIGKILL)
    begin = bed.gpu.stats()["now_us"]
    with pytest.raises(ActuatorGoneError):
        until(bed.actuator.check)
    took = bed.gpu.stats()["now_us"] - begin
    if step is started:
        bed.set_slices(OWN_US, OWN_US)  # they were in no plan
    assert took < LIMIT_US
    assert_all_undone(bed)


DAEMON = """
import os, sys, time
from tests.faults import test_actuator_kill as kill
from tests.sim.actuator_bed import Existing

bed = Existing(*map(int, sys.argv[2:]))
bed.start()
bed.set_slices()
dict((step.__name__, step) for step in kill.STEPS)[sys.argv[1]](bed)
print(bed.actuator.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("step", STEPS[1:], ids=lambda step: step.__name__)
def test_the_daemon_is_killed(bed, step):
    pids = [str(program.pid) for program in (bed.service, *bed.jobs)]
    command = [sys.executable, "-c", DAEMON, step.__name__, *pids]
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **bed.gpu.env}, text=True)
    actuator = int(daemon.stdout.readline())
    assert bed.slices() == [LC_US, BE_US, BE_US]
    daemon.kill()
    begin = bed.gpu.stats()["now_us"]
    daemon.communicate()
    until(lambda: not Path(f"/proc/{actuator}/fdinfo/0").exists())  # it has ended
    took = bed.gpu.stats()["now_us"] - begin
    assert took < LIMIT_US
    assert_all_undone(bed)


def test_both_are_killed_and_the_next_daemon_repairs(bed):
    """Nobody is left to undo: whoever finds the processes again enables all it finds."""
    bed.start()
    reserved(bed)
    assert bed.working() == []
    os.kill(bed.actuator.pid, signal.SIGKILL)
    until(lambda: not bed.actuator.alive)
    assert bed.working() == []
    assert bed.actuator.undo() == []
    assert len(bed.working()) == 2
