"""Compiles and loads the BPF programs with bcc.

bcc is imported only here and only when it is needed: it brings LLVM (about 100 MiB).
"""

import contextlib
import ctypes
import os
import select
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from typing import Any

from gpsched.adaptive.probes import kernel, links
from gpsched.adaptive.probes.errors import BccMissingError, BpfRefusedError, NotPrivilegedError
from gpsched.adaptive.probes.events import EVENT_SIZE
from gpsched.adaptive.probes.headers import kernel_source
from gpsched.adaptive.probes.wakes import HOOKS, WAKING, WakeHooks


SOURCES = (
    "events.h",
    "maps.h",
    "waits.h",
    "wake.bpf.c",
    "waking.bpf.c",
    "pause.bpf.c",
    "cuda.bpf.c",
    "rm.bpf.c",
    "process.bpf.c",
)
RING_PAGES = 256  # 1 MiB: 14,500 events, 0.1 s of the busiest process measured
FAST_PAGES = 16  # 64 KiB: 900 events, 90 ms of a storm of 10,000 triggers a second
MAX_PROCESSES = 4096
_KPROBE = 2  # BPF_PROG_TYPE_KPROBE, which uprobes share
_TRACEPOINT, _RAW_TRACEPOINT = 5, 17  # BPF_PROG_TYPE_*
BATCH = 4096  # events taken before others on the loop have their turn

Attach = Callable[..., list[int]]


def import_bcc() -> Any:
    """Return the module bcc; raises BccMissingError when there is none or another package has its name."""
    try:
        import bcc
    except (ImportError, OSError) as error:
        raise BccMissingError(None) from error
    if not hasattr(getattr(bcc, "BPF", None), "load_func"):
        raise BccMissingError(getattr(bcc, "__file__", None))
    return bcc


class Program:
    """The loaded module: its maps, its ring buffer, its programs for uprobes, its hooks for ``wakes``."""

    def __init__(self, ring_pages: int = RING_PAGES, max_processes: int = MAX_PROCESSES) -> None:
        """Compile and load; takes about 1 s. Raises UnsupportedHostError."""
        if os.geteuid() != 0:
            raise NotPrivilegedError
        kernel.require_host_pids()
        kernel.require_tracefs()
        bcc = import_bcc()
        settings = {"GS_RING_PAGES": ring_pages, "GS_FAST_PAGES": FAST_PAGES, "GS_MAX_PROCESSES": max_processes}
        settings |= kernel.field_offsets()
        self._bpf = _compile(bcc, settings)
        try:
            self._uprobes = self._load_uprobes()
            self._hint = self._load_hint()
            self.wakes = WakeHooks(self._load_wakes())
            self._records: list[bytes] = []
            self._bpf[b"events"].open_ring_buffer(self._take)
            # By edges: what came without a wake-up would make the descriptor readable again, right after each poll.
            self._ready = select.epoll()
            self._ready.register(self._bpf[b"events"].map_fd, select.EPOLLIN | select.EPOLLET)
        except BaseException:
            self._bpf.cleanup()
            raise
        bcc.BPF.free_bcc_memory(self._bpf)

    def _load_uprobes(self) -> list[tuple[int, Attach]]:
        """Load the best form the kernel has: a session, multi-links, or a perf event for each place."""
        session = self._load_multi(b"cuda_session", links.BPF_TRACE_UPROBE_SESSION)
        if session is not None:
            return [(session, links.attach_session)]
        ways = ((b"cuda_enter", False), (b"cuda_return", True))
        multi = [self._load_multi(name, links.BPF_TRACE_UPROBE_MULTI) for name, _ in ways]
        attach = links.attach_each if None in multi else links.attach_multi
        programs = [self._load(name) if None in multi else self._bpf.funcs[name].fd for name, _ in ways]
        return [(fd, partial(attach, is_return=is_return)) for fd, (_, is_return) in zip(programs, ways, strict=True)]

    def _load_hint(self) -> tuple[int, Attach]:
        multi = self._load_multi(b"hint_enter", links.BPF_TRACE_UPROBE_MULTI)
        if multi is not None:
            return multi, partial(links.attach_multi, is_return=False)
        return self._load(b"hint_enter"), partial(links.attach_each, is_return=False)

    def _load_wakes(self) -> dict[str, int]:
        programs = {name: self._load(name.encode(), type_=_TRACEPOINT) for name in HOOKS}
        return programs | {WAKING: self._load(WAKING.encode(), type_=_RAW_TRACEPOINT)}

    def _load_multi(self, name: bytes, attach_type: int) -> int | None:
        """A kernel may accept an attach type that it does not know and refuse only the link, hence the trial."""
        try:
            program = self._load(name, attach_type)
        except (BpfRefusedError, TypeError):  # TypeError: bcc of Ubuntu 22.04 (0.18) takes no attach types
            return None
        return program if links.supports_multi(program, attach_type) else None

    def _load(self, name: bytes, attach_type: int | None = None, type_: int = _KPROBE) -> int:
        earlier = self._bpf.funcs.pop(name, None)
        if earlier:
            os.close(earlier.fd)
        with _diagnosis():
            return int(self._bpf.load_func(name, type_, *(() if attach_type is None else (None, attach_type))).fd)

    def attach(self, path: str, places: dict[int, int]) -> list[int]:
        """Probe ``places`` (offset -> cookie) of a file; returns what to close. Raises OSError."""
        descriptors: list[int] = []
        try:
            for program, attach in self._uprobes:
                descriptors += attach(program, path, places)
        except OSError:
            links.close_all(descriptors)
            raise
        return descriptors

    def attach_hint(self, path: str, offset: int) -> list[int]:
        """Probe the function of explicit hints at a file offset; returns what to close. Raises OSError."""
        program, attach = self._hint
        return attach(program, path, {offset: 0})

    def map(self, name: str) -> Any:
        """Return a bcc table of bpf/maps.h."""
        return self._bpf[name.encode()]

    @property
    def ready_fd(self) -> int:
        """Descriptor that is readable when the kernel has woken the reader since the last ``poll``."""
        return self._ready.fileno()

    def poll(self, timeout_ms: int) -> list[bytes]:
        """Wait up to ``timeout_ms`` until a reader is wanted; return the records, at most ``BATCH`` at a time."""
        self._ready.poll(timeout_ms / 1000)
        self._bpf.ring_buffer_consume()
        records, self._records = self._records, []
        return records

    def _take(self, _context: Any, data: int, size: int) -> int:
        """Called by libbpf for each record; a negative value ends its round."""
        self._records.append(ctypes.string_at(data, size))
        return -1 if len(self._records) >= BATCH else 0

    def close(self) -> None:
        """Unload programs and maps. Idempotent."""
        self.wakes.close()
        self._ready.close()
        self._bpf.cleanup()


def _source() -> str:
    folder = resources.files("gpsched.bpf")
    return "\n".join(
        line for name in SOURCES for line in (folder / name).read_text().splitlines() if 'include "' not in line
    )


def _compile(bcc: Any, settings: dict[str, int]) -> Any:
    flags = [f"-D{name}={value}" for name, value in settings.items()]
    with _diagnosis(), _headers():
        return bcc.BPF(text=_source().encode(), cflags=[*flags, "-Werror=implicit-function-declaration"])


@contextlib.contextmanager
def _headers() -> Iterator[None]:
    """Tell bcc where the headers are, for as long as it compiles."""
    tree = kernel_source()
    before = os.environ.get("BCC_KERNEL_SOURCE")
    if tree is None or before:
        yield
        return
    os.environ["BCC_KERNEL_SOURCE"] = str(tree)
    try:
        yield
    finally:
        del os.environ["BCC_KERNEL_SOURCE"]


@contextlib.contextmanager
def _diagnosis() -> Iterator[None]:
    """Bcc's compiler and the verifier write to descriptor 2: keep it for the error, off the user's terminal."""
    saved = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        except Exception as error:
            if type(error) is not Exception:  # bcc raises bare Exception
                raise
            written.seek(0)
            raise BpfRefusedError(_summary(str(error), written.read().decode(errors="replace"))) from error
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def _summary(error: str, output: str) -> str:
    """The exception's text, and the first complaint of the compiler or the last line of the verifier."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaint = next((line for line in lines if "error:" in line), lines[-1] if lines else "")
    return f"{error}: {complaint}" if complaint else error


assert EVENT_SIZE % 8 == 0, "ring buffer records are aligned to 8 bytes"
