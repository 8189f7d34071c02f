"""Controls: single, in batches, of several owners, asynchronous, in plans."""

import errno
import struct
import time

import netlink as nl
import rm
from checks import DEBUG, check, fails, log, own, slices, switches, wait_for


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
