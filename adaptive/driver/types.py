"""What the driver room hands to the rest: channels, channel groups and subdevices, named by their RM handles."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel: its RM client and its own handle (both u32)."""

    client: int
    handle: int


@dataclass(frozen=True, slots=True)
class Subdevice:
    """One GPU as a client sees it. ``gpu_id`` is the RM's id, the same in every process; None when unknown."""

    client: int
    handle: int
    gpu_id: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelGroup:
    """The driver's unit of GPU time-slicing (TSG).

    ``engine`` is "compute", "copy", "other" or "unknown". ``subdevice`` is the handle, in the same client, of the GPU
    that the group runs on. ``fd`` is the number of the /dev/nvidiactl descriptor in the target that owns the client. To
    act on some of the channels only, pass ``dataclasses.replace(group, channels=...)``.
    """

    client: int
    handle: int
    engine: str = "unknown"
    channels: tuple[Channel, ...] = ()
    subdevice: int | None = None
    gpu_id: int | None = None
    fd: int = -1

    @property
    def key(self) -> tuple[int, int]:
        """Identifies the group within its process: a client's handles are unique while they live."""
        return self.client, self.handle
