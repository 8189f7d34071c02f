"""The registry: what the module knows of clients, groups and channels."""

import errno
import os
import signal
import struct
import time
from pathlib import Path

import netlink as nl
import rm
from checks import check, own, wait_for


@check
def info() -> object:
    link = nl.Netlink()
    reply = link.ask(nl.INFO)[0]
    driver = reply[nl.A_DRIVER].rstrip(b"\0").decode()
    expected = "" if os.environ.get("GPSCHED_COMPANION") else os.environ["GPSCHED_DRIVER"]
    assert driver.startswith(expected), driver
    assert reply[nl.A_VERSION] == 1
    assert reply[nl.A_FEATURES] & 4, "not a test build"
    link.close()
    return {"driver": driver, "features": reply[nl.A_FEATURES]}


@check
def clients_of_the_real_rm() -> None:
    """A client that the RM itself allocated is counted, also by the short form of the ioctl, and ends with the file."""
    link = nl.Netlink()
    one, two = rm.Rm().root(), rm.Rm(large=False).root()
    assert one.client != two.client
    assert link.counters()["clients"] == 2
    assert one.control(one.client, rm.ATTACHED_IDS, bytes(128)) == 0, "the RM itself answers"
    assert one.free(one.client) == 0
    assert link.counters()["clients"] == 1
    two.close()
    assert link.counters()["clients"] == 0
    one.close()
    link.close()


@check
def group_is_listed_with_all_that_is_known() -> None:
    link, program = nl.Netlink(), rm.Rm().tree(channels=3, instance=5)
    (group,) = own(link)
    cgroup = Path("/proc/self/cgroup").read_text().split("::")[1].strip()
    assert group[nl.A_CGROUP] == Path(f"/sys/fs/cgroup{cgroup}").stat().st_ino
    assert (group[nl.A_CLIENT], group[nl.A_HANDLE]) == (program.client, 0x5C000003)
    assert (group[nl.A_ENGINE], group[nl.A_DEVICE], group[nl.A_SUBDEVICE]) == (3, 5, 0x5C000002)
    assert (group[nl.A_PID], group[nl.A_UID], group[nl.A_GPU]) == (os.getpid(), 0, 0x100)
    pairs = struct.unpack("<6I", group[nl.A_CHANNELS])
    assert pairs == (program.client, 0x5C000103, program.client, 0x5C000104, program.client, 0x5C000105)
    program.close()
    assert own(link) == []
    link.close()


@check
def engines_by_the_object_on_the_channel() -> None:
    link = nl.Netlink()
    program = rm.Rm().tree(engine=rm.COPY)
    assert own(link)[0][nl.A_ENGINE] == 2
    program.alloc(0x5C000090, 0x5C000103, rm.COMPUTE)
    assert own(link)[0][nl.A_ENGINE] == 3
    program.alloc(0x5C000091, 0x5C000103, rm.COPY)
    assert own(link)[0][nl.A_ENGINE] == 3, "compute decides"
    program.close()
    link.close()


@check
def freed_with_a_parent() -> None:
    link = nl.Netlink()
    program = rm.Rm().tree()
    program.free(0x5C000103)
    assert len(own(link)[0][nl.A_CHANNELS]) == 8
    program.free(0x5C000001)
    assert own(link) == []
    assert link.counters()["objects"] == 0
    program.close()
    link.close()


@check
def handle_used_again_is_another_group() -> None:
    link = nl.Netlink()
    program = rm.Rm().tree()
    first = own(link)[0][nl.A_GROUP]
    program.free(0x5C000003)
    program.group(0x5C000003, 0x5C000001)
    assert own(link)[0][nl.A_GROUP] > first
    fails_with = link.control((first, nl.OP_TIMESLICE, 100))
    assert fails_with[nl.A_ERROR] == -errno.ESRCH
    program.close()
    link.close()


@check
def duplicate_keeps_the_group_alive() -> None:
    link = nl.Netlink()
    program, other = rm.Rm().tree(), rm.Rm().tree(channels=0)
    group = next(g for g in own(link) if g[nl.A_CLIENT] == program.client)[nl.A_GROUP]
    other.dup(0x5C000001, 0x77, program.client, 0x5C000003)
    assert len(own(link)) == 2, "a second name is no second group"
    program.close()
    left = next(g for g in own(link) if g[nl.A_GROUP] == group)
    assert (left[nl.A_CLIENT], left[nl.A_HANDLE]) == (other.client, 0x77)
    other.close()
    assert own(link) == []
    link.close()


@check
def child_goes_on_with_its_dead_parents_descriptor() -> None:
    link = nl.Netlink()
    gate_read, gate_write = os.pipe()
    parent = os.fork()
    if parent == 0:
        program = rm.Rm().tree()
        if os.fork() == 0:
            os.close(gate_write)
            os.read(gate_read, 1)  # until the parent is gone and seen as such
            program.group(0x5C001003, 0x5C000001)
            time.sleep(600)
        os._exit(0)
    os.waitpid(parent, 0)
    os.close(gate_read)
    assert wait_for(lambda: len(link.list()) == 1, "the child keeps the file open")
    os.close(gate_write)
    wait_for(lambda: len(link.list()) == 2, "the child's own group")
    pids = {group[nl.A_PID] for group in link.list()}
    assert len(pids) == 1
    assert pids != {parent}
    child = pids.pop()
    assert len(link.list(child)) == 2
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: link.list() == [], "the last close")
    link.close()


@check
def exec_closes() -> None:
    link = nl.Netlink()
    pid = os.fork()
    if pid == 0:
        rm.Rm().tree()
        os.execv("/bin/sleep", ["sleep", "600"])
    wait_for(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "exec")
    wait_for(lambda: link.list() == [], "closed by exec")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    link.close()


@check
def listing_of_many() -> None:
    """A dump goes over many datagrams: each group once, whatever dies meanwhile."""
    link = nl.Netlink()
    program = rm.Rm().tree(channels=0)
    for index in range(300):
        program.group(0x5C100000 + 0x1000 * index, 0x5C000001, 4)
    link.send(link.family, nl.LIST, b"", nl.NLM_F_REQUEST | nl.NLM_F_DUMP)
    seen, rounds, done = [], 0, False
    while not done:
        for kind, _, _, content in link.messages():
            done = done or kind == nl.NLMSG_DONE
            if kind != nl.NLMSG_DONE:
                seen.append(content[nl.A_GROUP])
        program.free(0x5C100000 + 0x1000 * (299 - rounds))
        rounds += 1
    assert len(seen) == len(set(seen))
    assert seen == sorted(seen)
    assert 301 - rounds <= len(seen) <= 301
    assert rounds > 1
    program.close()
    link.close()


@check
def events() -> None:
    link = nl.Netlink()
    link.subscribe()
    program = rm.Rm().tree()
    added = link.event(nl.ADDED)
    assert (added[nl.A_CLIENT], added[nl.A_ENGINE]) == (program.client, 0)
    assert link.event(nl.ADDED)[nl.A_ENGINE] == 3, "told again when the engine is known"
    link.control((added[nl.A_GROUP], nl.OP_TIMESLICE, 500), extra=nl.attr(nl.A_COOKIE, 77))
    assert link.event(nl.DONE)[nl.A_COOKIE] == 77
    program.close()
    assert link.event(nl.REMOVED)[nl.A_GROUP] == added[nl.A_GROUP]
    link.close()
