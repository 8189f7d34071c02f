"""The sample programs on the embedded GPU: the same binaries, its own clock, verified state."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.simgpu import SimulatedGpu
from gpsched.bench.device import favour
from gpsched.bench.workload import cuda_job, cuda_service


pytestmark = [pytest.mark.sim, pytest.mark.root]

ROOT = Path(__file__).parents[2]
SMALL = ("--blocks", "4")


@pytest.fixture(scope="module")
def gpu() -> Iterator[SimulatedGpu]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse cannot be opened")
    for folder in ("adaptive/simgpu/native", "bench/programs"):
        subprocess.run(["make", "-s", "-C", str(ROOT / folder)], check=True, timeout=180)
    with SimulatedGpu(scale=5.0) as simulated:
        favour(simulated.pid)
        yield simulated


def kernel_us(gpu: SimulatedGpu, pid: int) -> list[float]:
    """Lengths of the last kernels of one process, on the GPU's clock."""
    process = next(entry for entry in gpu.stats()["processes"] if entry["pid"] == pid)
    return [finish - start for _submit, start, finish in process["launches"]]


def test_calibration_meets_the_gpus_speed(gpu: SimulatedGpu) -> None:
    with cuda_service(gpu.env, *SMALL) as service:
        assert service.ready.iters_per_us == pytest.approx(1000, rel=0.02)


def test_calibration_beside_a_busy_job(gpu: SimulatedGpu) -> None:
    with cuda_job(gpu.env, *SMALL), cuda_service(gpu.env, *SMALL) as service:
        assert service.ready.iters_per_us == pytest.approx(1000, rel=0.02)


def test_kernels_last_as_long_as_asked(gpu: SimulatedGpu) -> None:
    with cuda_job(gpu.env, *SMALL, "--kernel-us", "250") as job:
        time.sleep(0.5)
        lengths = sorted(kernel_us(gpu, job.pid))
        assert job.finish().ok
    assert lengths[len(lengths) // 2] == pytest.approx(250, rel=0.02)


def test_job_beside_service_loses_no_kernel_and_slows_it_down(gpu: SimulatedGpu) -> None:
    """The ratio is of event times, on the GPU's own clock."""
    with cuda_service(gpu.env, *SMALL, "--gpu-time") as service, cuda_job(gpu.env, *SMALL) as job:
        job.pause()
        alone = service.run(30, 100)
        job.resume()
        beside = service.run(60, 100)
        ends = [service.finish(), job.finish()]
    assert all(end.ok for end in ends)
    assert ends[0].kernels >= 90 * 20
    ratio = (sum(beside.gpu_us) / 60) / (sum(alone.gpu_us) / 30)
    assert 3 < ratio < 12  # 160 us alone; up to a turn of 2 ms and two switches beside the job


def test_eager_service_with_gaps(gpu: SimulatedGpu) -> None:
    options = ("--mode", "eager", "--kernels", "4", "--gap-us", "300", "--gpu-time")
    with cuda_service(gpu.env, *SMALL, *options) as service:
        run = service.run(10, 50)
        assert service.finish().ok
    assert min(run.gpu_us) >= 3 * 300 * 0.98


def test_lc_and_be_can_be_killed_and_started_again(gpu: SimulatedGpu) -> None:
    with cuda_job(gpu.env, *SMALL) as job:
        os.kill(job.pid, 9)
    with cuda_job(gpu.env, *SMALL) as job:
        time.sleep(0.2)
        assert job.finish().ok
