"""Rough treatment: no memory, malformed messages and ioctls."""

import fcntl
import random
import struct
from contextlib import suppress

import netlink as nl
import rm
from checks import DEBUG, check, own, wait_for


@check
def memory_runs_out() -> None:
    """The n-th allocation fails, for each n: an error at most, nothing lost, nothing leaked."""
    failures = 0
    for n in range(1, 25):
        (DEBUG / "fail_alloc").write_text(str(n))
        program = rm.Rm().tree()
        link = nl.Netlink()
        try:
            group = own(link)[0][nl.A_GROUP]
            plan = link.plan((group, nl.OP_DISABLE, 1))
            link.ask(nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, plan))
            link.control((group, nl.OP_TIMESLICE, 5))
            link.control((group, nl.OP_INTERLEAVE, 2), extra=nl.attr(nl.A_ASYNC, b""))
        except (OSError, IndexError):
            failures += 1
        (DEBUG / "fail_alloc").write_text("0")
        program.close()
        link.close()
    assert failures > 10, "the injection does not work"


def fuzz_payload(chance: random.Random, group: int) -> bytes:
    out = b""
    for _ in range(chance.randrange(6)):
        kind = chance.choice([*range(32), 0x8000 | chance.randrange(32), chance.randrange(65536)])
        if chance.random() < 0.3:
            out += nl.actions(
                *(
                    (group, chance.randrange(10), chance.choice([0, 1, 2, 5, 2**32 - 1]))
                    for _ in range(chance.randrange(70))
                )
            )
            continue
        value = chance.randbytes(chance.choice([0, 1, 4, 8, 15, 16, 64, 1500]))
        out += (
            struct.pack("<HH", chance.choice([len(value) + 4] * 6 + [0, 3, 65535]), kind)
            + value
            + bytes(-len(value) % 4)
        )
    return out


@check
def malformed_messages() -> object:
    chance = random.Random(20240607)
    program = rm.Rm().tree()
    link = nl.Netlink()
    group = own(link)[0][nl.A_GROUP]
    link.socket.settimeout(0)
    sent = 0
    for _ in range(4000):
        payload = fuzz_payload(chance, group)
        command = chance.choice([*range(20), 255])
        flags = chance.choice([1, 5, 0x301, 0x305])
        body = struct.pack("<BBH", command, chance.choice([0, 1, 255]), chance.choice([0, 0, 0, 1])) + payload
        length = chance.choice([16 + len(body)] * 8 + [0, 15, 17, 65535])
        try:
            link.socket.send(struct.pack("<IHHII", length, link.family, flags, sent, 0) + body)
            sent += 1
        except OSError:
            pass
        try:
            while True:
                link.socket.recv(65536)
        except OSError:
            pass
    link.close()
    fresh = nl.Netlink()
    wait_for(lambda: fresh.counters()["controllers"] == 0, "the fuzzer's controller is gone")
    done = fresh.control((group, nl.OP_TIMESLICE, 3))
    assert done[nl.A_ERROR] == 0, "and all works on"
    fresh.close()
    program.close()
    return {"sent": sent}


@check
def malformed_ioctls() -> None:
    """Odd sizes and handles through the driver's own ioctl: the hook must not trust them."""

    chance = random.Random(7)
    program = rm.Rm().tree()
    for _ in range(3000):
        size = chance.choice([0, 4, 8, 15, 16, 28, 32, 40, 48, 56, 64, 1024])
        number = 3 << 30 | size << 16 | ord("F") << 8 | chance.choice([0x29, 0x2A, 0x2B, 0x34])
        words = [
            chance.choice(
                [0, program.client, 0x5C000001, 0x5C000003, 0x5C000103, 0xA06C, 0x80, 0xC86F, 0x41, 2**32 - 1]
            )
            for _ in range(256)
        ]
        with suppress(OSError):
            fcntl.ioctl(program.fd, number, bytearray(struct.pack("<256I", *words)))
    program.close()
