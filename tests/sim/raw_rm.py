"""Raw RM ioctls for tests, packed by hand: independent of the driver room that speaks the same ABI."""

import contextlib
import ctypes
import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


FREE, CONTROL, ALLOC21, ALLOC64, DUP, XFER = 0xC0104629, 0xC020462A, 0xC020462B, 0xC030462B, 0xC01C4634, 0xC01046D3
CLIENT, DEVICE, SUBDEVICE, GROUP, CHANNEL, COMPUTE, COPY = 0x41, 0x80, 0x2080, 0xA06C, 0xC86F, 0xCBC0, 0xC8B5
SET_TIMESLICE, GET_TIMESLICE = 0xA06C0103, 0xA06C0104
OK, PERMISSIONS, ARGUMENT, BAD_CHANNEL, BAD_CLASS, BAD_CLIENT = 0x0, 0x1B, 0x1F, 0x21, 0x22, 0x23
BAD_DEVICE, BAD_PARENT, BAD_SIZE, BAD_POINTER, UNSUPPORTED, NO_OBJECT = 0x26, 0x36, 0x3A, 0x3D, 0x56, 0x57


def device_path(directory: Path) -> Path:
    return directory / "dev" / "nvidiactl"


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    fd = os.open(device_path(directory), os.O_RDWR | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)


def ioctl(fd: int, number: int, data: bytes) -> bytearray:
    buffer = bytearray(data)
    fcntl.ioctl(fd, number, buffer, True)
    return buffer


def alloc(fd: int, root: int, parent: int, class_: int, params: bytes = b"", handle: int = 0) -> tuple[int, int]:
    """(status, handle)."""
    inner = ctypes.create_string_buffer(params, len(params)) if params else None
    address = ctypes.addressof(inner) if inner is not None else 0
    out = ioctl(fd, ALLOC64, struct.pack("<4IQQ4I", root, parent, handle, class_, address, 0, len(params), 0, 0, 0))
    return struct.unpack_from("<I", out, 40)[0], struct.unpack_from("<I", out, 8)[0]


def must_alloc(fd: int, root: int, parent: int, class_: int, params: bytes = b"") -> int:
    status, handle = alloc(fd, root, parent, class_, params)
    assert status == OK, hex(status)
    return handle


def free(fd: int, root: int, parent: int, handle: int) -> int:
    return int(struct.unpack_from("<I", ioctl(fd, FREE, struct.pack("<4I", root, parent, handle, 0)), 12)[0])


def control(fd: int, client: int, handle: int, cmd: int, params: bytes) -> tuple[int, bytes]:
    """(status, the parameters as the driver left them)."""
    inner = ctypes.create_string_buffer(params, len(params)) if params else None
    address = ctypes.addressof(inner) if inner is not None else 0
    out = ioctl(fd, CONTROL, struct.pack("<4IQ2I", client, handle, cmd, 0, address, len(params), 0))
    return struct.unpack_from("<I", out, 28)[0], inner.raw if inner is not None else b""


def timeslice(fd: int, client: int, group: int) -> int:
    status, params = control(fd, client, group, GET_TIMESLICE, bytes(8))
    assert status == OK, hex(status)
    return int(struct.unpack("<Q", params)[0])


@dataclass
class Context:
    """What a CUDA context allocates: one compute group of eight channels (the copy groups are left out)."""

    fd: int
    gpu: int = 0
    client: int = 0
    device: int = 0
    subdevice: int = 0
    group: int = 0
    channels: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = must_alloc(self.fd, 0, 0, CLIENT)
        self.device = must_alloc(self.fd, self.client, self.client, DEVICE, struct.pack("<14I", self.gpu, *[0] * 13))
        self.subdevice = must_alloc(self.fd, self.client, self.device, SUBDEVICE, bytes(4))
        self.group = must_alloc(self.fd, self.client, self.device, GROUP)
        self.channels = [must_alloc(self.fd, self.client, self.group, CHANNEL) for _ in range(8)]
        for channel in self.channels:
            must_alloc(self.fd, self.client, channel, COMPUTE)

    def control(self, handle: int, cmd: int, params: bytes) -> tuple[int, bytes]:
        return control(self.fd, self.client, handle, cmd, params)
