"""Best-effort processes in turns, on a rig: what tests of turns do and look at."""

import time
from pathlib import Path

from gpsched.adaptive.actuator import GpuPlan, Mechanism
from gpsched.adaptive.probes.events import HEAD, Kind, Pause
from tests.unit.actuator.rig import now_ns


CLIENT = 0xC1D00000


def in_turns(rig, *turns_us, mechanism=Mechanism.DISABLE):
    members = [rig.member(rig.lc)] + [rig.member(pid, turn=index) for index, pid in enumerate(rig.be)]
    rig.publish(rig.plan(mechanism), members=members, gpus=(GpuPlan(turns_us),))


def say(rig, pid, pause):
    """What bpf/pause.bpf.c tells of a process."""
    rig.actuator.announce(HEAD.pack(now_ns(), pid, pid, Kind.PAUSE, 0, pause, 0, 0) + bytes(16))


def pauses(rig, pid, paused=True):
    """The process has nothing to do, or works again."""
    say(rig, pid, Pause.SURE if paused else Pause.OVER)


def wakes_of(pid):
    """How often the threads of a process have waited so far."""
    lines = [line for task in Path(f"/proc/{pid}/task").iterdir() for line in (task / "status").open()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def enabled(rig):
    return [pid for pid in rig.be if not rig.is_disabled(pid)]


def had(rig, seconds):
    """What each turn has had of so much time from now on, in ns."""
    before = rig.actuator.turns()[0]
    time.sleep(seconds)
    return [now - then for now, then in zip(rig.actuator.turns()[0], before, strict=True)]
