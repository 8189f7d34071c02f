"""Loads bpf/module_react.bpf.c with libbpf: reactions to a trigger inside the kernel, without user space.

bcc cannot call a module's kernel functions, hence libbpf.so.1 by ctypes (a dozen functions of its stable API). Which
programs the kernel takes is found by trying: fexit from 6.1 on, uprobe from 6.12 on.
"""

import ctypes
import errno
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpsched.adaptive.errors import UnsupportedHostError


_VALUE = struct.Struct("=IIIi")  # struct gs_reaction


class Reaction(NamedTuple):
    """What the kernel did for a process: plan, how often it was begun and ended, last refusal (negative errno)."""

    plan: int
    begun: int
    ended: int
    error: int


class ReactionsUnsupportedError(UnsupportedHostError):
    """This kernel, or the loaded module, cannot react in the kernel. Field: ``reason``."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"reactions in the kernel: {reason}", "plans are begun by the actuator instead")


class _TestRun(ctypes.Structure):
    """struct bpf_test_run_opts of libbpf 1.x, as far as it is used."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_void_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


def load_library() -> ctypes.CDLL:
    """Return libbpf with the types that ctypes cannot guess. Raises ReactionsUnsupportedError without libbpf 1.x."""
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise ReactionsUnsupportedError("libbpf 1.x is not installed") from error
    for function in (
        library.bpf_object__open,
        library.bpf_object__find_program_by_name,
        library.bpf_program__attach,
        library.bpf_program__attach_uprobe,
    ):
        function.restype = ctypes.c_void_p
    library.bpf_program__attach_uprobe.argtypes = (
        ctypes.c_void_p,
        ctypes.c_bool,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_size_t,
    )
    return library


def _errno() -> str:
    return errno.errorcode.get(ctypes.get_errno(), "?")


def _key(pid: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack("=I", pid), 4)


class Reactions:
    """The loaded programs. ``program`` is the compiled file (make -C kmod_patches bpf); close() detaches and unloads.

    Raises ReactionsUnsupportedError when not even the fexit program loads. ``uprobes`` tells whether calls of a library
    can be triggers too.
    """

    def __init__(self, program: Path, *, quiet: bool = True) -> None:
        self._bpf = load_library()
        if quiet:
            self._bpf.libbpf_set_print(None)
        self._links: list[int] = []
        self.uprobes = True
        self._object = self._load(program)
        if not self._object:
            self.uprobes = False
            self._object = self._load(program, without=("begin_on_call", "end_on_return"))
        if not self._object:
            raise ReactionsUnsupportedError(f"the kernel refused the programs ({_errno()})")
        self._plans = self._bpf.bpf_object__find_map_fd_by_name(ctypes.c_void_p(self._object), b"plans")

    def _load(self, program: Path, without: tuple[str, ...] = ()) -> int:
        if not program.is_file():
            raise ReactionsUnsupportedError(f"{program} is missing; build it with: make -C kmod_patches bpf")
        loaded = self._bpf.bpf_object__open(os.fsencode(program))
        if not loaded:
            return 0
        for name in without:
            self._bpf.bpf_program__set_autoload(self._program(loaded, name), ctypes.c_bool(False))
        if self._bpf.bpf_object__load(ctypes.c_void_p(loaded)):
            self._bpf.bpf_object__close(ctypes.c_void_p(loaded))
            return 0
        return int(loaded)

    def _program(self, loaded: int, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._bpf.bpf_object__find_program_by_name(ctypes.c_void_p(loaded), name.encode()))

    def _keep(self, link: int | None, what: str) -> None:
        if not link:
            raise ReactionsUnsupportedError(f"cannot attach to {what} ({_errno()})")
        self._links.append(link)

    def begin_on_receive(self) -> None:
        """Begin a process's plan whenever one of its socket reads returns data."""
        link = self._bpf.bpf_program__attach(self._program(self._object, "begin_on_receive"))
        self._keep(link, "sock_recvmsg")

    def begin_on_call(self, library: Path, offset: int) -> None:
        """Begin a process's plan when it calls the function at a file offset of a library, for all processes."""
        self._uprobe("begin_on_call", library, offset, at_return=False)

    def end_on_return(self, library: Path, offset: int) -> None:
        """End a process's plan when that function returns."""
        self._uprobe("end_on_return", library, offset, at_return=True)

    def _uprobe(self, name: str, library: Path, offset: int, *, at_return: bool) -> None:
        if not self.uprobes:
            raise ReactionsUnsupportedError("uprobes may call the module from kernel 6.12 on")
        link = self._bpf.bpf_program__attach_uprobe(
            self._program(self._object, name), at_return, -1, os.fsencode(library), offset
        )
        self._keep(link, f"{library}+{offset:#x}")

    def set_plan(self, pid: int, plan: int) -> None:
        """Let a process's triggers begin a plan."""
        value = ctypes.create_string_buffer(_VALUE.pack(plan, 0, 0, 0), _VALUE.size)
        if self._bpf.bpf_map_update_elem(self._plans, _key(pid), value, ctypes.c_uint64(0)):
            raise ReactionsUnsupportedError("the map of plans is full")

    def forget(self, pid: int) -> None:
        """Stop reacting to a process."""
        self._bpf.bpf_map_delete_elem(self._plans, _key(pid))

    def reaction(self, pid: int) -> Reaction | None:
        """Return what was done for a process; None when there is no plan for it."""
        value = ctypes.create_string_buffer(_VALUE.size)
        if self._bpf.bpf_map_lookup_elem(self._plans, _key(pid), value):
            return None
        return Reaction(*_VALUE.unpack(value.raw))

    def try_plan(self, plan: int) -> int:
        """Begin and end a plan from a sleepable BPF program; return 0 or the module's negative errno."""
        context = ctypes.create_string_buffer(struct.pack("=I", plan), 4)
        run = _TestRun(sz=ctypes.sizeof(_TestRun), ctx_in=ctypes.addressof(context), ctx_size_in=4)
        fd = self._bpf.bpf_program__fd(self._program(self._object, "try_plan"))
        failed = self._bpf.bpf_prog_test_run_opts(fd, ctypes.byref(run))
        return failed or ctypes.c_int32(run.retval).value

    def close(self) -> None:
        """Detach and unload."""
        for link in self._links:
            with suppress(OSError):
                self._bpf.bpf_link__destroy(ctypes.c_void_p(link))
        self._links.clear()
        if self._object:
            self._bpf.bpf_object__close(ctypes.c_void_p(self._object))
            self._object = 0
