"""Other systems as arms: what goes before the programs' commands and into their environment, as data.

A peer is one TOML file: ``title``, ``server`` (a command that must run beside the programs), and for ``lc`` and ``be``
a ``prefix`` and an ``environment``.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpsched.bench import toml
from gpsched.bench.errors import ProgramFailedError, ProgramMissingError
from gpsched.bench.kit import Wrap


_SERVER_START_S = 2.0
_SERVER_END_S = 10.0


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One other system."""

    title: str
    server: list[str] = []
    lc: Wrap = Wrap()
    be: Wrap = Wrap()


def load(path: Path) -> tuple[str, Peer]:
    """Read a peer's file; its name is the file's. Raises ``ConfigError``."""
    return path.stem, toml.load(path, Peer)


@contextmanager
def serving(peer: Peer) -> Iterator[None]:
    """Have the peer's server run; raises ``ProgramMissingError``, or ``ProgramFailedError`` when it ends at once."""
    if not peer.server:
        yield
        return
    try:
        server = subprocess.Popen(peer.server, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    except OSError as error:
        raise ProgramMissingError(peer.server[0]) from error
    try:
        time.sleep(_SERVER_START_S)
        if server.poll() is not None:
            raise ProgramFailedError(peer.server[0], "the peer's server ended at once", server.returncode)
        yield
    finally:
        server.terminate()
        try:
            server.wait(_SERVER_END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
