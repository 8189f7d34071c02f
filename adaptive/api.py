"""The server of the control socket, on the daemon's event loop. Members of the group may read, root may change."""

import contextlib
import grp
import logging
import os
import selectors
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gpsched.adaptive import protocol
from gpsched.adaptive.errors import GpschedError, UsageError


log = logging.getLogger(__name__)
Method = Callable[[dict[str, Any]], Any]
_GROUP = "gpsched"


class NotPermittedError(GpschedError):
    """The peer may read but not change. Fields: ``method``, ``uid``."""

    def __init__(self, method: str, uid: int) -> None:
        self.method, self.uid = method, uid
        super().__init__(f"user {uid} may not call {method}; run the command as root")


class SocketInUseError(GpschedError):
    """A daemon answers on the socket already. Field: ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"a daemon already answers on {path}; use it (gpsched list) or stop it first")


class ApiServer:
    """Answers requests; ``reads`` are open to everyone who can connect, ``changes`` to root alone."""

    def __init__(
        self, path: Path, selector: selectors.BaseSelector, reads: dict[str, Method], changes: dict[str, Method]
    ) -> None:
        self.path, self._selector, self._reads, self._changes = path, selector, reads, changes
        self._connections: dict[socket.socket, bytearray] = {}
        self._listener = _listen(path)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Hang up on everyone and remove the socket."""
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.unregister(self._listener)
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            connection.settimeout(1.0)  # a reader that stalls loses its connection, not the daemon its second
            self._connections[connection] = bytearray()
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(connection))

    def _read(self, connection: socket.socket) -> None:
        buffer = self._connections[connection]
        try:
            received = connection.recv(protocol.MAX_LINE)
        except OSError:
            received = b""
        buffer += received
        if not received or len(buffer) > protocol.MAX_LINE:
            self._drop(connection)
            return
        while (end := buffer.find(b"\n")) >= 0 and connection in self._connections:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            self._reply(connection, self._answer(line, _peer_uid(connection)))

    def _reply(self, connection: socket.socket, response: protocol.Response) -> None:
        try:
            connection.sendall(msgspec.json.encode(response) + b"\n")
        except OSError:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        del self._connections[connection]
        self._selector.unregister(connection)
        connection.close()

    def _answer(self, line: bytes, uid: int) -> protocol.Response:
        try:
            request = msgspec.json.decode(line, type=protocol.Request)
            result = self._find(request, uid)(request.params)
            return protocol.Response(result=msgspec.Raw(msgspec.json.encode(result)))
        except msgspec.MsgspecError as error:
            return _failure(UsageError(f"not a request: {error}"))
        except GpschedError as error:
            return _failure(error)
        except Exception as error:
            log.exception("internal error while answering")
            return protocol.Response(
                error=protocol.Failure("InternalError", f"internal error in the daemon: {error!r}", 3)
            )

    def _find(self, request: protocol.Request, uid: int) -> Method:
        if request.api != protocol.API_VERSION:
            raise UsageError(
                f"the daemon speaks API {protocol.API_VERSION}, the caller {request.api}; update the older one"
            )
        if request.method in self._reads:
            return self._reads[request.method]
        if request.method not in self._changes:
            raise UsageError(f"this daemon has no method {request.method!r}; update it")
        if uid != 0:
            raise NotPermittedError(request.method, uid)
        return self._changes[request.method]


def _failure(error: GpschedError) -> protocol.Response:
    return protocol.Response(error=protocol.Failure(type(error).__name__, str(error), error.exit_code))


def _listen(path: Path) -> socket.socket:
    """Listen on ``path``; a socket that nobody answers on is left over from a crash and is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    if path.exists():
        if _answers(path):
            raise SocketInUseError(path)
        log.info("removing the stale socket %s", path)
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    before = os.umask(0o117)  # from the first moment on: owner and group only
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    with contextlib.suppress(KeyError, PermissionError):
        os.chown(path, -1, grp.getgrnam(_GROUP).gr_gid)
    listener.listen(16)
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _peer_uid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])
