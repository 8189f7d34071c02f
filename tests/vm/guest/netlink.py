"""Generic netlink by hand: pyroute2 takes ten seconds to import under emulation, this 20 ms. One test uses both."""

import os
import socket
import struct


NETLINK_GENERIC, NLM_F_REQUEST, NLM_F_MULTI, NLM_F_ACK, NLM_F_DUMP = 16, 1, 2, 4, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
INFO, LIST, GET, CONTROL, RENEW, RELEASE, PLAN_SET, PLAN_BEGIN, PLAN_END, PLAN_DROP = range(1, 11)
ADDED, REMOVED, DONE = 16, 17, 18
(A_PAD, A_VERSION, A_FEATURES, A_DRIVER, A_COUNTERS, A_GROUP, A_CLIENT, A_HANDLE, A_PID, A_UID, A_CGROUP, A_ENGINE,
 A_DEVICE, A_GPU, A_SUBDEVICE, A_CHANNELS, A_TIMESLICE, A_INTERLEAVE, A_DISABLED, A_ACTIONS, A_RESULTS, A_LEASE_MS,
 A_COOKIE, A_ASYNC, A_PLAN, A_ERROR, A_STATUS) = range(1, 28)  # fmt: skip
OP_TIMESLICE, OP_INTERLEAVE, OP_DISABLE, OP_ENABLE, OP_TIMESLICE_UNDO, OP_INTERLEAVE_UNDO, OP_PREEMPT, OP_RESTART = (
    range(1, 9)
)
COUNTERS = ("clients", "objects", "groups", "controllers", "plans", "holds", "allocated", "lost", "controls", "failed",
            "undone", "limited")  # fmt: skip
LEASE_MS = 60000  # an emulated machine on a busy one may stand still for seconds
U64 = {A_GROUP, A_CGROUP, A_TIMESLICE, A_COOKIE}
U32 = {A_VERSION, A_FEATURES, A_CLIENT, A_HANDLE, A_PID, A_UID, A_ENGINE, A_DEVICE, A_GPU, A_SUBDEVICE, A_INTERLEAVE,
       A_DISABLED, A_LEASE_MS, A_PLAN, A_STATUS}  # fmt: skip
S32 = {A_ERROR}


def attr(kind: int, value: "int | bytes") -> bytes:
    if isinstance(value, int):
        value = struct.pack("<Q" if kind in U64 else "<I", value)
    return struct.pack("<HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def parse(data: bytes) -> dict:
    out: dict = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("<HH", data)
        value = data[4:length]
        if kind in U64:
            value = struct.unpack("<Q", value)[0]
        elif kind in U32:
            value = struct.unpack("<I", value)[0]
        elif kind in S32:
            value = struct.unpack("<i", value)[0]
        out[kind] = value
        data = data[(length + 3) & ~3 :]
    return out


def actions(*items: tuple) -> bytes:
    """Pack (group, op, value) triples."""
    return attr(A_ACTIONS, b"".join(struct.pack("<QII", *item) for item in items))


class Netlink:
    """One socket: one controller."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.socket.bind((0, 0))
        self.socket.settimeout(30)
        self.sequence = 0
        self.events: list = []
        self.groups: dict = {}
        self.family = self._resolve()

    def close(self) -> None:
        self.socket.close()

    def _resolve(self) -> int:
        self.send(16, 3, struct.pack("<HH", 12, 2) + b"gpsched\0", NLM_F_REQUEST)
        data = self.socket.recv(65536)
        if struct.unpack_from("<H", data, 4)[0] == NLMSG_ERROR:
            raise OSError(-struct.unpack_from("<i", data, 16)[0], "no family gpsched")
        attrs = parse_plain(data[20:])
        for entry in parse_plain(attrs[7]).values():
            group = parse_plain(entry)
            self.groups[group[1].rstrip(b"\0").decode()] = struct.unpack("<I", group[2])[0]
        return struct.unpack("<H", attrs[1])[0]

    def send(self, family: int, command: int, payload: bytes, flags: int) -> None:
        self.sequence += 1
        body = struct.pack("<BBH", command, 1, 0) + payload
        self.socket.send(struct.pack("<IHHII", 16 + len(body), family, flags, self.sequence, 0) + body)

    def messages(self):
        """Yield (type, sequence, command, attributes or errno) of one datagram."""
        data = self.socket.recv(65536)
        while len(data) >= 16:
            length, kind, _, sequence, _ = struct.unpack_from("<IHHII", data)
            body = data[16:length]
            if kind == NLMSG_ERROR:
                yield kind, sequence, 0, -struct.unpack_from("<i", body)[0]
            elif kind == NLMSG_DONE:
                yield kind, sequence, 0, -min(0, struct.unpack_from("<i", body)[0])
            else:
                yield kind, sequence, body[0], parse(body[4:])
            data = data[(length + 3) & ~3 :]

    def ask(self, command: int, *attrs: bytes, dump: bool = False) -> list:
        """Send and wait for the answer; events that come between are kept. Raises OSError with the kernel's errno."""
        self.send(self.family, command, b"".join(attrs), NLM_F_REQUEST | (NLM_F_DUMP if dump else NLM_F_ACK))
        replies: list = []
        while True:
            for kind, sequence, what, content in self.messages():
                if sequence != self.sequence:
                    self.events.append((what, content))
                elif kind in (NLMSG_ERROR, NLMSG_DONE):
                    if content:
                        raise OSError(content, os.strerror(content))
                    return replies
                else:
                    replies.append(content)

    def subscribe(self) -> None:
        self.socket.setsockopt(270, 1, self.groups["events"])  # SOL_NETLINK, NETLINK_ADD_MEMBERSHIP

    def event(self, what: int, timeout: float = 30) -> dict:
        """Return the next event of a kind; others before it are dropped."""
        self.socket.settimeout(timeout)
        while True:
            while self.events:
                kind, content = self.events.pop(0)
                if kind == what:
                    return content
            self.events += [(message[2], message[3]) for message in self.messages()]

    def counters(self) -> dict:
        return dict(zip(COUNTERS, struct.unpack(f"<{len(COUNTERS)}Q", self.ask(INFO)[0][A_COUNTERS]), strict=True))

    def list(self, pid: int = 0) -> list:
        return self.ask(LIST, *([attr(A_PID, pid)] if pid else []), dump=True)

    def control(self, *items: tuple, lease_ms: int = LEASE_MS, extra: bytes = b"") -> dict:
        """Issue actions; returns DONE's attributes (nothing when asynchronous)."""
        replies = self.ask(CONTROL, actions(*items), attr(A_LEASE_MS, lease_ms), extra)
        return replies[0] if replies else {}

    def plan(self, *items: tuple, lease_ms: int = LEASE_MS) -> int:
        return self.ask(PLAN_SET, actions(*items), attr(A_LEASE_MS, lease_ms))[0][A_PLAN]


def parse_plain(data: bytes) -> dict:
    out: dict = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("<HH", data)
        out[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return out
