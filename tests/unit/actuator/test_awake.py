"""Where the actuator waits for events: on the CPU of a best-effort thread, which is awake, while holds are planned."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpsched.adaptive.actuator import GpuPlan, Mechanism, Reason, Trigger
from gpsched.adaptive.probes.events import Hint, Kind, encode_hint
from tests.unit.actuator.rig import SLEEP, now_ns, until


SPINS = (sys.executable, "-c", "while True: pass")
SPINS_IN_A_THREAD = (
    sys.executable,
    "-c",
    "import threading, time\ndef spin():\n while True: pass\nthreading.Thread(target=spin).start(); time.sleep(300)",
)
SPINS_FIRST = (sys.executable, "-c", "import os\nos.nice(-5)\nwhile True: pass")
EVERYWHERE = os.sched_getaffinity(0)

pytestmark = pytest.mark.skipif(len(EVERYWHERE) < 2, reason="needs two CPUs to choose from")


def threads(pid):
    return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]


class Waiting:
    """A rig with a plan of holds, and where its actuator waits."""

    def __init__(self, rig, mechanism=Mechanism.HOLD):
        self.rig = rig
        rig.publish(rig.plan(mechanism))

    @property
    def beside(self):
        return self.rig.actuator.counters().beside

    def cpus(self):
        """Those on which each thread of the actuator may run."""
        pid = self.rig.actuator.pid
        return [os.sched_getaffinity(tid) for tid in threads(pid)]

    def is_anywhere(self):
        return not self.beside and all(cpus == EVERYWHERE for cpus in self.cpus())

    def is_on(self, cpu):
        return {cpu} in self.cpus()

    def until(self, condition, seconds=10.0):
        """Have events come meanwhile: an actuator that hears of nothing looks for nobody."""
        return until(lambda: (self.rig.sync(), condition(), time.sleep(0.01))[1], seconds)

    def stays_anywhere(self, seconds=1.2):
        """Long enough to be found, and to be seen busy."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.rig.sync()
            time.sleep(0.01)
        return self.is_anywhere()


@pytest.fixture
def make_waiting(make_rig):
    def make(job=SPINS, count=1, mechanism=Mechanism.HOLD):
        return Waiting(make_rig(count, job=job), mechanism)

    return make


def pinned(waiting, cpu):
    """Have the job run there."""
    (job,) = waiting.rig.be
    for tid in threads(job):
        os.sched_setaffinity(tid, {cpu})


def test_waits_where_a_job_is_busy_and_follows_it(make_waiting):
    waiting = make_waiting()
    for cpu in (min(EVERYWHERE), max(EVERYWHERE)):
        pinned(waiting, cpu)
        waiting.until(lambda cpu=cpu: waiting.is_on(cpu))
        assert waiting.beside == waiting.rig.be[0]


def test_finds_the_thread_that_is_busy(make_waiting):
    waiting = make_waiting(SPINS_IN_A_THREAD)
    pinned(waiting, max(EVERYWHERE))
    waiting.until(lambda: waiting.is_on(max(EVERYWHERE)))


def test_a_job_that_waits_asleep_is_no_company(make_waiting):
    assert make_waiting(SLEEP).stays_anywhere()


def test_a_job_that_runs_before_others_is_no_company(make_waiting):
    """The actuator would have to wait for it."""
    waiting = make_waiting(SPINS_FIRST)
    until(lambda: os.getpriority(os.PRIO_PROCESS, waiting.rig.be[0]) == -5)
    assert waiting.stays_anywhere()


def test_waits_anywhere_where_no_hold_is_planned(make_waiting):
    """Controls take far longer than a CPU to wake."""
    assert make_waiting(mechanism=Mechanism.DISABLE).stays_anywhere()


def test_a_rhythm_that_foretells_every_burst_does_not_keep_it_from_looking(make_waiting):
    """Something is always awaited then."""
    waiting = make_waiting()
    rig = waiting.rig
    rig.publish(rig.plan(Mechanism.HOLD, trigger=Trigger(kind=Kind.HINT), launch_within_us=20_000))
    period, lead = 20_000_000, 5_000_000
    begin = now_ns() + period
    rig.actuator.announce(encode_hint(begin, rig.lc, Hint.RESERVE, period, lead))

    def burst():
        at_ns = (now_ns() - begin - lead) // period * period + period + begin + lead
        time.sleep((at_ns - now_ns()) / 1e9)
        rig.launch()
        rig.sync()
        return waiting.beside

    until(burst)
    assert rig.actuator.counters().reservations > 10


def test_waits_anywhere_where_it_would_have_to_wait_for_others(tmp_path):
    """Without real time and the least nice value a job's thread would not make way at once."""
    code = (
        "import sys, time, pathlib; from tests.unit.actuator.rig import Rig, build_fake_rm\n"
        "from tests.unit.actuator.test_awake import SPINS, Waiting\n"
        "folder = pathlib.Path(sys.argv[1]); rig = Rig(folder, build_fake_rm(folder), job=SPINS)\n"
        "try: print(Waiting(rig).stays_anywhere())\n"
        "finally: rig.close()"
    )
    without = ("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice")
    done = subprocess.run([*without, sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_waits_anywhere_again_when_the_job_sleeps(make_waiting):
    waiting = make_waiting()
    waiting.until(lambda: waiting.beside)
    os.kill(waiting.rig.be[0], 19)  # SIGSTOP
    waiting.until(waiting.is_anywhere)


def test_waits_anywhere_again_when_the_job_ends(make_waiting):
    waiting = make_waiting()
    waiting.until(lambda: waiting.beside)
    waiting.rig.exit(waiting.rig.be[0])
    waiting.until(waiting.is_anywhere)


def test_waits_anywhere_again_without_plans(make_waiting):
    waiting = make_waiting()
    waiting.until(lambda: waiting.beside)
    waiting.rig.publish()
    until(waiting.is_anywhere)


def test_hears_of_nothing_and_looks_at_nothing(make_waiting):
    """Idle, it is never woken to see where the job has gone."""
    waiting = make_waiting()
    waiting.until(lambda: waiting.beside)
    status = Path(f"/proc/{waiting.rig.actuator.pid}/status")

    def switches():
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

    time.sleep(0.1)
    before = switches()
    time.sleep(0.5)
    assert switches() == before


def test_controls_are_issued_elsewhere(make_waiting):
    """They take hundreds of µs, which the job's thread would lose, and the next event have to wait for."""
    waiting = make_waiting(mechanism=Mechanism.HOLD | Mechanism.DISABLE)
    rig, busy = waiting.rig, max(EVERYWHERE)
    pinned(waiting, busy)
    waiting.until(lambda: waiting.is_on(busy))
    rig.rm.cost_us = 200_000
    rig.trigger()
    until(lambda: rig.rm.number)
    during = waiting.cpus()
    rig.launch()
    rig.sync()
    record = rig.record()
    assert EVERYWHERE in during
    assert {busy} in during
    assert record.reason == Reason.SYNC
    assert record.end_ns - record.trigger_ns < 100_000_000
    assert [value for _, _, value in rig.controls()] == [True, False]


def test_another_gpu_does_not_wait_for_the_first_ones_controls(make_rig):
    rig = make_rig(2, job=SPINS)
    holds = Mechanism.HOLD | Mechanism.DISABLE
    members = [rig.member(rig.lc), *(rig.member(job, gpu=gpu) for gpu, job in enumerate(rig.be))]
    waiting = Waiting(rig)
    rig.publish(*(rig.plan(holds, gpu=gpu) for gpu in range(2)), members=members, gpus=(GpuPlan(), GpuPlan()))
    waiting.until(lambda: waiting.beside)
    rig.rm.cost_us = 200_000
    rig.trigger()
    until(lambda: rig.rm.number >= 2)
    first, second = (entry.begin_ns for entry in rig.rm.entries[:2])
    assert second - first < 100_000_000


def begins_us(rig):
    """From a trigger to its first control, while no CPU sleeps: the mean, which tells of a few that are very late."""
    took = []
    for _ in range(100):
        known, at = rig.rm.number, now_ns()
        rig.trigger(time_ns=at)
        until(lambda known=known: rig.rm.number > known)
        took.append((rig.rm.entries[known].begin_ns - at) / 1000)
        rig.launch()
        rig.sync()
        rig.record()
        time.sleep(0.01)
    return statistics.mean(took)


def test_controls_that_are_left_to_another_thread_begin_at_once(make_waiting):
    """A leader that looked again and again kept the one that it had called from the lock, for 10 ms to 1 s."""
    waiting = make_waiting(count=len(EVERYWHERE), mechanism=Mechanism.HOLD | Mechanism.DISABLE)
    rig = waiting.rig
    waiting.until(lambda: waiting.beside)
    left_to_another_us = begins_us(rig)
    assert waiting.beside
    rig.publish(rig.plan(Mechanism.DISABLE))
    until(waiting.is_anywhere)
    assert left_to_another_us < 50 * begins_us(rig)
