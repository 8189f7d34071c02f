"""A client of the driver, by its real ioctls on /dev/nvidiactl (kernel-open/common/inc/nv-ioctl-numbers.h)."""

import fcntl
import os
import struct
from contextlib import suppress


FREE, CONTROL, ALLOC_21, ALLOC_64 = 0xC0104629, 0xC020462A, 0xC020462B, 0xC030462B
DUP = 0xC01C4634
ROOT, DEVICE, SUBDEVICE, GROUP, CHANNEL, COMPUTE, COPY = 0x41, 0x80, 0x2080, 0xA06C, 0xC86F, 0xCBC0, 0xC8B5
SET_TIMESLICE = 0xA06C0103
ATTACHED_IDS = 0x201


class Rm:
    """One open /dev/nvidiactl with at most one RM client."""

    def __init__(self, *, large: bool = True) -> None:
        self.fd = os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)
        self.large = large
        self.client = 0

    def close(self) -> None:
        os.close(self.fd)

    def _ioctl(self, number: int, data: bytes) -> bytes:
        buffer = bytearray(data)
        with suppress(OSError):  # EINVAL whenever the RM says no; its status is in the buffer all the same
            fcntl.ioctl(self.fd, number, buffer)
        return bytes(buffer)

    def alloc(
        self, handle: int, parent: int, class_: int, params: "bytes | bytearray" = b"", client: int | None = None
    ) -> int:
        """Allocate; return the RM's status. A machine without a GPU has only class ROOT."""
        import ctypes

        holder = (ctypes.c_char * max(1, len(params))).from_buffer_copy(bytes(params) or b"\0")
        pointer = ctypes.addressof(holder) if params else 0
        root = self.client if client is None else client
        if self.large:
            out = self._ioctl(
                ALLOC_64, struct.pack("<4IQQ4I", root, parent, handle, class_, pointer, 0, len(params), 0, 0, 0)
            )
            status = struct.unpack_from("<I", out, 40)[0]
        else:
            out = self._ioctl(ALLOC_21, struct.pack("<4IQ2I", root, parent, handle, class_, pointer, len(params), 0))
            status = struct.unpack_from("<I", out, 28)[0]
        if class_ == ROOT and status == 0:
            self.client = struct.unpack_from("<I", out, 8)[0]
        return status

    def root(self) -> "Rm":
        status = self.alloc(0, 0, ROOT)
        assert status == 0, f"RM refused a client: {status:#x}"
        return self

    def free(self, handle: int, parent: int = 0) -> int:
        out = self._ioctl(FREE, struct.pack("<4I", self.client, parent, handle, 0))
        return struct.unpack_from("<I", out, 12)[0]

    def dup(self, parent: int, handle: int, source_client: int, source: int) -> int:
        out = self._ioctl(DUP, struct.pack("<7I", self.client, parent, handle, source_client, source, 0, 0))
        return struct.unpack_from("<I", out, 24)[0]

    def control(self, handle: int, command: int, params: bytes) -> int:
        import ctypes

        holder = (ctypes.c_char * len(params)).from_buffer_copy(params)
        out = self._ioctl(
            CONTROL, struct.pack("<4IQ2I", self.client, handle, command, 0, ctypes.addressof(holder), len(params), 0)
        )
        return struct.unpack_from("<I", out, 28)[0]

    def tree(self, base: int = 0x5C000000, channels: int = 2, instance: int = 0, engine: int = COMPUTE) -> "Rm":
        """Client, device, subdevice, group, channels, an engine object: what a CUDA context makes.

        The RM refuses all but the client here; the test build of the module believes it.
        """
        self.root()
        self.alloc(base + 1, self.client, DEVICE, struct.pack("<I", instance) + bytes(52))
        self.alloc(base + 2, base + 1, SUBDEVICE)
        self.group(base + 3, base + 1, channels, engine)
        return self

    def group(self, handle: int, device: int, channels: int = 2, engine: int = COMPUTE) -> None:
        self.alloc(handle, device, GROUP)
        for index in range(channels):
            self.alloc(handle + 0x100 + index, handle, CHANNEL)
        if channels:
            self.alloc(handle + 0x80, handle + 0x100, engine)
