"""The product's own user side against the module: the level `module` by pyroute2, the BPF program by libbpf."""

# ruff: noqa: PT017 not run by pytest

import ctypes
import errno
import os
import socket
import struct
from pathlib import Path

import netlink as nl
import rm
from checks import SHARE, check, child_passes, log, own, slices, switches, wait_for


@check
def level_module() -> object:
    from gpsched.adaptive.driver import HandleGoneError, module_abi
    from gpsched.adaptive.driver import module_link as module
    from gpsched.adaptive.driver.control import StockControl
    from gpsched.adaptive.driver.errors import ModuleError
    from gpsched.adaptive.driver.module_abi import Done, GroupEvent, Op
    from gpsched.adaptive.driver.module_control import ModuleControl

    assert module_abi.available()
    for method in (
        "get_timeslice",
        "set_timeslice",
        "preempt",
        "disable",
        "enable",
        "restart_runlist",
        "set_interleave",
    ):
        assert callable(getattr(StockControl, method))
        assert callable(getattr(ModuleControl, method))
    program = rm.Rm().tree(channels=3, instance=2)
    with module.ModuleLink(lease_ms=60000) as link:
        (known,) = link.groups(os.getpid())
        group = known.group
        assert (group.key, group.engine, group.subdevice, group.gpu_id) == (
            (program.client, 0x5C000003),
            "compute",
            0x5C000002,
            0x100,
        )
        assert (known.device, len(group.channels), known.disabled) == (2, 3, 0)
        assert link.groups(1) == []
        control = ModuleControl(link, os.getpid())
        assert control.get_timeslice(group) == 2048
        control.set_timeslice(group, 11)
        assert control.get_timeslice(group) == 11
        assert control.last_cost_us > 0
        assert control.gpu_id(group) == 0x100
        before = len(log())
        control.disable([group], scheduling_only=True)
        control.enable([group])
        assert switches(before) == [(1, 3, 1), (0, 3, 0)]
        control.preempt(group, wait=True, timeout_us=99)
        control.restart_runlist(group, force=True)
        control.set_interleave(group, 0)
        link.renew()
        plan = link.prepare(control.actions([group], Op.DISABLE, 1), lease_ms=60000)
        link.begin(plan)
        assert link.groups(os.getpid())[0].disabled == 1
        link.end(plan)
        assert link.groups(os.getpid())[0].disabled == 0
        listener = module.ModuleEvents()
        done = link.apply(control.actions([group], Op.TIMESLICE, 12), asynchronous=True)
        event = next(listener.read())
        assert isinstance(event, Done)
        assert (event.cookie, event.error) == (done.cookie, 0)
        program.free(0x5C000003)
        gone = next(listener.read())
        assert isinstance(gone, GroupEvent)
        assert (gone.added, gone.group.number) == (False, known.number)
        listener.close()
        try:
            control.set_timeslice(group, 13)
        except HandleGoneError as error:
            assert error.pid == os.getpid()
        else:
            raise AssertionError("a group that is gone was set")
        counters = link.read_info().counters
    program.close()

    def user() -> None:
        with module.ModuleLink() as mine:
            try:
                mine.release()
            except ModuleError as error:
                assert error.code == errno.EPERM
                assert "root" in str(error)
            else:
                raise AssertionError("an unprivileged user released")

    child_passes(user, uid=1000)
    return {"controls": counters["controls"]}


def received(count: int) -> None:
    one, two = socket.socketpair()
    for _ in range(count):
        one.send(b"x")
        two.recv(1)


def libc_offset(name: str) -> tuple[Path, int]:
    """Return libc and the file offset of one of its functions."""
    address = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, mode, offset, _, _, *path = line.split()
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= address < high and "x" in mode:
            return Path(path[0]), address - low + int(offset, 16)
    raise AssertionError(f"no {name}")


@check
def bpf_reacts_in_the_kernel() -> object:
    """A socket read begins the plan without user space; a call of a library function too where the kernel allows it."""
    from gpsched.adaptive.driver.module_bpf import Reactions

    link, be = nl.Netlink(), rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    assert link.ask(nl.INFO)[0][nl.A_FEATURES] & 1, "the module offers no kfuncs"
    plan = link.plan((group, nl.OP_TIMESLICE, 1), (group, nl.OP_DISABLE, 1), lease_ms=60000)
    programs = Reactions(SHARE / "module_react.bpf.o")
    assert programs.try_plan(plan) == 0
    assert slices(be) == [1, 2048]
    assert programs.try_plan(plan + 64) == -errno.ENOENT
    programs.begin_on_receive()
    received(1)
    assert own(link)[0][nl.A_DISABLED] == 0, "no trigger of this process was asked for"
    programs.set_plan(os.getpid(), plan)
    received(3)
    wait_for(lambda: own(link)[0][nl.A_DISABLED] == 1, "the plan has begun")
    reaction = programs.reaction(os.getpid())
    assert reaction.begun >= 3
    assert reaction.error == 0
    programs.set_plan(os.getpid(), plan + 64)
    received(1)
    assert programs.reaction(os.getpid()).error == -errno.ENOENT
    programs.forget(os.getpid())
    assert programs.reaction(os.getpid()) is None
    programs.close()  # our own netlink reads are triggers too: they must not begin the plan from here on
    link.ask(nl.PLAN_END, nl.attr(nl.A_PLAN, plan))
    uprobes = react_to_calls(link, plan)
    link.close()
    be.close()
    return {"uprobes": uprobes}


def react_to_calls(link: nl.Netlink, plan: int) -> bool:
    from gpsched.adaptive.driver.module_bpf import Reactions

    programs = Reactions(SHARE / "module_react.bpf.o")
    libc = ctypes.CDLL(None)
    if programs.uprobes:
        programs.begin_on_call(*libc_offset("getppid"))
        programs.end_on_return(*libc_offset("getpgid"))
        programs.set_plan(os.getpid(), plan)
        libc.getppid()
        wait_for(lambda: own(link)[0][nl.A_DISABLED] == 1, "begun by a uprobe")
        libc.getpgid(0)
        wait_for(lambda: own(link)[0][nl.A_DISABLED] == 0, "ended by a uretprobe")
    programs.close()
    return programs.uprobes


class Lookup:
    """lookup.bpf.o, loaded and attached."""

    def __init__(self) -> None:
        from gpsched.adaptive.driver.module_bpf import load_library

        self.bpf = load_library()
        self.object = ctypes.c_void_p(self.bpf.bpf_object__open(bytes(SHARE / "lookup.bpf.o")))
        assert self.bpf.bpf_object__load(self.object) == 0, "the kernel refused lookup.bpf.o"
        self.links = []
        for name in (b"on_group", b"on_done"):
            program = ctypes.c_void_p(self.bpf.bpf_object__find_program_by_name(self.object, name))
            self.links.append(ctypes.c_void_p(self.bpf.bpf_program__attach(program)))
        assert all(link.value for link in self.links)

    def seen(self) -> dict:
        value = ctypes.create_string_buffer(64)
        fd = self.bpf.bpf_object__find_map_fd_by_name(self.object, b"seen")
        assert self.bpf.bpf_map_lookup_elem(fd, ctypes.create_string_buffer(4), value) == 0
        names = ("added", "removed", "last", "done", "error", "found", "lookup", "wrong_size")
        return dict(zip(names, struct.unpack("<QQQQqQqq", value.raw), strict=True))

    def close(self) -> None:
        for link in self.links:
            self.bpf.bpf_link__destroy(link)
        self.bpf.bpf_object__close(self.object)


@check
def registry_from_bpf() -> None:
    programs, link = Lookup(), nl.Netlink()
    program = rm.Rm().tree()
    group = own(link)[0][nl.A_GROUP]
    seen = programs.seen()
    assert (seen["added"], seen["last"]) == (2, group), "added, and told again when the engine was known"
    link.control((group, nl.OP_TIMESLICE, 5), extra=nl.attr(nl.A_COOKIE, 4711))
    seen = programs.seen()
    assert (seen["done"], seen["error"], seen["lookup"], seen["found"]) == (4711, 0, 0, group)
    assert seen["wrong_size"] == -errno.EINVAL
    program.close()
    assert (programs.seen()["removed"], programs.seen()["last"]) == (1, group)
    link.control((group, nl.OP_TIMESLICE, 5))
    seen = programs.seen()
    assert (seen["error"], seen["lookup"]) == (-errno.ESRCH, -errno.ESRCH)
    programs.close()
    link.close()


@check
def plan_of_a_dead_controller_is_nobodys() -> None:
    """BPF goes on asking after the controller died: refused, and nothing is disabled."""
    from gpsched.adaptive.driver.module_bpf import Reactions

    be = rm.Rm().tree()
    watcher = nl.Netlink()
    group = own(watcher)[0][nl.A_GROUP]
    controller = nl.Netlink()
    plan = controller.plan((group, nl.OP_DISABLE, 1), lease_ms=3600000)
    programs = Reactions(SHARE / "module_react.bpf.o")
    programs.set_plan(os.getpid(), plan)
    programs.begin_on_receive()
    received(1)
    wait_for(lambda: own(watcher)[0][nl.A_DISABLED] == 1, "begun")
    controller.close()
    wait_for(lambda: watcher.counters()["plans"] == 0, "the plan went with its controller")
    wait_for(lambda: own(watcher)[0][nl.A_DISABLED] == 0, "enabled")
    wait_for(lambda: received(1) or programs.reaction(os.getpid()).error == -errno.ENOENT, "refused")
    assert own(watcher)[0][nl.A_DISABLED] == 0
    programs.close()
    watcher.close()
    be.close()
