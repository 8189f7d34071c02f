"""What is checked inside the virtual machine, against the real driver module, as root. Prints one JSON line a check.

Every check leaves nothing behind: the runner compares the module's counters before and after each.
"""

# ruff: noqa: PT017 not run by pytest

import errno
import json
import os
import random
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import netlink as nl
import rm


DEBUG = Path("/sys/kernel/debug/gpsched")
SHARE = Path("/share")
CHECKS: dict[str, Callable[[], object]] = {}


def check(function: Callable[[], object]) -> Callable[[], object]:
    CHECKS[function.__name__] = function
    return function


# ---- helpers ----


def wait_for(condition: Callable[[], object], what: str, limit_s: float = 60) -> object:
    """Poll; generous limit, since emulation on a busy machine is slow."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"never: {what}")


def fails(code: int, call: Callable[[], object]) -> None:
    try:
        call()
    except OSError as error:
        assert error.errno == code, f"{errno.errorcode.get(error.errno)} and not {errno.errorcode[code]}"
    else:
        raise AssertionError(f"accepted, {errno.errorcode[code]} expected")


def log() -> list[tuple]:
    """The controls that the believed objects got: (client, object, command, status, parameters)."""
    rows = [line.split() for line in (DEBUG / "log").read_text().splitlines()]
    return [(int(r[1], 16), int(r[2], 16), int(r[3], 16), int(r[5], 16), bytes.fromhex(r[6])) for r in rows]


def slices(rm_: "rm.Rm", handle: int = 0x5C000003) -> list[int]:
    return [
        struct.unpack("<Q", p)[0] for c, o, cmd, s, p in log() if (c, o, cmd, s) == (rm_.client, handle, 0xA06C0103, 0)
    ]


def switches(since: int = 0) -> list[tuple[int, int, int]]:
    """FIFO_DISABLE_CHANNELS since a length of the log: (disable, channels, scheduling only)."""
    return [
        (p[0], struct.unpack_from("<I", p, 4)[0], p[8])
        for _, _, cmd, s, p in log()[since:]
        if cmd == 0x2080110B and s == 0
    ]


def own(link: nl.Netlink) -> list[dict]:
    return link.list(os.getpid())


def in_child(function: Callable[[], object], uid: int = 0, limit_s: int = 0) -> tuple[int, str]:
    """Run in a forked child; return its status and what it returned, or its traceback.

    Its files end with it, and so do its own children: one that was left would keep the pipe, and the checks, waiting.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.close(read)
        signal.alarm(limit_s)
        try:
            if uid:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            value = function()
            os.write(write, json.dumps(value).encode() if value is not None else b"")
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-1500:])
            os._exit(1)
        os._exit(0)
    os.close(write)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    message = os.read(read, 65536).decode()
    os.close(read)
    return status, message


def child_passes(function: Callable[[], object], uid: int = 0) -> None:
    status, message = in_child(function, uid)
    assert status == 0, message


# ---- the registry ----


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


# ---- controls ----


@check
def timeslice_is_set_and_given_back() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    done = link.control((group, nl.OP_TIMESLICE, 1))
    assert (done[nl.A_ERROR], done[nl.A_STATUS], done[nl.A_RESULTS]) == (0, 0, bytes(8))
    assert link.ask(nl.GET, nl.attr(nl.A_GROUP, group))[0][nl.A_TIMESLICE] == 1
    link.control((group, nl.OP_TIMESLICE, 1))
    assert slices(program) == [1], "no control when nothing changes"
    link.control((group, nl.OP_TIMESLICE, 1000000), (group, nl.OP_INTERLEAVE, 2))
    link.control((group, nl.OP_TIMESLICE_UNDO, 0))
    assert slices(program) == [1, 1000000, 2048]
    link.ask(nl.RELEASE)
    assert [p for _, _, c, _, p in log()[-1:] if c == 0xA06C0107] == [struct.pack("<I", 1)]
    program.close()
    link.close()


@check
def batch_is_one_control() -> None:
    link, program = nl.Netlink(), rm.Rm().tree(channels=8)
    for index in range(1, 5):
        program.group(0x5C000003 + 0x1000 * index, 0x5C000001, 8)
    program.group(0x5C009003, 0x5C000001, 80)
    ids = [group[nl.A_GROUP] for group in own(link)]
    before = len(log())
    link.control(*((group, nl.OP_DISABLE, 1) for group in ids[:5]))
    assert switches(before) == [(1, 40, 0)]
    assert all(group[nl.A_DISABLED] == 1 for group in own(link)[:5])
    before = len(log())
    link.control(*((group, nl.OP_ENABLE, 0) for group in ids[:5]))
    assert switches(before) == [(0, 40, 0)]
    before = len(log())
    link.control((ids[5], nl.OP_DISABLE, 2))
    assert switches(before) == [(1, 64, 1), (1, 16, 1)], "64 channels a control"
    link.ask(nl.RELEASE)
    assert not any(group[nl.A_DISABLED] for group in own(link))
    program.close()
    link.close()


@check
def two_gpus_are_two_controls() -> None:
    link, one, two = nl.Netlink(), rm.Rm().tree(instance=0), rm.Rm().tree(instance=1)
    before = len(log())
    link.control(*((group[nl.A_GROUP], nl.OP_DISABLE, 1) for group in own(link)))
    assert switches(before) == [(1, 2, 0), (1, 2, 0)]
    link.close()
    one.close()
    two.close()


@check
def two_owners_disable() -> None:
    one, two, program = nl.Netlink(), nl.Netlink(), rm.Rm().tree()
    group = own(one)[0][nl.A_GROUP]
    one.control((group, nl.OP_DISABLE, 1))
    two.control((group, nl.OP_DISABLE, 1))
    one.control((group, nl.OP_ENABLE, 0))
    assert own(one)[0][nl.A_DISABLED] == 1, "the other one still wants it"
    two.close()
    wait_for(lambda: own(one)[0][nl.A_DISABLED] == 0, "enabled when the last owner is gone")
    one.close()
    program.close()


@check
def owner_sets_its_timeslice() -> None:
    """CUDA itself sets 2048 us after it made a group: ours comes back, and theirs is what is restored."""
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    link.control((group, nl.OP_TIMESLICE, 7))
    program.control(0x5C000003, rm.SET_TIMESLICE, struct.pack("<Q", 3000))
    wait_for(lambda: slices(program) == [7, 7], "set again")
    link.ask(nl.RELEASE)
    assert slices(program) == [7, 7, 3000]
    program.close()
    link.close()


@check
def channel_added_while_disabled() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    link.control((group, nl.OP_DISABLE, 1))
    before = len(log())
    program.alloc(0x5C000300, 0x5C000003, rm.CHANNEL)
    wait_for(lambda: switches(before) == [(1, 3, 0)] or switches(before), "the new channel is disabled too")
    assert switches(before)[-1] == (1, 3, 0)
    link.close()
    program.close()


@check
def preempt_and_restart() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    link.control(
        (group, nl.OP_PREEMPT, 0), (group, nl.OP_PREEMPT, 5000), (group, nl.OP_RESTART, 0), (group, nl.OP_RESTART, 3)
    )
    rows = [(c, p) for _, _, c, s, p in log()[-4:]]
    assert rows[0] == (0xA06C0105, bytes(8))
    assert rows[1] == (0xA06C0105, b"\1\1\0\0" + struct.pack("<I", 5000))
    assert rows[2] == (0xA06F0111, b"\0\1")
    assert rows[3] == (0xA06F0111, b"\1\0")
    program.close()
    link.close()


@check
def asynchronous_with_completion() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    (DEBUG / "delay_ms").write_text("300")
    began = time.monotonic()
    assert link.control((group, nl.OP_TIMESLICE, 9), extra=nl.attr(nl.A_COOKIE, 5) + nl.attr(nl.A_ASYNC, b"")) == {}
    answered = time.monotonic() - began
    done = link.event(nl.DONE)
    finished = time.monotonic() - began
    (DEBUG / "delay_ms").write_text("0")
    assert (done[nl.A_COOKIE], done[nl.A_ERROR], done[nl.A_RESULTS]) == (5, 0, bytes(8))
    assert answered < finished / 2, f"{answered} of {finished} s: it waited"
    program.close()
    link.close()


@check
def plan_begins_and_ends() -> None:
    link, lc, be = nl.Netlink(), rm.Rm().tree(), rm.Rm().tree()
    ids = {group[nl.A_CLIENT]: group[nl.A_GROUP] for group in own(link)}
    link.control((ids[be.client], nl.OP_TIMESLICE, 50))
    plan = link.plan(
        (ids[be.client], nl.OP_DISABLE, 1), (ids[be.client], nl.OP_TIMESLICE, 1), (ids[lc.client], nl.OP_PREEMPT, 0)
    )
    link.ask(nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, plan))
    assert slices(be) == [50, 1]
    link.ask(nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, plan))
    link.ask(nl.PLAN_END, nl.attr(nl.A_PLAN, plan))
    assert slices(be) == [50, 1, 50], "back to what was held outside of the plan"
    assert not any(group[nl.A_DISABLED] for group in own(link))
    stranger = nl.Netlink()
    stranger.control((ids[lc.client], nl.OP_TIMESLICE, 5))
    fails(errno.EPERM, lambda: stranger.ask(nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, plan)))
    fails(errno.EPERM, lambda: stranger.ask(nl.PLAN_DROP, nl.attr(nl.A_PLAN, plan)))
    link.ask(nl.PLAN_DROP, nl.attr(nl.A_PLAN, plan))
    fails(errno.ENOENT, lambda: link.ask(nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, plan)))
    stranger.close()
    link.close()
    lc.close()
    be.close()


@check
def plan_that_fails_leaves_nothing() -> None:
    link, be = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    plan = link.plan((group, nl.OP_TIMESLICE, 1), (group, nl.OP_PREEMPT, 0), (group, nl.OP_DISABLE, 1))
    (DEBUG / "delay_ms").write_text("0")
    (DEBUG / "fail").write_text("0x1f")
    be_log = len(log())
    link.control((group, nl.OP_INTERLEAVE, 2))  # the GET of the level and the first of the plan work
    assert len(log()) > be_log
    (DEBUG / "fail_count").write_text("1")
    fails(errno.EIO, lambda: link.ask(nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, plan)))
    assert own(link)[0][nl.A_DISABLED] == 0
    assert slices(be)[-1:] in ([], [2048])
    link.close()
    be.close()


# ---- what must never be left behind ----


@check
def killed_controller_is_undone() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    pid = os.fork()
    if pid == 0:
        controller = nl.Netlink()
        plan = controller.plan((group, nl.OP_INTERLEAVE, 2), lease_ms=3600000)
        controller.ask(nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, plan))
        controller.control((group, nl.OP_DISABLE, 1), (group, nl.OP_TIMESLICE, 1), lease_ms=3600000)
        time.sleep(600)
    wait_for(lambda: slices(program) == [1], "the controller's work")
    assert own(link)[0][nl.A_DISABLED] == 1
    undone = link.counters()["undone"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_for(lambda: own(link)[0][nl.A_DISABLED] == 0, "enabled")
    wait_for(lambda: slices(program) == [1, 2048], "its timeslice back")
    wait_for(lambda: link.counters()["plans"] == 0, "its plan gone")
    assert link.counters()["undone"] == undone + 3
    program.close()
    link.close()


@check
def lease_runs_out() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    link.control((group, nl.OP_DISABLE, 1), lease_ms=200)
    link.control((group, nl.OP_TIMESLICE, 1), lease_ms=3600000)
    wait_for(lambda: own(link)[0][nl.A_DISABLED] == 0, "enabled")
    assert slices(program) == [1], "the other lease lives"
    plan = link.plan((group, nl.OP_DISABLE, 1), lease_ms=100)
    link.ask(nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, plan))
    wait_for(lambda: own(link)[0][nl.A_DISABLED] == 0, "a plan has a lease too")
    link.close()
    program.close()


@check
def renewed_lease_lives() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    link.control((group, nl.OP_DISABLE, 1), lease_ms=6000)
    link.ask(nl.RENEW, nl.attr(nl.A_LEASE_MS, 3600000))
    time.sleep(7)
    assert own(link)[0][nl.A_DISABLED] == 1
    link.ask(nl.RENEW, nl.attr(nl.A_LEASE_MS, 10))
    wait_for(lambda: own(link)[0][nl.A_DISABLED] == 0, "a short lease after a long one")
    link.close()
    program.close()


@check
def failed_undo_is_tried_again() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    link.control((group, nl.OP_DISABLE, 1))
    (DEBUG / "fail").write_text("0x3")  # BUSY_RETRY
    (DEBUG / "fail_count").write_text("6")
    before = len(log())
    link.close()
    probe = nl.Netlink()
    wait_for(lambda: own(probe)[0][nl.A_DISABLED] == 0, "enabled in the end")
    assert sum(status == 3 for _, _, _, status, _ in log()[before:]) == 6
    (DEBUG / "fail_count").write_text("0")
    program.close()
    probe.close()


@check
def failed_enable_is_told_and_tried_again() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    link.control((group, nl.OP_DISABLE, 1))
    (DEBUG / "fail").write_text("0x3")
    (DEBUG / "fail_count").write_text("2")  # the batch, and its channel by channel second try
    assert link.control((group, nl.OP_ENABLE, 0))[nl.A_STATUS] == 3
    wait_for(lambda: own(link)[0][nl.A_DISABLED] == 0, "enabled by the watchdog, with nobody asking again")
    assert link.control((group, nl.OP_ENABLE, 0))[nl.A_ERROR] == 0
    program.close()
    link.close()


@check
def plan_goes_on_when_one_of_its_processes_died() -> None:
    link, one, two = nl.Netlink(), rm.Rm().tree(), rm.Rm().tree()
    ids = {group[nl.A_CLIENT]: group[nl.A_GROUP] for group in own(link)}
    plan = link.plan(
        (ids[one.client], nl.OP_DISABLE, 1), (ids[two.client], nl.OP_DISABLE, 1), (ids[two.client], nl.OP_PREEMPT, 0)
    )
    one.close()
    link.ask(nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, plan))
    assert [group[nl.A_DISABLED] for group in own(link)] == [1]
    link.ask(nl.PLAN_END, nl.attr(nl.A_PLAN, plan))
    (DEBUG / "fail").write_text("0x1f")
    before = len(log())
    (DEBUG / "fail_count").write_text("3")
    fails(errno.EIO, lambda: link.ask(nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, plan)))
    assert len(log()) > before
    (DEBUG / "fail_count").write_text("0")
    wait_for(lambda: own(link)[0][nl.A_DISABLED] == 0, "nothing is left of a plan that failed")
    two.close()
    link.close()


@check
def failed_change_is_no_hold() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    (DEBUG / "fail").write_text("0x56")
    (DEBUG / "fail_count").write_text("1")
    done = link.control((group, nl.OP_TIMESLICE, 1))
    assert (done[nl.A_ERROR], done[nl.A_STATUS]) == (-errno.EOPNOTSUPP, 0x56)
    assert link.counters()["holds"] == 0
    program.close()
    link.close()


@check
def target_dies_while_held() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    link.control((group, nl.OP_DISABLE, 1), (group, nl.OP_TIMESLICE, 1))
    program.close()
    wait_for(lambda: link.counters()["holds"] == 0, "the holds go with the group")
    assert link.control((group, nl.OP_ENABLE, 0))[nl.A_ERROR] == -errno.ESRCH
    link.close()


@check
def dies_during_a_control() -> None:
    """Its handles may name other channels the next moment: what was disabled in that moment is enabled again."""
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    before = len(log())
    (DEBUG / "delay_ms").write_text("500")
    link.control((group, nl.OP_DISABLE, 1), extra=nl.attr(nl.A_ASYNC, b""))
    time.sleep(0.1)
    program.free(0x5C000003)
    link.event(nl.DONE)
    (DEBUG / "delay_ms").write_text("0")
    assert switches(before) == [(1, 2, 0), (0, 2, 0)]
    program.close()
    link.close()


# ---- who may ----

CHANGES = (
    (nl.CONTROL, nl.actions((1, nl.OP_TIMESLICE, 5))),
    (nl.CONTROL, nl.actions((1, nl.OP_PREEMPT, 0)) + nl.attr(nl.A_ASYNC, b"")),
    (nl.GET, nl.attr(nl.A_GROUP, 1)),
    (nl.RENEW, b""),
    (nl.RELEASE, b""),
    (nl.PLAN_SET, nl.actions((1, nl.OP_DISABLE, 1))),
    (nl.PLAN_BEGIN, nl.attr(nl.A_PLAN, 64)),
    (nl.PLAN_END, nl.attr(nl.A_PLAN, 64)),
    (nl.PLAN_DROP, nl.attr(nl.A_PLAN, 64)),
)


@check
def unprivileged_user_changes_nothing() -> None:
    program = rm.Rm().tree()

    def user() -> None:
        link = nl.Netlink()
        for command, payload in CHANGES:
            fails(errno.EPERM, lambda command=command, payload=payload: link.ask(command, payload))
        fails(errno.EPERM, link.subscribe)
        assert link.list() == [], "root's groups are not shown"
        mine = rm.Rm().tree()
        assert [group[nl.A_CLIENT] for group in link.list()] == [mine.client]
        link.ask(nl.INFO)

    child_passes(user, uid=1000)
    program.close()


@check
def root_of_a_user_namespace_changes_nothing() -> None:
    def user() -> None:
        import ctypes

        assert ctypes.CDLL(None).unshare(0x10000000) == 0  # CLONE_NEWUSER: all capabilities, in the new namespace only
        link = nl.Netlink()
        for command, payload in CHANGES:
            fails(errno.EPERM, lambda command=command, payload=payload: link.ask(command, payload))

    child_passes(user, uid=1000)


@check
def socket_passed_on_gives_no_right() -> None:
    """A privileged process's socket in an unprivileged one: the sender counts too."""
    link = nl.Netlink()

    def user() -> None:
        for command, payload in CHANGES:
            fails(errno.EPERM, lambda command=command, payload=payload: link.ask(command, payload))

    child_passes(user, uid=1000)
    link.close()


@check
def values_out_of_range() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    bad = [
        (nl.OP_TIMESLICE, 0), (nl.OP_TIMESLICE, 10000001), (nl.OP_INTERLEAVE, 3), (nl.OP_DISABLE, 0),
        (nl.OP_DISABLE, 3), (nl.OP_ENABLE, 1), (nl.OP_PREEMPT, 1000001), (nl.OP_RESTART, 4),
        (nl.OP_TIMESLICE_UNDO, 1), (nl.OP_INTERLEAVE_UNDO, 1),
    ]  # fmt: skip
    before = len(log())
    for op, value in bad:
        fails(errno.ERANGE, lambda op=op, value=value: link.control((group, op, value)))
    for op in (0, 9, 0xFFFFFFFF):
        fails(errno.EOPNOTSUPP, lambda op=op: link.control((group, op, 1)))
    fails(errno.ERANGE, lambda: link.control((0, nl.OP_DISABLE, 1)))
    for lease in (0, 9, 3600001, 0xFFFFFFFF):
        fails(errno.ERANGE, lambda lease=lease: link.control((group, nl.OP_DISABLE, 1), lease_ms=lease))
    fails(errno.EINVAL, lambda: link.ask(nl.CONTROL, nl.attr(nl.A_ACTIONS, bytes(15))))
    fails(errno.EINVAL, lambda: link.ask(nl.CONTROL, nl.attr(nl.A_ACTIONS, b"")))
    fails(errno.EINVAL, lambda: link.ask(nl.CONTROL))
    fails(errno.ERANGE, lambda: link.control(*[(group, nl.OP_DISABLE, 1)] * 65))
    assert len(log()) == before, "refused before anything was done"
    program.close()
    link.close()


@check
def limits_hold() -> None:
    link, program = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    codes = set()
    for _ in range(400):
        try:
            link.control(*[(1 << 40, nl.OP_PREEMPT, 0)] * 64)  # no such group: nothing but the limit takes time
        except OSError as error:
            codes.add(error.errno)
            break
    assert codes == {errno.EBUSY}, "400 times 64 actions at once went through"
    for _ in range(30):
        link.control(*[(group, nl.OP_ENABLE, 0)] * 64)  # giving back is never refused
    link.ask(nl.RELEASE)
    time.sleep(0.3)
    link.control((group, nl.OP_DISABLE, 1))
    plans = []
    for _ in range(64):
        time.sleep(0.001)
        plans.append(link.plan((group, nl.OP_DISABLE, 1)))
    fails(errno.ENOSPC, lambda: link.plan((group, nl.OP_DISABLE, 1)))
    others = [nl.Netlink() for _ in range(64)]
    refused = 0
    for other in others:
        try:
            other.control((group, nl.OP_DISABLE, 1))
        except OSError as error:
            refused += error.errno == errno.ENOSPC
    assert refused == 1
    for other in others:
        other.close()
    link.close()
    program.close()


# ---- rough treatment ----


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
    import fcntl

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


# ---- the runner ----

GAUGES = ("clients", "objects", "groups", "controllers", "plans", "holds", "allocated")


def settled(link: nl.Netlink) -> dict:
    counters = link.counters()
    return {name: counters[name] for name in GAUGES if counters[name]}


def run(name: str) -> dict:
    probe = nl.Netlink()
    lost = probe.counters()["lost"]
    began = time.monotonic()
    for knob in ("fail", "fail_count", "delay_ms", "fail_alloc"):
        (DEBUG / knob).write_text("0")
    (DEBUG / "clear").write_text("1")
    status, detail = in_child(CHECKS[name], limit_s=int(os.environ.get("GPSCHED_CHECK_LIMIT", "300")))
    try:
        assert status == 0, f"status {status}: {detail}"
        wait_for(lambda: not settled(probe), "nothing left behind", 30)
        if name not in ("memory_runs_out", "malformed_ioctls"):  # there it is what they are about
            assert probe.counters()["lost"] == lost, "the registry lost objects"
        outcome = {"check": name, "ok": True, "detail": detail}
    except BaseException as error:
        rows = [(hex(c), hex(o), hex(cmd), hex(s), p.hex()) for c, o, cmd, s, p in log()[-12:]]
        outcome = {"check": name, "ok": False, "detail": f"{error}\nleft: {settled(probe)}\nlast controls: {rows}"}
    probe.close()
    return {**outcome, "seconds": round(time.monotonic() - began, 2)}


def main() -> None:
    names = sys.argv[1:] or list(CHECKS)
    for name in names:
        print(json.dumps(run(name)), flush=True)


if __name__ == "__main__":
    main()
