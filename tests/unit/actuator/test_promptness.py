"""How soon a reservation begins: where the agent's thread runs, and how one that is due later is awaited."""

import mmap
import os
import statistics
import sys
import time

import pytest

from gpsched.adaptive.actuator import GpuPlan, Mechanism, Trigger
from gpsched.adaptive.actuator.slots import find_agent
from gpsched.adaptive.agent.page import Layout
from gpsched.adaptive.probes.events import Hint, Kind, encode_hint
from tests.unit.actuator.agent_host import NICEST, OWN_NICE
from tests.unit.actuator.rig import now_ns, until


HOLDS = (sys.executable, "-m", "tests.unit.actuator.agent_host")
FIRST, OWN = -20, OWN_NICE


class Held:
    """A rig whose service has an agent."""

    def __init__(self, rig):
        self.rig = rig
        self.tid, file = until(lambda: find_agent(rig.lc))
        self._page = Layout.from_buffer(mmap.mmap(file, 4096))
        os.close(file)

    def hold(self, mechanism=Mechanism.HOLD):
        """How the agent's thread ran when it launched (None if it did not): its nice value, and on how many CPUs."""
        self.rig.publish(self.rig.plan(mechanism, launch_within_us=20_000))
        self.rig.trigger()
        launched = self.rig.record().ready_ns
        return (NICEST - self._page.failures, self._page.last_error) if launched else None

    def runs_first(self):
        return os.getpriority(os.PRIO_PROCESS, self.tid) == FIRST and len(os.sched_getaffinity(self.tid)) == 1

    def is_as_before(self):
        cpus = os.sched_getaffinity(self.rig.lc)
        return os.getpriority(os.PRIO_PROCESS, self.tid) == OWN and os.sched_getaffinity(self.tid) == cpus


@pytest.fixture
def make_held(make_rig):
    def make(*mode):
        return Held(make_rig(service=(*HOLDS, *mode)))

    return make


def test_the_agent_launches_where_the_actuator_is_awake(make_held):
    """And stays there, since moving it takes as long as a launch."""
    held = make_held()
    for _ in range(3):
        assert held.hold() == (FIRST, 1)
        assert held.runs_first()


def test_the_agent_runs_anywhere_where_a_control_is_issued(make_held):
    """Beside the actuator it would wait for that control: hundreds of us."""
    held = make_held()
    held.hold()
    assert held.hold(Mechanism.HOLD | Mechanism.DISABLE) == (OWN, len(os.sched_getaffinity(held.rig.lc)))
    assert held.is_as_before()


def test_an_agent_that_went_back_by_itself_is_placed_again(make_held):
    """As it does when it has launched nothing for a while."""
    held = make_held()
    held.hold()
    os.setpriority(os.PRIO_PROCESS, held.tid, OWN)
    os.sched_setaffinity(held.tid, os.sched_getaffinity(held.rig.lc))
    time.sleep(0.6)
    assert held.hold() == (FIRST, 1)


def test_an_agent_that_does_not_answer_is_no_harm(make_held):
    held = make_held("silent")
    held.rig.publish(held.rig.plan(Mechanism.HOLD, launch_within_us=500_000))
    for _ in range(2):
        held.rig.trigger()
        held.rig.launch()
        held.rig.sync()
        assert not held.rig.record().ready_ns


def test_an_agent_is_let_go_with_its_plan(make_held):
    held = make_held()
    held.hold()
    held.rig.publish()
    until(held.is_as_before)


def test_an_agent_of_two_plans_is_let_go_with_the_last(make_held):
    """A process on two GPUs: what one plan had given it was taken for its own by the other."""
    held = make_held()
    rig = held.rig
    plans = [rig.plan(Mechanism.HOLD, launch_within_us=20_000, gpu=gpu) for gpu in range(2)]
    rig.publish(*plans, members=[rig.member(rig.lc)], gpus=(GpuPlan(), GpuPlan()))
    rig.trigger()
    until(held.runs_first)
    rig.publish()
    until(held.is_as_before)
    time.sleep(0.05)
    assert held.is_as_before()


def test_an_agent_is_let_go_with_the_actuator(make_held):
    held = make_held("silent")
    held.rig.publish(held.rig.plan(Mechanism.HOLD))
    held.rig.trigger()
    until(held.runs_first)
    held.rig.actuator.stop()
    assert held.is_as_before()


def begins_late_us(rig):
    record = rig.record()
    return (record.begin_ns - record.trigger_ns) / 1000


def test_what_is_due_later_begins_when_it_is_due(rig):
    """Not when a sleeping CPU is awake: that is as late as an ordinary timer."""
    rig.publish(rig.plan(trigger=Trigger(kind=Kind.HINT), launch_within_us=1000))
    late_us, ordinary_us = [], []
    for _ in range(40):
        rig.actuator.announce(encode_hint(now_ns() + 5_000_000, rig.lc, Hint.RESERVE))
        due_ns = now_ns() + 5_000_000
        time.sleep(0.005)
        ordinary_us.append((now_ns() - due_ns) / 1000)
        late_us.append(begins_late_us(rig))
    assert min(late_us) >= 0.0
    assert statistics.median(late_us) < 0.5 * statistics.median(ordinary_us)
