"""The daemon reads the kernel's events in batches; time must never pass for a learner ahead of unread ones."""

import selectors
import time
from types import SimpleNamespace

from gpsched.adaptive.daemon import Daemon


class Ring:
    """A ring buffer into which the kernel writes on while a batch is handled."""

    def __init__(self, batches: int) -> None:
        self.left, self.unread_us = batches, 0.0

    def consume(self) -> bool:
        time.sleep(0.002)  # the batch that was there
        self.unread_us = time.monotonic_ns() / 1000  # an event that came meanwhile
        time.sleep(0.001)
        self.left -= 1
        return True


class Node:
    """Takes the time that passes for learners."""

    def __init__(self, daemon: Daemon, ring: Ring) -> None:
        self._daemon, self._ring = daemon, ring
        self.steering = SimpleNamespace(urgent=True, freezing=SimpleNamespace(wait_s=lambda: 0.0, update=lambda: None))
        self.ahead: list[float] = []

    def follow(self, read_us: float) -> None:
        self.ahead.append(read_us - self._ring.unread_us)
        self._daemon._stopping = self._ring.left <= 0

    tick = follow


def test_time_passes_only_up_to_what_was_read() -> None:
    daemon = Daemon.__new__(Daemon)
    ring = Ring(batches=5)
    daemon._stopping, daemon._probes, daemon._node = False, ring, Node(daemon, ring)
    daemon._has_read = False
    with selectors.DefaultSelector() as selector:
        daemon._loop(selector, exit_when_idle=False)
    assert len(daemon._node.ahead) >= 5
    assert max(daemon._node.ahead) < 0.0
