"""Tells systemd how the daemon is. Protocol: sd_notify(3); without NOTIFY_SOCKET nothing is sent."""

import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """Sends states to the service manager that started this process."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        period_us = environment.get("WATCHDOG_USEC", "") if for_us else ""
        self._watchdog_s = int(period_us) / 2e6 if period_us.isdecimal() else None  # twice in each period
        self._next = 0.0

    def starting(self, status: str) -> None:
        """What takes so long."""
        self._send(f"STATUS={status}")

    def ready(self, status: str) -> None:
        """Requests are answered."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """The configuration is read again; ``ready`` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Settings are being restored."""
        self._send("STOPPING=1\nSTATUS=restoring all settings")

    def alive(self) -> None:
        """Keep the watchdog quiet; call it often, it sends what is needed."""
        now = time.monotonic()
        if self._watchdog_s is not None and now >= self._next:
            self._next = now + self._watchdog_s
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        """Best effort: a manager that does not listen must not stop the daemon."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1.0)
                sender.sendto(message.encode(), self._address)
        except OSError:
            return
