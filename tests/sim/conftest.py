"""Embedded GPUs for tests that need the real server: FUSE file, socket and libcuda."""

from collections.abc import Iterator

import pytest

from gpsched.adaptive.errors import UnsupportedHostError
from gpsched.adaptive.simgpu import SimulatedGpu


@pytest.fixture(scope="module")
def two_gpus() -> Iterator[SimulatedGpu]:
    try:
        gpu = SimulatedGpu(gpus=2, scale=5)
        gpu.start()
    except UnsupportedHostError as error:
        pytest.skip(str(error))
    yield gpu
    gpu.stop()
