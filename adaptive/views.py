"""Turns the registry into the public model."""

from pathlib import Path

from gpsched.adaptive.model import GroupView, ProcessView
from gpsched.adaptive.workloads import containers, placement
from gpsched.adaptive.workloads.registry import Group, Process


_container_name = containers.Known(containers.name)


class GpuNumbers:
    """Small numbers for the driver's GPU ids, in the order of their PCI addresses, as nvidia-smi numbers them.

    The id holds the address: domain << 16 | bus << 8 | device (gpuGenerate32BitId in the open modules). GPUs that /proc
    does not list are numbered in the order of their ids as they are met.
    """

    def __init__(self, folder: Path = Path("/proc/driver/nvidia/gpus")) -> None:
        names = (name.name for name in folder.iterdir()) if folder.is_dir() else ()
        self._ids = sorted(_gpu_id(name) for name in names)

    def number(self, gpu_id: int | None) -> int | None:
        """Return the index among the GPUs seen so far; None for a GPU whose id could not be read."""
        if gpu_id is None:
            return None
        if gpu_id not in self._ids:
            self._ids = sorted([*self._ids, gpu_id])
        return self._ids.index(gpu_id)


def _gpu_id(address: str) -> int:
    """The driver's id of a PCI address like 0000:1b:00.0."""
    domain, bus, device = address.partition(".")[0].split(":")
    return int(domain, 16) << 16 | int(bus, 16) << 8 | int(device, 16)


def process_view(process: Process, calls: dict[str, int], numbers: GpuNumbers) -> ProcessView:
    """One process as users see it."""
    info = process.info
    return ProcessView(
        pid=info.pid,
        name=info.name,
        command=info.command,
        user=info.user,
        cgroup=info.cgroup,
        container=info.container,
        slurm_job=placement.slurm_job(info.cgroup),
        pod=placement.pod(info.cgroup),
        container_name=_container_name(info.container) if info.container else None,
        class_=process.class_,
        source=process.source,
        tenant=process.tenant,
        slo_us=process.slo_us,
        priority=process.priority,
        weight=process.weight,
        level=process.level,
        reason=process.reason,
        gpus=sorted({number for gpu in process.gpus() if (number := numbers.number(gpu)) is not None}),
        groups=[_group_view(group, numbers) for group in process.groups.values()],
        calls={call: count for call, count in calls.items() if count},
    )


def _group_view(group: Group, numbers: GpuNumbers) -> GroupView:
    return GroupView(
        client=group.group.client,
        handle=group.group.handle,
        engine=group.group.engine,
        gpu=numbers.number(group.group.gpu_id),
        channels=len(group.group.channels),
        timeslice_us=group.timeslice_us,
        intended_us=group.intended_us,
        original_us=group.original_us,
    )
