"""Level ``freeze`` on the embedded GPU: the queue drains, then the GPU is free; the job's state survives."""

import time
from pathlib import Path

import pytest

from gpsched.adaptive.freezer import Freezer
from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.adaptive.undo import UndoLog
from gpsched.bench.workload import cuda_job


pytestmark = [pytest.mark.sim, pytest.mark.root]

QUEUE, KERNEL_US = 8, 400.0


def kernels(gpu: SimulatedGpu, pid: int) -> int:
    return next(int(process["kernels"]) for process in gpu.stats()["processes"] if process["pid"] == pid)


def test_the_queue_drains_and_nothing_follows(tmp_path: Path, two_gpus: SimulatedGpu) -> None:
    undo = UndoLog(tmp_path)
    freezer = Freezer(undo)
    options = ("--queue", str(QUEUE), "--kernel-us", str(KERNEL_US))
    with cuda_job(two_gpus.env, *options) as job:
        for _ in range(5):
            freezer.freeze([job.pid])
            while not freezer.settled():
                time.sleep(0.001)
            before = kernels(two_gpus, job.pid)
            time.sleep(2 * QUEUE * KERNEL_US * two_gpus.scale / 1e6)
            drained = kernels(two_gpus, job.pid)
            assert drained - before <= QUEUE
            time.sleep(0.1)
            assert kernels(two_gpus, job.pid) == drained
            freezer.thaw([job.pid])
            time.sleep(0.1)
            assert kernels(two_gpus, job.pid) > drained
        assert job.finish().ok
    freezer.close()
    undo.close()
