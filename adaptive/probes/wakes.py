"""Hooks the system calls that threads wait in, and their being woken: only while a latency-critical process is managed.

Each hook costs every process of the machine at that system call or wake-up (docs/bpf.md), so there are none without
need.
"""

import logging
import threading
from collections.abc import Mapping

from gpsched.adaptive.probes import kernel, links


log = logging.getLogger(__name__)

# Program of bpf/wake.bpf.c -> system calls. An architecture lacks some (poll, select and others on arm64).
HOOKS: dict[str, tuple[str, ...]] = {
    "wake_read": ("read", "readv"),
    "wake_receive": ("recvfrom", "recvmsg"),
    "wake_receive_many": ("recvmmsg",),
    "wake_accept": ("accept", "accept4"),
    "wake_epoll": ("epoll_wait", "epoll_pwait"),
    "wake_epoll_pwait2": ("epoll_pwait2",),
    "wake_poll": ("poll",),
    "wake_select": ("ppoll", "select", "pselect6"),
    "wake_uring": ("io_uring_enter",),
    "wake_sleep": ("nanosleep", "clock_nanosleep"),
    "wake_futex": ("futex",),
}


WAKING = "wake_waking"
_WAKE_UP = "sched_waking"


class WakeHooks:
    """Hooks all calls and wake-ups while ``want`` says so; ``programs``: name of bpf/wake*.bpf.c -> descriptor.

    On a thread of its own, and some time after the last process: unhooking takes a second of grace periods.
    """

    LINGER_S = 5.0

    def __init__(self, programs: Mapping[str, int]) -> None:
        self._programs = programs
        self._descriptors: list[int] = []
        self._wanted = self._attached = self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="gpsched-wakes", daemon=True)
        self._thread.start()

    def want(self, wanted: bool) -> None:
        """Say whether any process needs the hooks."""
        with self._changed:
            self._wanted = wanted
            self._changed.notify_all()

    def attached(self) -> bool:
        """Whether the calls are hooked."""
        return self._attached

    def wait(self, timeout_s: float) -> bool:
        """Wait until the calls are hooked, if they are wanted and can be; returns False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._attached or self._closing or not self._wanted, timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Unhook; bounded, the end of this process completes it. Idempotent."""
        with self._changed:
            self._closing, self._wanted = True, False
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._closing:
            self._wait_for(wanted=True)
            if self._wanted and self._hook():
                self._wait_for(wanted=False)
                while not self._closing and self._wait_for(wanted=True, timeout_s=self.LINGER_S):
                    self._wait_for(wanted=False)
                self._unhook()

    def _wait_for(self, *, wanted: bool, timeout_s: float | None = None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._closing or self._wanted is wanted, timeout_s)

    def _hook(self) -> bool:
        """Give up for good when the kernel refuses: then only launches announce bursts."""
        try:
            for name, calls in HOOKS.items():
                for call in calls:
                    self._attach(name, call)
            self._attach_waking()
        except OSError as error:
            log.warning("no wakes are seen, only launches: the kernel refuses tracepoints (%s)", error)
            self._closing = True
        self._set(attached=not self._closing)
        return self._attached or self._unhook()

    def _attach(self, name: str, call: str) -> None:
        number = kernel.tracepoint_id("syscalls", f"sys_exit_{call}")
        if number is not None:
            self._descriptors += links.attach_tracepoint(self._programs[name], number)

    def _attach_waking(self) -> None:
        """Without it services are announced a little later, by the returns."""
        try:
            self._descriptors += links.attach_raw_tracepoint(self._programs[WAKING], _WAKE_UP)
        except OSError as error:
            log.warning(
                "threads are not heard of when they are being woken: the kernel refuses %s (%s)", _WAKE_UP, error
            )

    def _unhook(self) -> bool:
        links.close_all(self._descriptors)
        self._descriptors = []
        self._set(attached=False)
        return False

    def _set(self, *, attached: bool) -> None:
        with self._changed:
            self._attached = attached
            self._changed.notify_all()
