"""The control socket: client and server against each other, and against peers that misbehave."""

import json
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpsched.adaptive import api
from gpsched.adaptive.api import ApiServer, SocketInUseError
from gpsched.adaptive.client import Client, RemoteError
from gpsched.adaptive.errors import DaemonUnreachableError, NoGpuError
from gpsched.adaptive.model import DaemonView, Snapshot


_SNAPSHOT = Snapshot(
    time_s=1.0,
    daemon=DaemonView(
        pid=1, version="0", uptime_s=1.0, libraries=[], lost_events=3, failed_controls=0, last_failure=None
    ),
    processes=[],
)


class Served:
    """A server on a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.calls: list[dict[str, Any]] = []
        self._selector = selectors.DefaultSelector()
        changes = {"attach": self.calls.append, "detach": self._refuse, "restore": lambda _params: 1 // 0}
        self.server = ApiServer(path, self._selector, {"snapshot": lambda _params: _SNAPSHOT}, changes)
        self._stop = False
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    def _refuse(self, params: dict[str, Any]) -> None:
        raise NoGpuError(params["pid"])

    def _loop(self) -> None:
        while not self._stop:
            for key, _ in self._selector.select(0.01):
                key.data()

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        self.server.close()
        self._selector.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "s.sock"


@pytest.fixture
def served(path: Path) -> Iterator[Served]:
    served = Served(path)
    yield served
    served.close()


def test_calls_and_answers(served: Served, path: Path) -> None:
    with Client(path) as client:
        assert client.snapshot() == _SNAPSHOT
        client.attach(5, "lc", slo_us=1.5, tenant="t")
    assert served.calls == [{"pid": 5, "class": "lc", "slo_us": 1.5, "tenant": "t", "starting": False}]


def test_errors_keep_their_message_and_exit_code(served: Served, path: Path) -> None:
    with Client(path) as client:
        with pytest.raises(RemoteError, match="process 9 has no GPU context") as refused:
            client.detach(9)
        assert (refused.value.kind, refused.value.exit_code) == ("NoGpuError", 1)
        with pytest.raises(RemoteError, match="internal error") as broken:
            client.restore()
        assert broken.value.exit_code == 3
        assert client.snapshot() == _SNAPSHOT  # the connection still serves


def test_only_root_may_change(served: Served, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_peer_uid", lambda _connection: 1000)
    with Client(path) as client:
        assert client.snapshot() == _SNAPSHOT
        with pytest.raises(RemoteError, match="as root"):
            client.attach(5, "lc")
    assert served.calls == []


def test_the_socket_is_closed_to_others(served: Served, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o660


def test_a_second_server_is_refused_and_a_stale_socket_replaced(served: Served, path: Path) -> None:
    with pytest.raises(SocketInUseError, match="already answers"):
        ApiServer(path, selectors.DefaultSelector(), {}, {})
    stale = path.with_name("stale.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stale))
    again = Served(stale)
    try:
        with Client(stale) as client:
            assert client.snapshot() == _SNAPSHOT
    finally:
        again.close()


def test_no_daemon_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachableError, match="gpsched daemon") as caught:
        Client(tmp_path / "none.sock")
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("answer", [b"rubbish\n", b"", b"[1,2]\n", b'{"api": "x"}\n'])
def test_a_server_that_answers_rubbish_is_unreachable(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def serve() -> None:
            peer, _ = listener.accept()
            peer.recv(1000)
            peer.sendall(answer)
            peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with Client(path, timeout_s=5) as client, pytest.raises(DaemonUnreachableError):
            client.snapshot()
        thread.join()


def test_another_api_version_is_said(served: Served, path: Path) -> None:
    response = _raw(path, json.dumps({"method": "snapshot", "api": 99}).encode() + b"\n")
    assert "API 1, the caller 99" in response["error"]["message"]
    assert "update it" in _raw(path, b'{"method": "fly"}\n')["error"]["message"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(line=st.binary(min_size=1, max_size=300).filter(lambda line: b"\n" not in line))
def test_any_line_gets_an_answer(served: Served, path: Path, line: bytes) -> None:
    response = _raw(path, line + b"\n")
    assert response["error"]["exit_code"] == 2


def test_a_line_without_end_is_cut_off(served: Served, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(5)
        peer.connect(str(path))
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            peer.sendall(b"x" * (1 << 24))
    with Client(path) as client:
        assert client.snapshot() == _SNAPSHOT


def _raw(path: Path, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(5)
        peer.connect(str(path))
        peer.sendall(line)
        return msgspec.json.decode(peer.makefile("rb").readline(), type=dict[str, Any])
