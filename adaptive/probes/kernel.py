"""What the programs need of the running kernel: tracefs, the pids that it reports, the offsets of its fields."""

import contextlib
import ctypes
import errno
import os
from pathlib import Path
from typing import Any

from gpsched.adaptive.probes.errors import KernelTypesMissingError, PidNamespaceError, TracefsMissingError


TRACEFS = Path("/sys/kernel/tracing")
_LEGACY_TRACEFS = Path("/sys/kernel/debug/tracing")
_INIT_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h
_BTF_KIND_STRUCT = 4
_BTF_KIND_UNION = 5
_NESTING = 4  # of unnamed structs and unions
_BTF_MEMBERS_OFFSET = 12  # sizeof(struct btf_type); struct btf_member follows: name, type, bit offset

# Macro of bpf/maps.h -> struct and member.
FIELDS = {
    "GS_TASK_SIGNAL": ("task_struct", "signal"),
    "GS_TASK_EXIT_CODE": ("task_struct", "exit_code"),
    "GS_SIGNAL_LIVE": ("signal_struct", "live"),
    "GS_TASK_FILES": ("task_struct", "files"),
    "GS_FILES_FDT": ("files_struct", "fdt"),
    "GS_FDTABLE_MAX_FDS": ("fdtable", "max_fds"),
    "GS_FDTABLE_FD": ("fdtable", "fd"),
    "GS_FILE_F_INODE": ("file", "f_inode"),
    "GS_FILE_F_PATH": ("file", "f_path"),
    "GS_INODE_I_MODE": ("inode", "i_mode"),
    "GS_PATH_DENTRY": ("path", "dentry"),
    "GS_DENTRY_D_NAME": ("dentry", "d_name"),
    "GS_QSTR_NAME": ("qstr", "name"),
}


def require_host_pids() -> None:
    """Raise PidNamespaceError when pids in the kernel are not those that this process sees."""
    if Path("/proc/self/ns/pid").stat().st_ino != _INIT_PID_NAMESPACE:
        raise PidNamespaceError


def require_tracefs() -> None:
    """Mount tracefs where it is missing; raises TracefsMissingError."""
    if any((path / "events/syscalls/sys_enter_ioctl").is_dir() for path in (_LEGACY_TRACEFS, TRACEFS)):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tracefs", bytes(TRACEFS), b"tracefs", 0, None) < 0 and ctypes.get_errno() != errno.EBUSY:
        raise TracefsMissingError(os.strerror(ctypes.get_errno()))
    if not (TRACEFS / "events/syscalls/sys_enter_ioctl").is_dir():
        raise TracefsMissingError("it has no system call events: CONFIG_FTRACE_SYSCALLS is off")


def tracepoint_id(system: str, name: str) -> int | None:
    """Return the number of a tracepoint, or None when the kernel has no such."""
    for tracefs in (TRACEFS, _LEGACY_TRACEFS):
        with contextlib.suppress(FileNotFoundError):
            return int((tracefs / "events" / system / name / "id").read_text())
    return None


def field_offsets(libbpf: Any) -> dict[str, int]:
    """Return the byte offset of each of FIELDS in the running kernel.

    ``libbpf``: a ctypes library that exports libbpf (bcc's does). Raises KernelTypesMissingError.
    """
    libbpf.btf__load_vmlinux_btf.restype = libbpf.btf__type_by_id.restype = ctypes.c_void_p
    libbpf.btf__name_by_offset.restype = ctypes.c_char_p
    handle = libbpf.btf__load_vmlinux_btf()
    if not handle or handle > 2**64 - 4096:  # NULL, or an error code as a pointer in libbpf before 1.0
        raise KernelTypesMissingError("types")
    btf = ctypes.c_void_p(handle)
    try:
        return {macro: _offset(libbpf, btf, *field) for macro, field in FIELDS.items()}
    finally:
        libbpf.btf__free(btf)


def _offset(libbpf: Any, btf: ctypes.c_void_p, struct: str, member: str) -> int:
    number = libbpf.btf__find_by_name_kind(btf, struct.encode(), _BTF_KIND_STRUCT)
    if number < 0:
        raise KernelTypesMissingError(struct)
    bits = _member_bits(libbpf, btf, number, member.encode(), _NESTING)
    if bits is None:
        raise KernelTypesMissingError(f"{struct}.{member}")
    return bits // 8


def _member_bits(libbpf: Any, btf: ctypes.c_void_p, number: int, name: bytes, depth: int) -> int | None:
    """Walk the members of a struct (include/uapi/linux/btf.h), those of structs and unions without a name included."""
    address = libbpf.btf__type_by_id(btf, number)
    info = ctypes.c_uint32.from_address(address + 4).value
    if info >> 24 & 0x1F not in (_BTF_KIND_STRUCT, _BTF_KIND_UNION) or depth == 0:
        return None
    members = (ctypes.c_uint32 * (3 * (info & 0xFFFF))).from_address(address + _BTF_MEMBERS_OFFSET)
    for own_name, type_, bits in zip(members[::3], members[1::3], members[2::3], strict=True):
        found = libbpf.btf__name_by_offset(btf, own_name)
        inner = 0 if found == name else None if found else _member_bits(libbpf, btf, type_, name, depth - 1)
        if inner is not None:
            return int(bits & 0xFFFFFF) + inner
    return None
