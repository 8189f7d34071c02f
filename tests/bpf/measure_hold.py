"""Measures holds: from when one is due until the agent has launched it. Run as root on a quiet machine, not a test.

    python -m tests.bpf.measure_hold

The driver is a fake one whose launches cost nothing, so that the times are those of the actuator and the agent. Once
without a best-effort job, and once beside one that waits awake, where the actuator waits, too.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpsched.adaptive.actuator import Mechanism, Trigger
from gpsched.adaptive.agent import library_path
from gpsched.adaptive.probes.events import Call, Hint, Kind, encode_hint
from tests.bpf.measure_actuator import COPY, LAUNCH, SYNC, emit, load, percentiles
from tests.unit.actuator.rig import Rig, build_fake_rm, now_ns
from tests.unit.agent.test_agent import HERE, build


HOST = "from tests.unit.agent.host import Program; p = Program(); p.make_context(); print(); input()"
BURSTS, RATE = 100, 100
FORETOLD_NS = 6_000_000
ALERT_S = 60e-6  # a thread is woken 23 to 150 µs before it comes back (H200)
SHOWN = (50, 95, 99)
JOBS = {"no job": (), "a busy job": (sys.executable, "-c", "while True: pass")}


def burst(rig, offset_us, alert_s):
    """Announce a burst, by an event or ahead of time, and let it come some time after the hold is due."""
    if alert_s:  # an event that announces nothing
        emit(SYNC, is_return=True)
        awake = time.perf_counter() + alert_s
        while time.perf_counter() < awake:
            pass
    if offset_us is None:
        rig.actuator.announce(encode_hint(now_ns() + FORETOLD_NS, rig.lc, Hint.RESERVE))
        time.sleep(FORETOLD_NS / 1e9 + 0.001)
    else:
        emit(COPY)
        time.sleep((offset_us + 600) / 1e6)
    for call in (LAUNCH, SYNC):
        emit(call)
        emit(call, is_return=True)


def measure(rig, offset_us, alert_s=0.0):
    """Return the times in µs: from due to the bell, and to the launch. ``alert_s``: an event so long before."""
    trigger = Trigger(kind=Kind.HINT)
    if offset_us is not None:
        trigger = Trigger(kind=Kind.CUDA_ENTER, call=Call.COPY_H2D, offset_us=offset_us)
    rig.publish(rig.plan(Mechanism.HOLD, trigger=trigger, launch_within_us=100_000))
    rig.actuator.records()
    begin = time.monotonic()
    for number in range(BURSTS):
        time.sleep(max(0.0, begin + number / RATE - time.monotonic()))
        burst(rig, offset_us, alert_s)
    time.sleep(0.05)
    records = [record for record in rig.actuator.records() if record.ready_ns]
    due_ns = [record.trigger_ns + (offset_us or 0) * 1000 for record in records]
    return [
        [(getattr(record, name) - due) / 1000 for record, due in zip(records, due_ns, strict=True)]
        for name in ("begin_ns", "ready_ns")
    ]


def beside(folder, job):
    """Print the times beside a best-effort job, or without one."""
    service = {"service": (sys.executable, "-c", HOST), "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    rig = Rig(folder, build_fake_rm(folder), best_effort=1 if job else 0, job=job, **service)
    program = load(rig.lc)
    try:
        rig.actuator._slots.ring(program[b"fast"].map_fd)
        rig.service.stdout.readline()
        measure(rig, 0)  # meanwhile the job is found
        for offset_us, alert_s in ((0, 0.0), (0, ALERT_S), (100, 0.0), (600, 0.0), (None, 0.0)):
            bell, launch = measure(rig, offset_us, alert_s)
            what = "when foretold" if offset_us is None else f"{offset_us} µs after its event"
            what += f", {round(alert_s * 1e6)} µs after another" if alert_s else ""
            to_bell, to_launch = percentiles(bell, SHOWN), percentiles(launch, SHOWN)
            print(f"  due {what}: to the bell {to_bell}, to the launch {to_launch} (n {len(bell)})")
        print(f"  waited at the end beside {rig.actuator.counters().beside or 'nobody'}")
    finally:
        rig.close()
        program.cleanup()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder, HERE / "fake_libcuda.c")
        before = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{name}:{before}" if before else name
        os.environ["AGENT"] = str(library_path())
        for what, job in JOBS.items():
            print(what)
            beside(folder, job)


if __name__ == "__main__":
    main()
