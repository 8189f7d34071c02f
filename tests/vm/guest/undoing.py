"""What must never be left behind: killed controllers, leases that run out, failures, targets that die."""

import errno
import os
import signal
import time

import netlink as nl
import rm
from checks import DEBUG, check, fails, log, own, slices, switches, wait_for


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
