"""Gives metrics away: an HTTP endpoint for Prometheus and a file for node_exporter. Both are off by default.

The daemon's loop puts a snapshot; the endpoint's thread only reads the last one, so a slow scraper delays nothing.
"""

import logging
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from gpsched.adaptive.config import Metrics
from gpsched.adaptive.model import Snapshot


if TYPE_CHECKING:
    from gpsched.adaptive.metrics import SnapshotCollector

log = logging.getLogger(__name__)
_EVERY_S = 1.0
_STALE_S = 10.0


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Silent(WSGIRequestHandler):
    timeout = 5.0

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Scrapes are no events."""


class Publisher:
    """``configure`` may be called again; a place that cannot be used is logged and left out."""

    def __init__(self) -> None:
        self._settings = Metrics()
        self._collector: SnapshotCollector | None = None
        self._server: _Server | None = None
        self._next = self._next_file = self._put = 0.0

    def configure(self, settings: Metrics) -> None:
        """Open the endpoint and the file that ``settings`` name, close others."""
        if settings.listen != self._settings.listen:
            self._close_server()
        self._settings = settings
        if settings.listen or settings.textfile:
            from gpsched.adaptive.metrics import SnapshotCollector

            self._collector = self._collector or SnapshotCollector()
            if settings.address and self._server is None:
                self._server = self._listen(*settings.address)
        else:
            self._collector = None

    @property
    def port(self) -> int | None:
        """Where the endpoint listens; None when it does not."""
        return self._server.server_port if self._server else None

    def tick(self, snapshot: Callable[[], Snapshot]) -> None:
        """Take a snapshot when one is due; costs nothing when metrics are off."""
        now = time.monotonic()
        if self._collector is None or now < self._next:
            return
        self._next, self._put = now + _EVERY_S, now
        self._collector.snapshot = snapshot()
        if self._settings.textfile and now >= self._next_file:
            self._next_file = now + self._settings.textfile_every_s
            self._write(Path(self._settings.textfile))

    def close(self) -> None:
        """Close the endpoint and remove the file, which would otherwise be read as the present."""
        self._close_server()
        if self._settings.textfile:
            Path(self._settings.textfile).unlink(missing_ok=True)

    def _write(self, path: Path) -> None:
        """Renamed into place, so that a reader never sees half of it."""
        from prometheus_client.exposition import generate_latest

        assert self._collector is not None
        spare = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            spare.write_bytes(generate_latest(self._collector))
            spare.rename(path)
        except OSError as error:
            log.warning("cannot write metrics to %s: %s", path, error.strerror)

    def _listen(self, host: str, port: int) -> _Server | None:
        kind = _Server6 if ":" in host else _Server
        try:
            server = kind((host, port), _Silent)
        except OSError as error:
            log.warning("no metrics on %s: %s", self._settings.listen, error.strerror)
            return None
        server.set_app(self._answer)
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        return server

    def _answer(self, environment: dict[str, Any], start: Any) -> Iterable[bytes]:
        """The WSGI application: /metrics, and /healthz, which fails once the loop stands still."""
        from prometheus_client import make_wsgi_app

        if environment["PATH_INFO"] == "/healthz":
            alive = time.monotonic() - self._put < _STALE_S
            start("200 OK" if alive else "503 Service Unavailable", [("Content-Type", "text/plain")])
            return [b"ok\n" if alive else b"the daemon's loop stands still\n"]
        if environment["PATH_INFO"] != "/metrics":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"see /metrics\n"]
        assert self._collector is not None
        answer: Iterable[bytes] = make_wsgi_app(self._collector)(environment, start)
        return answer

    def _close_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
