"""Attaches a BPF program to many places of one file, each with its cookie; closing the links detaches them.

bcc has neither cookies nor multi-links, so this calls bpf(2) itself. One multi-link (Linux 6.6) holds all places of a
file and is closed in milliseconds; before it, each place is a perf event and closing waits for a grace period each.
The structures mirror include/uapi/linux/bpf.h and perf_event.h.
"""

import ctypes
import errno
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path


_SYSCALLS = {"x86_64": (321, 298), "aarch64": (280, 241)}  # bpf, perf_event_open
_LINK_CREATE = 28
BPF_TRACE_UPROBE_MULTI = 48
BPF_TRACE_UPROBE_SESSION = 57
_BPF_PERF_EVENT = 41
_RAW_TRACEPOINT_OPEN = 17
_MULTI_RETURN = 1
_PERF_FLAG_FD_CLOEXEC = 8
_PERF_TYPE_TRACEPOINT = 2
_UPROBE_TYPE = Path("/sys/bus/event_source/devices/uprobe/type")
_UPROBE_RETURN_BIT = Path("/sys/bus/event_source/devices/uprobe/format/retprobe")
_libc = ctypes.CDLL(None, use_errno=True)


class _MultiAttr(ctypes.Structure):
    """``union bpf_attr.link_create`` with its ``uprobe_multi`` part."""

    _fields_ = (
        ("prog_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("path", ctypes.c_uint64),
        ("offsets", ctypes.c_uint64),
        ("ref_ctr_offsets", ctypes.c_uint64),
        ("cookies", ctypes.c_uint64),
        ("cnt", ctypes.c_uint32),
        ("multi_flags", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    )


class _PerfLinkAttr(ctypes.Structure):
    """``union bpf_attr.link_create`` with its ``perf_event`` part."""

    _fields_ = (
        ("prog_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("bpf_cookie", ctypes.c_uint64),
    )


class _RawTracepointAttr(ctypes.Structure):
    """``union bpf_attr.raw_tracepoint``, up to the program."""

    _fields_ = (("name", ctypes.c_uint64), ("prog_fd", ctypes.c_uint32), ("pad", ctypes.c_uint32))


class _PerfEventAttr(ctypes.Structure):
    """``struct perf_event_attr`` up to version 0, as far as a uprobe needs it."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("path", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("padding", ctypes.c_uint64 * 6),
    )


def supports_multi(program: int, attach_type: int) -> bool:
    """Tell whether ``program`` (loaded for multi-links) could be attached by one: a folder is refused as no file."""
    try:
        os.close(_multi_link(program, b"/", {0: 0}, attach_type, is_return=False))
    except OSError as error:
        return error.errno == errno.EBADF
    return True


def attach_session(program: int, path: str, places: Mapping[int, int]) -> list[int]:
    """Attach a session (Linux 6.13), which sees entries and returns; otherwise as attach_multi."""
    return [_multi_link(program, os.fsencode(path), places, BPF_TRACE_UPROBE_SESSION, is_return=False)]


def attach_multi(program: int, path: str, places: Mapping[int, int], *, is_return: bool) -> list[int]:
    """Attach to ``places`` (file offset -> cookie) of the file; returns the descriptor to close. Raises OSError."""
    return [_multi_link(program, os.fsencode(path), places, BPF_TRACE_UPROBE_MULTI, is_return=is_return)]


def attach_each(program: int, path: str, places: Mapping[int, int], *, is_return: bool) -> list[int]:
    """Do the same by one perf event and one link a place; returns 2 descriptors a place. Raises OSError."""
    descriptors: list[int] = []
    try:
        for offset, cookie in places.items():
            descriptors.append(_uprobe_event(os.fsencode(path), offset, is_return=is_return))
            descriptors.append(_link(_PerfLinkAttr(program, descriptors[-1], _BPF_PERF_EVENT, 0, cookie)))
    except OSError:
        close_all(descriptors)
        raise
    return descriptors


def attach_tracepoint(program: int, number: int) -> list[int]:
    """Attach to the tracepoint of that number; returns 2 descriptors. Raises OSError."""
    attributes = _PerfEventAttr(type=_PERF_TYPE_TRACEPOINT, size=ctypes.sizeof(_PerfEventAttr))
    attributes.config, attributes.sample_period = number, 1
    descriptors = [_open_event(attributes)]
    try:
        descriptors.append(_link(_PerfLinkAttr(program, descriptors[0], _BPF_PERF_EVENT, 0, 0)))
    except OSError:
        close_all(descriptors)
        raise
    return descriptors


def attach_raw_tracepoint(program: int, name: str) -> list[int]:
    """Attach to the tracepoint of that name, which hands over its arguments as they are; as above. Raises OSError."""
    text = ctypes.create_string_buffer(name.encode())
    return [_bpf(_RAW_TRACEPOINT_OPEN, _RawTracepointAttr(ctypes.addressof(text), program))]


def close_all(descriptors: Iterable[int]) -> None:
    """Detach, links before the events they are on."""
    for descriptor in reversed(list(descriptors)):
        os.close(descriptor)


def _multi_link(program: int, path: bytes, places: Mapping[int, int], attach_type: int, *, is_return: bool) -> int:
    name = ctypes.create_string_buffer(path)
    offsets = (ctypes.c_uint64 * len(places))(*places)
    cookies = (ctypes.c_uint64 * len(places))(*places.values())
    addresses = (ctypes.addressof(name), ctypes.addressof(offsets), 0, ctypes.addressof(cookies))
    flags = _MULTI_RETURN if is_return else 0
    return _link(_MultiAttr(program, 0, attach_type, 0, *addresses, len(places), flags))


def _link(attributes: ctypes.Structure) -> int:
    return _bpf(_LINK_CREATE, attributes)


def _bpf(command: int, attributes: ctypes.Structure) -> int:
    number, _ = _SYSCALLS[platform.machine()]
    return _checked(_libc.syscall(number, command, ctypes.byref(attributes), ctypes.sizeof(attributes)))


def _uprobe_event(path: bytes, offset: int, *, is_return: bool) -> int:
    """Open a uprobe as its perf PMU describes itself."""
    name = ctypes.create_string_buffer(path)
    bit = int(_UPROBE_RETURN_BIT.read_text().removeprefix("config:"))
    attributes = _PerfEventAttr(type=int(_UPROBE_TYPE.read_text()), size=ctypes.sizeof(_PerfEventAttr))
    attributes.config = (1 << bit) if is_return else 0
    attributes.path, attributes.offset = ctypes.addressof(name), offset
    return _open_event(attributes)


def _open_event(attributes: _PerfEventAttr) -> int:
    """Open an event of all processes (pid -1); on processor 0 by convention, BPF programs run on every one."""
    _, number = _SYSCALLS[platform.machine()]
    return _checked(_libc.syscall(number, ctypes.byref(attributes), -1, 0, -1, _PERF_FLAG_FD_CLOEXEC))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
