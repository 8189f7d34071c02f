"""The client of the daemon's control socket: what the CLI, the benchmark and the tuner use."""

import socket
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from gpsched.adaptive import paths, protocol
from gpsched.adaptive.errors import DaemonUnreachableError, GpschedError
from gpsched.adaptive.hints.model import HintsReport
from gpsched.adaptive.knobs import SettingsView, TuneParams, Value
from gpsched.adaptive.model import Class, SettingCheck, Snapshot


if TYPE_CHECKING:
    from gpsched.adaptive.config import Config
    from gpsched.adaptive.measure import Measurement

_T = TypeVar("_T")
_USUAL = {"priority": 0, "weight": 1.0}


class RemoteError(GpschedError):
    """The daemon refused a call. Fields: ``kind`` (the error's class there) and its own ``exit_code``."""

    def __init__(self, failure: protocol.Failure) -> None:
        self.kind, self.exit_code = failure.kind, failure.exit_code
        super().__init__(failure.message)


class Client:
    """One connection. Every call is answered before the next; ``timeout_s`` bounds each."""

    def __init__(self, path: Path | str | None = None, *, timeout_s: float = 30.0) -> None:
        self.path = Path(path) if path else paths.socket()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(self.path))
        except OSError as error:
            self._socket.close()
            raise DaemonUnreachableError(str(self.path), error.strerror or str(error)) from error
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._reader.close()
        self._socket.close()

    def snapshot(self) -> Snapshot:
        """Return everything the daemon knows now."""
        return self._decoded("snapshot", Snapshot)

    def hints(self, pid: int) -> HintsReport:
        """Return what was learned about a latency-critical process; raises ``RemoteError`` when it is not one."""
        return self._decoded("hints", HintsReport, {"pid": pid})

    def verify(self) -> list[SettingCheck]:
        """Ask the driver what it has for every managed channel group; ``ok`` tells whether it is what was intended."""
        return self._decoded("verify", list[SettingCheck])

    def config(self) -> "Config":
        """Return the settings that the daemon uses now."""
        from gpsched.adaptive.config import Config  # most calls do not need it

        return self._decoded("config", Config)

    def set(self, changes: dict[str, dict[str, Any]]) -> None:
        """Change keys of sections until the next reload; raise ``RemoteError`` when a key or a value is wrong."""
        self._call("set", changes)

    def settings(self) -> SettingsView:
        """Return every knob on every GPU that managed processes use: value, default, whose it is."""
        return self._decoded("settings", SettingsView)

    def measure(self, since_us: float) -> "Measurement":
        """Return what happened since ``since_us`` (CLOCK_MONOTONIC, µs)."""
        from gpsched.adaptive.measure import Measurement

        return self._decoded("measure", Measurement, {"since_us": since_us})

    def tune(self, params: TuneParams) -> SettingsView:
        """The tuner's heartbeat; return what is in force. Raises ``RemoteError`` for a value that is out of bounds."""
        return self._decoded("tune", SettingsView, msgspec.to_builtins(params))

    def pin(self, knob: str, value: Value) -> None:
        """Fix a knob on all GPUs; raise ``RemoteError`` when there is no such knob or value."""
        self._call("pin", {"knob": knob, "value": value})

    def unpin(self, knob: str) -> bool:
        """Open a knob to the tuner; False when it was open."""
        return self._decoded("unpin", bool, {"knob": knob})

    def reset(self) -> None:
        """Drop the tuner's settings and what it learned of the present work."""
        self._call("reset")

    def attach(
        self,
        pid: int,
        class_: Class,
        *,
        slo_us: float | None = None,
        tenant: str | None = None,
        starting: bool = False,
        priority: int = 0,
        weight: float = 1.0,
    ) -> None:
        """Manage the process and its children. ``starting``: it has no GPU context yet and will get one.

        Raises ``RemoteError`` when it is gone, has no GPU context, or the caller may not change anything.
        """
        params = {"pid": pid, "class": class_, "slo_us": slo_us, "tenant": tenant, "starting": starting}
        rarely = {"priority": priority, "weight": weight}  # left out unless given: an older daemon does not know them
        self._call("attach", params | {name: value for name, value in rarely.items() if value != _USUAL[name]})

    def detach(self, pid: int) -> None:
        """Leave the process alone from now on and give it back its own settings."""
        self._call("detach", {"pid": pid})

    def trace(self, file: Path | None, about: str = "", scale: float = 1.0) -> None:
        """Have the daemon append all events to ``file`` from now on (see ``gpsched.adaptive.trace``); None ends it."""
        self._call("trace", {"file": None if file is None else str(file.absolute()), "about": about, "scale": scale})

    def restore(self) -> int:
        """Give every process its own settings back, detach all; return how many settings were restored."""
        return self._decoded("restore", int)

    def _decoded(self, method: str, type_: type[_T], params: dict[str, Any] | None = None) -> _T:
        """Call; an answer of another form than ours comes from a daemon of another version, or from none."""
        try:
            return msgspec.json.decode(self._call(method, params), type=type_)
        except msgspec.MsgspecError as error:
            raise DaemonUnreachableError(str(self.path), f"its answer is of another version: {error}") from error

    def _call(self, method: str, params: dict[str, Any] | None = None) -> msgspec.Raw:
        try:
            self._socket.sendall(msgspec.json.encode(protocol.Request(method, params or {})) + b"\n")
            line = self._reader.readline()
            response = msgspec.json.decode(line, type=protocol.Response)
        except OSError as error:
            raise DaemonUnreachableError(str(self.path), error.strerror or "no answer in time") from error
        except msgspec.MsgspecError as error:
            reason = "it answers in another language" if line else "it hung up"
            raise DaemonUnreachableError(str(self.path), reason) from error
        if response.error is not None:
            raise RemoteError(response.error)
        return response.result
