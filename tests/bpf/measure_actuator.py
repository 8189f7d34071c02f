"""Measures the actuator: from an event in the kernel to the first control, CPU time, memory. Run as root, not a test.

    python -m tests.bpf.measure_actuator

The driver is a fake one whose controls cost nothing, so that the times are the actuator's own.
"""

import contextlib
import os
import tempfile
import time
from pathlib import Path

from bcc import BPF

from gpsched.adaptive.actuator import Mechanism
from gpsched.adaptive.probes.headers import kernel_source
from tests.unit.actuator.rig import Rig, build_fake_rm


EVENTS = Path(__file__).parents[2] / "bpf" / "events.h"
PROGRAM = """
BPF_RINGBUF_OUTPUT(fast, 16);
TRACEPOINT_PROBE(syscalls, sys_enter_getpgid)
{
    u64 id = bpf_get_current_pid_tgid();
    struct gs_event event = {};
    if (id >> 32 != DRIVER)
        return 0;
    event.time_ns = bpf_ktime_get_ns();
    event.pid = event.tid = SERVICE;
    event.kind = args->pid & 1 ? GS_CUDA_RETURN : GS_CUDA_ENTER;
    event.call = args->pid >> 1;
    fast.ringbuf_output(&event, sizeof(event), 0);
    return 0;
}
"""
COPY, LAUNCH, SYNC = 3, 1, 8
LEAD_S = 0.0003


def load(service):
    if (tree := kernel_source()) is not None:
        os.environ["BCC_KERNEL_SOURCE"] = str(tree)
    text = "\n".join(line for line in EVENTS.read_text().splitlines() if "#ifndef" not in line and "#endif" not in line)
    return BPF(text=text + PROGRAM, cflags=[f"-DDRIVER={os.getpid()}", f"-DSERVICE={service}"])


def emit(call, is_return=False):
    """The number of the call travels as the argument of a harmless system call."""
    with contextlib.suppress(ProcessLookupError):
        os.getpgid(call << 1 | is_return)


def burst():
    emit(COPY)
    time.sleep(LEAD_S)
    emit(LAUNCH)
    emit(LAUNCH, True)
    emit(SYNC)
    emit(SYNC, True)


def at_rate(per_second, seconds, action):
    begin = time.monotonic()
    for number in range(int(per_second * seconds)):
        time.sleep(max(0.0, begin + number / per_second - time.monotonic()))
        action()


def scheduler_seconds(pid):
    """Run time in ns resolution, of all threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def percentiles(values, percents=(50, 90, 99)):
    values = sorted(values)
    return " ".join(f"p{p} {values[min(len(values) - 1, len(values) * p // 100)]:.0f}" for p in percents) + " µs"


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rig = Rig(folder, build_fake_rm(folder))
        program = load(rig.lc)
        try:
            rig.actuator._slots.ring(program[b"fast"].map_fd)
            measure(rig)
        finally:
            rig.close()
            program.cleanup()


def measure(rig):
    pid = rig.actuator.pid
    rig.publish(rig.plan(Mechanism.DISABLE))
    time.sleep(1)
    before = scheduler_seconds(pid)
    time.sleep(10)
    print(f"idle: {(scheduler_seconds(pid) - before) * 10:.3f} % of a core")
    for rate in (100, 1000):
        delays = []
        before = scheduler_seconds(pid)
        for _ in range(10):
            at_rate(rate, 1, burst)
            delays += [(r.begin_ns - r.trigger_ns) / 1000 for r in rig.actuator.records() if r.begin_ns]
        used = scheduler_seconds(pid) - before
        print(
            f"{rate} bursts/s: event to first control {percentiles(delays)} (n {len(delays)}), "
            f"{used * 10:.2f} % of a core, {used / rate / 10 * 1e6:.0f} µs a burst"
        )
    print(next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line))
    print(rig.actuator.counters())


if __name__ == "__main__":
    main()
