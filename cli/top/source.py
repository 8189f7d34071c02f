"""Where ``top`` takes its snapshots from: a daemon, which may go away and come back, or a record."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from gpsched.adaptive.client import Client, RemoteError
from gpsched.adaptive.errors import DaemonUnreachableError, GpschedError
from gpsched.adaptive.knobs import Value
from gpsched.adaptive.model import Class, ProcessView, Snapshot
from gpsched.adaptive.record import Record


_T = TypeVar("_T")


class NotLiveError(GpschedError):
    """A record cannot be acted on."""

    def __init__(self) -> None:
        super().__init__("this is a record; nothing can be changed in it")


class Source(Protocol):
    """``read`` may block and runs off the user interface's thread; ``step`` moves in a record."""

    @property
    def label(self) -> str: ...  # noqa: D102
    def read(self) -> Snapshot: ...  # noqa: D102
    def step(self, by: int) -> None: ...  # noqa: D102
    def attach(self, pid: int, class_: Class, like: ProcessView | None = None) -> None: ...  # noqa: D102
    def detach(self, pid: int) -> None: ...  # noqa: D102
    def set(self, changes: dict[str, dict[str, Any]]) -> None: ...  # noqa: D102
    def pin(self, knob: str, value: Value) -> None: ...  # noqa: D102
    def unpin(self, knob: str) -> None: ...  # noqa: D102


class Live:
    """A daemon. Every call connects anew when the earlier connection broke."""

    label = "live"

    def __init__(self, socket: str, *, timeout_s: float = 5.0) -> None:
        self._path, self._timeout_s = socket, timeout_s
        self._client: Client | None = None

    def read(self) -> Snapshot:
        """Ask for a snapshot; raises ``DaemonUnreachableError`` or ``RemoteError``."""
        return self._with(Client.snapshot)

    def step(self, by: int) -> None:
        """The present cannot be moved."""

    def attach(self, pid: int, class_: Class, like: ProcessView | None = None) -> None:
        """Give the process a class, and what it had besides when it is ``like`` this; raises ``GpschedError``."""
        kept: dict[str, Any] = {}
        if like is not None:
            kept = {"tenant": like.tenant, "priority": like.priority, "weight": like.weight}
            kept |= {"slo_us": like.slo_us} if class_ == "lc" else {}
        self._with(lambda client: client.attach(pid, class_, **kept))

    def detach(self, pid: int) -> None:
        """Leave the process alone; raises ``GpschedError``."""
        self._with(lambda client: client.detach(pid))

    def set(self, changes: dict[str, dict[str, Any]]) -> None:
        """Change settings until the next reload; raises ``GpschedError``."""
        self._with(lambda client: client.set(changes))

    def pin(self, knob: str, value: Value) -> None:
        """Fix a knob on all GPUs; raises ``GpschedError``."""
        self._with(lambda client: client.pin(knob, value))

    def unpin(self, knob: str) -> None:
        """Open a knob to the tuner again; raises ``GpschedError``."""
        self._with(lambda client: client.unpin(knob))

    def close(self) -> None:
        """Hang up."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(OSError):
                client.close()

    def _with(self, call: Callable[[Client], _T]) -> _T:
        if self._client is None:
            self._client = Client(self._path, timeout_s=self._timeout_s)
        try:
            return call(self._client)
        except RemoteError:
            raise
        except DaemonUnreachableError:
            self.close()
            raise


class Replay:
    """A record: each ``read`` is the next snapshot, until the last; ``step`` goes on or back from there."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._position = -1

    @property
    def label(self) -> str:
        """Where in the record."""
        cut = "" if self._record.complete else " (cut)"
        return f"replay {self._position + 1}/{len(self._record.snapshots)}{cut}"

    def read(self) -> Snapshot:
        """The next snapshot, or again the last."""
        self.step(1)
        return self._record.snapshots[self._position]

    def step(self, by: int) -> None:
        """Move; both ends hold."""
        self._position = min(max(self._position + by, 0), len(self._record.snapshots) - 1)

    def attach(self, pid: int, class_: Class, like: ProcessView | None = None) -> None:  # noqa: ARG002 - Source's form
        """Raise ``NotLiveError``."""
        raise NotLiveError

    def detach(self, pid: int) -> None:  # noqa: ARG002 - Source's form
        """Raise ``NotLiveError``."""
        raise NotLiveError

    def set(self, changes: dict[str, dict[str, Any]]) -> None:  # noqa: ARG002 - Source's form
        """Raise ``NotLiveError``."""
        raise NotLiveError

    def pin(self, knob: str, value: Value) -> None:  # noqa: ARG002 - Source's form
        """Raise ``NotLiveError``."""
        raise NotLiveError

    def unpin(self, knob: str) -> None:  # noqa: ARG002 - Source's form
        """Raise ``NotLiveError``."""
        raise NotLiveError
