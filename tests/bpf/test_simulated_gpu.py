"""The unchanged sample program on the embedded GPU: seen from its first allocation to its end."""

import os
import subprocess
from pathlib import Path

import pytest

from gpsched.adaptive.errors import UnsupportedHostError
from gpsched.adaptive.probes.events import Call, CudaEvent, ProcessClass, ProcExit, RmAlloc, RmControl
from gpsched.adaptive.simgpu.gpu import SimulatedGpu
from tests.bpf.conftest import CHANNEL_GROUP, ROOT_CLIENT, Recorder


pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.sim]
PROGRAM = Path(__file__).parents[2] / "bench/build/gpsched-lc"
REQUESTS = 20


def test_service_is_seen_from_allocation_to_exit(recorder: Recorder) -> None:
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built; run: make native")
    try:
        gpu = SimulatedGpu(scale=1.0)
        gpu.start()
    except UnsupportedHostError as error:
        pytest.skip(str(error))
    try:
        check(recorder, gpu)
    finally:
        gpu.stop()


def check(recorder: Recorder, gpu: SimulatedGpu) -> None:
    recorder.probes.attach_file(gpu.directory / "lib/libcuda.so.1")  # ahead, so that not one launch is missed
    assert recorder.probes.wait_attached(30)
    command = [PROGRAM, "--load", "100", "--requests", str(REQUESTS), "--iters-per-us", "1000"]
    program = subprocess.Popen(command, env=os.environ | gpu.env, stdout=subprocess.DEVNULL)
    try:
        recorder.wait(lambda: program.pid in recorder.probes.managed())
        assert recorder.probes.managed()[program.pid] is ProcessClass.PENDING
        recorder.probes.manage(program.pid, "lc")
        recorder.wait(lambda: recorder.of(program.pid, ProcExit), 60)
    finally:
        program.kill()
        program.wait()
    allocated = [event.code for event in recorder.of(program.pid, RmAlloc) if isinstance(event, RmAlloc)]
    assert ROOT_CLIENT in allocated or 0 in allocated
    assert CHANNEL_GROUP in allocated
    assert len(recorder.of(program.pid, RmControl)) > 0, "CUDA sets the slice of its groups"
    calls = [event for event in recorder.of(program.pid, CudaEvent) if isinstance(event, CudaEvent)]
    graphs = [event for event in calls if event.call is Call.GRAPH_LAUNCH and not event.is_return]
    assert len(graphs) >= REQUESTS
    assert all(event.result == 0 for event in calls if event.is_return)
