"""Rough treatment: ten thousand rounds of eight processes under a controller."""

# ruff: noqa: PT017 not run by pytest

import errno
import os
import random
import time

import netlink as nl
import rm
from checks import check


def worker(rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    for index in range(rounds):
        program = rm.Rm().root()
        if index % 4 == 0:
            program.alloc(1, program.client, rm.DEVICE)
            program.alloc(2, 1, rm.SUBDEVICE)
            program.group(3, 1, chance.randrange(3))
        ending = chance.randrange(3)
        if ending == 0:
            program.free(program.client)
        elif ending == 1:
            program.free(1)
        program.close()


@check
def ten_thousand_rounds() -> object:
    """8 processes allocate, free and close while a controller lists and controls all it sees."""
    began = time.monotonic()
    rounds = int(os.environ.get("GPSCHED_ROUNDS", "10000"))
    pids = []
    for index in range(8):
        pid = os.fork()
        if pid == 0:
            worker(rounds // 8, index)
            os._exit(0)
        pids.append(pid)
    link = nl.Netlink()
    controlled, alive = 0, set(pids)
    while alive:
        groups = [group[nl.A_GROUP] for group in link.list()][:32]
        if groups:
            try:
                link.control(
                    *((group, nl.OP_DISABLE, 1) for group in groups), *((group, nl.OP_TIMESLICE, 3) for group in groups)
                )
                controlled += len(groups)
            except OSError as error:
                assert error.errno == errno.EBUSY, error
                time.sleep(0.05)
        for pid in list(alive):
            if os.waitpid(pid, os.WNOHANG)[0]:
                alive.discard(pid)
    link.close()
    assert controlled > 0
    return {"rounds": rounds, "controlled": controlled, "seconds": round(time.monotonic() - began)}
