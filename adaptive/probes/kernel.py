"""What the programs need of the running kernel: tracefs, the pids that it reports, the offsets of its fields."""

import contextlib
import ctypes
import errno
import os
from pathlib import Path

from gpsched.adaptive.probes.btf import Btf
from gpsched.adaptive.probes.errors import KernelTypesMissingError, PidNamespaceError, TracefsMissingError


TRACEFS = Path("/sys/kernel/tracing")
_LEGACY_TRACEFS = Path("/sys/kernel/debug/tracing")
_INIT_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h
TYPES = Path("/sys/kernel/btf/vmlinux")

# Macro of bpf/maps.h -> struct and member.
FIELDS = {
    "GS_TASK_SIGNAL": ("task_struct", "signal"),
    "GS_TASK_PID": ("task_struct", "pid"),
    "GS_TASK_TGID": ("task_struct", "tgid"),
    "GS_TASK_STACK": ("task_struct", "stack"),
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


def field_offsets(types: Path = TYPES) -> dict[str, int]:
    """Return the byte offset of each of FIELDS in the running kernel. Raises KernelTypesMissingError."""
    try:
        btf = Btf(types.read_bytes(), {struct for struct, _ in FIELDS.values()})
    except (OSError, ValueError) as error:
        raise KernelTypesMissingError("types") from error
    return {macro: _offset(btf, *field) for macro, field in FIELDS.items()}


def _offset(btf: Btf, struct: str, member: str) -> int:
    offset = btf.offset(struct, member)
    if offset is None:
        raise KernelTypesMissingError(f"{struct}.{member}")
    return offset
