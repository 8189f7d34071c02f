"""A resource manager at the ioctl boundary: objects, ownership by descriptor, and the answers of docs/driver.md.

It is independent of the code under test where it matters: it reads the caller's structures by address and checks sizes
against its own table, as the driver does.
"""

import ctypes
import struct
from dataclasses import dataclass, field

from gpsched.adaptive.driver import status
from gpsched.adaptive.driver.status import code


SIZES = {
    0xD02: 16,
    0xA06C0103: 8,
    0xA06C0104: 8,
    0xA06C0105: 8,
    0xA06C0106: 4,
    0xA06C0107: 4,
    0xA06C0108: 4,
    0xA06F0111: 2,
    0xC36F0108: 4,
    0x906F0101: 16,
    0x2080110B: 536,
    0x20800142: 4,
    0x20801123: 1552,
}

GROUP, CHANNEL, DEVICE, SUBDEVICE, CLIENT, COMPUTE, COPY, MEMORY = (
    0xA06C,
    0xC86F,
    0x80,
    0x2080,
    0x41,
    0xCBC0,
    0xC8B5,
    0x40,
)


@dataclass
class Obj:
    class_: int
    parent: int
    slice_us: int = 2048
    interleave: int = 0
    disabled: str = ""
    gpu_id: int = 0


@dataclass
class Client:
    fd: int
    objects: dict[int, Obj] = field(default_factory=dict)


class FakeRm:
    """Call it as ``ioctl``. ``answers`` overrides a command's next statuses; ``absent``: what it does not know."""

    def __init__(self, schedule_size: int = 3) -> None:
        self.clients: dict[int, Client] = {}
        self.calls: list[tuple[int, int, int]] = []  # client, object, command
        self.answers: dict[int, list[int | OSError]] = {}
        self.absent: set[int] = set()
        self.sizes = dict(SIZES) | {0xA06C0101: schedule_size}
        self.nice = True
        self.next_client = 0xC1D00000
        self.switches: list[tuple[bool, bool, list[tuple[int, int]]]] = []

    # building a process as libcuda does
    def context(self, fd: int = 100, client: int = 0xC1D00003, gpu_id: int = 0x4100, base: int = 0x5C000000) -> int:
        """One CUDA context: a compute group of 8 channels, three copy groups of 4. Returns the compute group."""
        objects = self.clients.setdefault(client, Client(fd)).objects
        objects[client] = Obj(CLIENT, client)
        next_handle = base

        def add(class_: int, parent: int, **more: int) -> int:
            nonlocal next_handle
            next_handle += 1
            objects[next_handle] = Obj(class_, parent, **more)
            return next_handle

        device = add(DEVICE, client)
        add(SUBDEVICE, device, gpu_id=gpu_id)
        for _ in range(5):
            add(MEMORY, device)
        compute = 0
        for engine, count in ((COMPUTE, 8), (COPY, 4), (COPY, 4), (COPY, 4)):
            group = add(GROUP, device)
            compute = compute or group
            for _ in range(count):
                channel = add(CHANNEL, group)
                add(engine, channel)
        return compute

    def object(self, client: int, handle: int) -> Obj:
        return self.clients[client].objects[handle]

    # the boundary
    def __call__(self, fd: int, request: int, argument: ctypes.Structure) -> int:
        if request == 0xC020462B:
            argument.hObjectNew, argument.status = self.next_client, 0
            return 0
        assert request == 0xC020462A, hex(request)
        outer = struct.unpack("<IIIIQII", bytes(argument))
        client, object_, command, _, address, size, _ = outer
        self.calls.append((client, object_, command))
        planned = self.answers.get(command)
        if planned:
            answer = planned.pop(0)
            if isinstance(answer, OSError):
                raise answer
            if answer:
                argument.status = answer
                return 0
        params = (ctypes.c_char * size).from_address(address)
        argument.status = self._control(fd, client, object_, command, params)
        return 0

    def _control(self, fd: int, client: int, object_: int, command: int, params: ctypes.Array) -> int:
        owner = self.clients.get(client)
        if owner is None or owner.fd != fd:
            return code("INVALID_CLIENT")
        target = owner.objects.get(object_)
        if target is None:
            return code("INVALID_OBJECT_HANDLE")
        handler = self._handler(target, command)
        if handler is None or command in self.absent:
            return status.NOT_SUPPORTED
        if len(params) != self.sizes[command]:
            return status.INVALID_PARAM_STRUCT
        if command in (0xA06C0107, 0xA06F0111) and not self.nice:
            return status.INSUFFICIENT_PERMISSIONS
        return handler(owner, object_, target, params)

    def _handler(self, target: Obj, command: int):
        table = {
            CLIENT: {0xD02: self._handle_info},
            GROUP: {
                0xA06C0101: lambda *_: 0,
                0xA06C0103: self._set_slice,
                0xA06C0104: self._get_slice,
                0xA06C0105: lambda *_: 0,
                0xA06C0107: self._set_interleave,
                0xA06C0108: self._get_interleave,
            },
            CHANNEL: {0xA06F0111: lambda *_: 0, 0xC36F0108: self._token, 0x906F0101: self._class_of},
            SUBDEVICE: {0x2080110B: self._switch, 0x20800142: self._gpu_id, 0x20801123: self._unique},
        }
        return table.get(target.class_, {}).get(command)

    def _handle_info(self, owner: Client, _h: int, _t: Obj, params: ctypes.Array) -> int:
        handle, index = struct.unpack_from("<II", params)
        found = owner.objects.get(handle)
        if found is None:
            return code("OBJECT_NOT_FOUND")
        struct.pack_into("<Q", params, 8, found.parent if index == 1 else found.class_)
        return 0

    def _set_slice(self, _o: Client, _h: int, target: Obj, params: ctypes.Array) -> int:
        (target.slice_us,) = struct.unpack("<Q", bytes(params))
        return 0

    def _get_slice(self, _o: Client, _h: int, target: Obj, params: ctypes.Array) -> int:
        struct.pack_into("<Q", params, 0, target.slice_us)
        return 0

    def _set_interleave(self, _o: Client, _h: int, target: Obj, params: ctypes.Array) -> int:
        (target.interleave,) = struct.unpack("<I", bytes(params))
        return 0

    def _get_interleave(self, _o: Client, _h: int, target: Obj, params: ctypes.Array) -> int:
        struct.pack_into("<I", params, 0, target.interleave)
        return 0

    def _token(self, _o: Client, handle: int, _t: Obj, params: ctypes.Array) -> int:
        struct.pack_into("<I", params, 0, handle & 0xFFF)
        return 0

    def _class_of(self, owner: Client, handle: int, _t: Obj, params: ctypes.Array) -> int:
        (child,) = struct.unpack_from("<I", params)
        found = owner.objects.get(child)
        if found is None or found.parent != handle:
            return code("OBJECT_NOT_FOUND")
        struct.pack_into("<I", params, 8, found.class_)
        return 0

    def _gpu_id(self, _o: Client, _h: int, target: Obj, params: ctypes.Array) -> int:
        struct.pack_into("<I", params, 0, target.gpu_id)
        return 0

    def _unique(self, owner: Client, subdevice: int, _t: Obj, params: ctypes.Array) -> int:
        _, handle = struct.unpack_from("<II", params)
        found = owner.objects.get(handle)
        if found is None:
            return code("INVALID_CHANNEL")
        members = [handle] if found.class_ == CHANNEL else self.members(owner, handle)
        device = owner.objects[owner.objects[members[0]].parent].parent if members else found.parent
        if device != owner.objects[subdevice].parent:
            return code("INVALID_CHANNEL")
        struct.pack_into(f"<II{len(members)}I", params, 8, 7, len(members), *(member ^ 0xABCD for member in members))
        return 0

    @staticmethod
    def members(owner: Client, group: int) -> list[int]:
        return [handle for handle, each in owner.objects.items() if each.class_ == CHANNEL and each.parent == group]

    def _switch(self, owner: Client, _h: int, _t: Obj, params: ctypes.Array) -> int:
        raw = bytes(params)
        disable, count, only, rewind, event = struct.unpack_from("<B3xIBB6xQ", raw)
        assert count <= 64
        assert rewind == 0
        assert event == 0
        clients, handles = struct.unpack_from("<64I", raw, 24)[:count], struct.unpack_from("<64I", raw, 280)[:count]
        self.switches.append((bool(disable), bool(only), list(zip(clients, handles, strict=True))))
        for client, handle in zip(clients, handles, strict=True):
            target = self.clients[client].objects.get(handle) if client in self.clients else None
            if target is None or target.class_ != CHANNEL:
                return code("INVALID_CHANNEL")  # those before it are switched by now
            target.disabled = ("scheduling" if only else "full") if disable else ""
        return 0

    def disabled(self) -> set[tuple[int, int]]:
        return {(c, h) for c, client in self.clients.items() for h, each in client.objects.items() if each.disabled}


@dataclass
class FakeFiles:
    """Descriptor copies that exist only as numbers: the target's ``fd`` is our ``fd + 90``."""

    fds: tuple[int, ...] = (10,)
    pid: int = 4321
    error: Exception | None = None

    def find(self) -> tuple[int, ...]:
        return self.fds

    def get(self, fd: int) -> int:
        if self.error is not None:
            raise self.error
        return fd + 90
