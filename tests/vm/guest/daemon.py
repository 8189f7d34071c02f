"""The daemon's keeper of slices on the real driver: programs under its control through the module, and its death."""

import os
import signal
import time
from pathlib import Path

import netlink as nl
import rm
from checks import check, log, wait_for


SUBDEVICE, GROUP, CHANNEL = 0x5C000002, 0x5C000003, 0x5C000103


def slices(client: int) -> list[int]:
    """The timeslices that the driver was told for a program's group, in order."""
    return [
        int.from_bytes(params[:8], "little")
        for owner, handle, command, status, params in log()
        if (owner, handle, command, status) == (client, GROUP, 0xA06C0103, 0)
    ]


def program() -> int:
    """A process with a context, until it is killed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        kept = rm.Rm().tree(channels=1)
        os.write(write, b"x")
        time.sleep(600)
        kept.close()
    os.read(read, 1)
    os.close(read)
    os.close(write)
    return pid


def process(pid: int, client: int):
    """What the daemon knows of a program that it has seen allocate."""
    from gpsched.adaptive.driver.types import Channel, ChannelGroup
    from gpsched.adaptive.workloads import procinfo
    from gpsched.adaptive.workloads.registry import Group, Process

    known = Process(procinfo.read(pid), "be", "attach", "vm")
    group = Group(ChannelGroup(client, GROUP, "compute", (Channel(client, CHANNEL),), SUBDEVICE, fd=3))
    known.groups[group.key] = group
    return known, group


def run_and_wait(folder: Path, wanted: dict[int, tuple[int, int]], ready: int) -> None:
    """The daemon's part: slices (client, µs) by pid, and then renewing until it is killed."""
    from gpsched.adaptive.driver.module_level import ModuleLevel
    from gpsched.adaptive.driver.module_link import ModuleLink
    from gpsched.adaptive.slices import SliceKeeper
    from gpsched.adaptive.undo import UndoLog

    # An emulated machine on a busy one may stand still for longer than the usual 10 s.
    level = ModuleLevel(lambda: ModuleLink(lease_ms=120_000))
    keeper = SliceKeeper(UndoLog(folder), module=level)
    assert "TEST BUILD" in level.reason, level.reason
    for pid, (client, us) in wanted.items():
        known, group = process(pid, client)
        assert keeper.want(known, group, us), keeper.last_failure
        assert keeper.in_module(known, group)
        assert keeper.control_of(known, group).gpu_id(group.group) == 0x100
    os.write(ready, b"x")
    while True:
        keeper.renew()
        assert level.present, level.reason
        time.sleep(0.2)


@check
def daemon_through_the_module_and_its_sudden_death() -> object:
    """Slices by the module, undone by the kernel when the daemon is killed; the next daemon finds nothing to do."""
    from gpsched.adaptive.slices import restore_pending
    from gpsched.adaptive.undo import UndoLog

    folder, link = Path("/run/gpsched-vm"), nl.Netlink()
    lc, be = program(), program()
    clients = {pid: link.list(pid)[0][nl.A_CLIENT] for pid in (lc, be)}
    wanted = {lc: (clients[lc], 1_000_000), be: (clients[be], 1)}
    read, write = os.pipe()
    daemon = os.fork()
    if daemon == 0:
        try:
            run_and_wait(folder, wanted, write)
        except BaseException as error:
            os.write(write, repr(error).encode()[:2000])
            os._exit(1)
    answer = os.read(read, 2000)
    assert answer == b"x", answer
    assert (slices(clients[lc]), slices(clients[be])) == ([1_000_000], [1])
    held = link.counters()["holds"]
    os.kill(daemon, signal.SIGKILL)
    os.waitpid(daemon, 0)
    wait_for(lambda: slices(clients[be])[1:] == [2048], "the best-effort slice is the program's own again")
    wait_for(lambda: slices(clients[lc])[1:] == [2048], "and the latency-critical one")
    undo = UndoLog(folder)
    pending = len(undo.pending())
    restore_pending(undo)  # asks the real RM by copied descriptors; here it does not know the groups
    assert undo.pending() == []
    undo.close()
    for pid in (lc, be):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    link.close()
    return {"holds": held, "on disk": pending}
