"""Which GPU the workload programs use: a real one, or the embedded one started for the occasion."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from gpsched.bench.errors import NoRealGpuError


Kind = Literal["auto", "simulated", "real"]

#: Real µs per µs of the embedded GPU: two cores then keep up with a service, a job, the GPU and the daemon.
SIMULATED_SCALE = 5.0


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU to run programs on. ``environment`` is added to theirs; ``scale``: real µs per µs of program time."""

    simulated: bool
    name: str
    driver: str
    scale: float
    environment: Mapping[str, str]


@contextmanager
def open_device(kind: Kind = "auto", scale: float = SIMULATED_SCALE) -> Iterator[Device]:
    """Yield the GPU of this kind; ``auto`` prefers a real one.

    Raises ``NoRealGpuError`` for ``real`` without one, and what the embedded GPU raises on a host that cannot run it.
    """
    if kind != "simulated":
        try:
            device = _real_device()
        except NoRealGpuError:
            if kind == "real":
                raise
        else:
            yield device
            return
    with _simulated_device(scale) as device:
        yield device


def favour(pid: int) -> None:
    """Give a process, its threads and its children real-time priority, where the host permits it.

    For the embedded GPU and the programs on it: other load on the host then does not show in the GPU's time.
    """
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(1))
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                favour(int(child))


def _real_device() -> Device:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoRealGpuError(str(error)) from error
    try:
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError as error:
        raise NoRealGpuError(str(error)) from error
    finally:
        pynvml.nvmlShutdown()
    return Device(simulated=False, name=name, driver=driver, scale=1.0, environment={})


@contextmanager
def _simulated_device(scale: float) -> Iterator[Device]:
    from gpsched.adaptive.simgpu import SimulatedGpu

    with SimulatedGpu(scale=scale) as gpu:
        favour(gpu.pid)
        yield Device(simulated=True, name="embedded GPU", driver="simulated", scale=scale, environment=dict(gpu.env))
