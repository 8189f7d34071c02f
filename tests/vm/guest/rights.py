"""Who may change what, and what is refused."""

import errno
import time

import netlink as nl
import rm
from checks import check, child_passes, fails, log, own


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
