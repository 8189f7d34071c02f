"""The messages to systemd, received on a socket of our own."""

import os
import socket
from pathlib import Path

import pytest

from gpsched.adaptive.sdnotify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(tmp_path / "notify"))
    receiver.setblocking(False)
    return receiver


def _received(manager: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(manager.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_ready_reload_stop(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    notifier.ready("levels up to hold")
    notifier.reloading()
    notifier.stopping()
    ready, reloading, stopping = _received(manager)
    assert ready == "READY=1\nSTATUS=levels up to hold"
    first, second = reloading.split("\n")
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0
    assert stopping.startswith("STOPPING=1\n")


def test_the_watchdog_is_fed_twice_a_period_and_only_when_asked_for(manager: socket.socket) -> None:
    name = manager.getsockname()
    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())})
    for _ in range(5):
        notifier.alive()
    assert _received(manager) == ["WATCHDOG=1"]
    Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}).alive()
    Notifier({"NOTIFY_SOCKET": name}).alive()
    assert _received(manager) == []


def test_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0gpsched-test-{os.getpid()}")
        receiver.setblocking(False)
        Notifier({"NOTIFY_SOCKET": f"@gpsched-test-{os.getpid()}"}).ready("x")
        assert _received(receiver) == ["READY=1\nSTATUS=x"]


def test_a_manager_that_is_gone_or_none_does_no_harm(tmp_path: Path) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "none")}).ready("x")
    Notifier({}).stopping()
