"""The embedded GPU: a simulated driver and CUDA library for machines without a GPU."""

from gpsched.adaptive.simgpu.gpu import SimulatedGpu, SimulatedGpuError


__all__ = ["SimulatedGpu", "SimulatedGpuError"]
