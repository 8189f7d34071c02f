"""What gpsched itself and the GPU did during a block: processor time, switches."""

import os
from collections.abc import Mapping
from pathlib import Path

from gpsched.adaptive.simgpu import SimulatedGpu


_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its children that live; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    own = (int(fields[11]) + int(fields[12])) * _TICK_S  # utime and stime, proc(5)
    return own + sum(cpu_seconds(int(child)) for child in children)


def switches(environment: Mapping[str, str]) -> int | None:
    """Switches between programs so far on the GPU of this environment; only the embedded one counts them."""
    directory = environment.get("GPSCHED_SIM_DIR")
    if directory is None:
        return None
    return sum(int(process["switches"]) for process in SimulatedGpu(directory=directory).stats()["processes"])
