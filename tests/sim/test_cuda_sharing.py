"""Several programs on the simulated libcuda, and those that are killed; times are those of the GPU's own clock."""

import json
import os
import signal
import subprocess

import pytest

from gpsched.adaptive.simgpu import SimulatedGpu
from tests.sim.cuda_programs import finish, go, gone, line, process, run, set_slice, start


pytestmark = [pytest.mark.sim, pytest.mark.root]


BUSY = """
c = Cuda(int(os.environ["GPU"]))
d = c.alloc(32)
for _ in range(5): c.launch(d, 500, 32)
c.call("cuCtxSynchronize")
print("ready", flush=True)
sys.stdin.readline()
for _ in range(60): c.launch(d, 500, 32)
c.call("cuCtxSynchronize")
print(json.dumps(sorted(set(c.read(d, 32)))), flush=True)
sys.stdin.readline()
"""


def test_eight_processes_on_two_gpus_share_fairly(two_gpus: SimulatedGpu) -> None:
    children = [start(two_gpus, BUSY, GPU=str(i % 2)) for i in range(8)]
    try:
        assert [line(child) for child in children] == ["ready"] * 8
        for child in children:
            go(child)
        assert [json.loads(line(child)) for child in children] == [[65]] * 8
        for child in children:
            stats = process(two_gpus, child.pid)
            assert stats is not None
            assert stats["kernels"] == 65
            assert stats["gpu_us"] == pytest.approx(65 * 500, rel=0.01)
            assert len(stats["launches"]) == 65
            assert all(submit <= begin < end for submit, begin, end in stats["launches"])
            assert stats["switches"] > 2
    finally:
        for child in children:
            finish(child)


def test_a_killed_process_frees_the_gpu(two_gpus: SimulatedGpu) -> None:
    hog = start(
        two_gpus,
        """
        c = Cuda()
        d = c.alloc(1)
        for _ in range(50):
            c.launch(d, 4e6, 1)
        print("ready", flush=True)
        sys.stdin.read()
        """,
    )
    try:
        line(hog)
        assert process(two_gpus, hog.pid)
    finally:
        finish(hog)
    assert gone(two_gpus, hog.pid)
    us = run(
        two_gpus,
        """
        c = Cuda()
        d = c.alloc(1)
        begin = c.event()
        c.launch(d, 100, 1)
        print(c.elapsed_us(begin, c.event()))
        """,
    )
    assert us < 400


def test_a_program_learns_that_the_server_died() -> None:
    with SimulatedGpu(scale=5) as gpu:
        child = start(
            gpu,
            """
            c = Cuda()
            d = c.alloc(1)
            c.launch(d, 4e6, 1)
            print("ready", flush=True)
            print(c.status("cuCtxSynchronize"), flush=True)
            """,
        )
        try:
            line(child)
            os.kill(gpu.pid, signal.SIGKILL)
            assert line(child) == "719"
        finally:
            finish(child)


LC_LOOP = """
c = Cuda()
d, s = c.alloc(1), c.stream()
for text in sys.stdin:
    us = []
    for i in range(int(text)):
        time.sleep(0.0231)
        begin = c.event(s)
        c.launch(d, 100, 1, s)
        us.append(c.elapsed_us(begin, c.event(s)))
    print(statistics.median(us), flush=True)
"""
BE_LOOP = """
c = Cuda()
d, s = c.alloc(1), c.stream()
events = []
print("ready", flush=True)
while True:
    c.launch(d, 400, 1, s)
    events.append(c.event(s))
    if len(events) == 16:
        c.call("cuEventSynchronize", events[0])
        c.call("cuEventDestroy_v2", events.pop(0))
"""


def test_timeslices_set_from_outside_change_the_latency() -> None:
    def ask(child: subprocess.Popen[str], requests: int) -> float:
        assert child.stdin is not None
        child.stdin.write(f"{requests}\n")
        child.stdin.flush()
        return float(line(child))

    with SimulatedGpu(scale=5) as gpu:
        lc, be = start(gpu, LC_LOOP), start(gpu, BE_LOOP)
        try:
            line(be)
            default = ask(lc, 60)
            set_slice(be.pid, 1)
            short = ask(lc, 60)
        finally:
            finish(lc)
            finish(be)
    # Half a slice of 2048 us and the switch; then the switch alone. Real time enters both: a program that is kept
    # waiting between its two calls sees more, so only what no delay explains is bounded tightly.
    assert default - 100 >= 700
    assert short - 100 >= 180
    assert default / short > 2
    assert default - short < 2048
