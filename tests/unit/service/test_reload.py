"""A reload as the service manager sees it: READY comes when the new settings are in force."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpsched.adaptive.config import Config, Timeslice
from gpsched.adaptive.doctor.host import Host
from gpsched.adaptive.errors import ConfigError
from gpsched.adaptive.model import Snapshot
from gpsched.adaptive.service import Service


_NEW = Config(timeslice=Timeslice(be_us=7))


class _Rig:
    """A service whose messages are received, and whose configuration is what the test says."""

    def __init__(self, directory: Path, manager: socket.socket) -> None:
        self._manager = manager
        self.read: Config | ConfigError = _NEW
        self.heard: list[list[str]] = []  # what the manager had heard when settings were applied
        self.applied: list[Config] = []
        self.service = Service(Config(), Host(root=directory, state_dir=directory), self._reader)
        self.service.ready()
        self.received()

    def received(self) -> list[str]:
        """First words of the messages since the last call."""
        words = []
        while True:
            try:
                words.append(self._manager.recv(4096).decode().split("=")[0])
            except BlockingIOError:
                return words

    def reload(self) -> None:
        self.service.request_reload()
        self.tick()

    def tick(self) -> None:
        self.service.tick(_nobody_asks, self._apply)

    def _reader(self) -> Config:
        if isinstance(self.read, ConfigError):
            raise self.read
        return self.read

    def _apply(self, config: Config) -> None:
        self.heard.append(self.received())
        self.applied.append(config)


def _nobody_asks() -> Snapshot:
    raise AssertionError("no metrics are given away")


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Rig]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setitem(os.environ, "NOTIFY_SOCKET", str(tmp_path / "notify"))
        made = _Rig(tmp_path, manager)
        yield made
        made.service.close()


def test_ready_comes_after_the_new_settings_are_applied(rig: _Rig) -> None:
    rig.reload()
    assert rig.applied == [_NEW]
    assert rig.heard == [["RELOADING"]]
    assert rig.received() == ["READY"]
    rig.tick()
    assert rig.applied == [_NEW]


def test_a_wrong_configuration_is_told_and_not_applied(rig: _Rig) -> None:
    rig.read = ConfigError("config.toml", "timeslise", "unknown key")
    rig.reload()
    assert rig.applied == []
    assert rig.received() == ["RELOADING", "READY"]
    assert "timeslise" in (rig.service.config_error or "")
    rig.read = _NEW
    rig.reload()
    assert rig.applied == [_NEW]
    assert rig.service.config_error is None
