"""The daemon's side of the tuner: its process, its calls, and taking its settings back when it goes.

The tuner is a process of its own: what it imports costs seconds and a hundred megabytes. It may die at any moment.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpsched.adaptive.config import Config
from gpsched.adaptive.errors import UsageError
from gpsched.adaptive.knobs import SettingsView, TuneParams, Value
from gpsched.adaptive.measure import Measurement
from gpsched.adaptive.model import GpuView
from gpsched.adaptive.node import Node
from gpsched.adaptive.settings import LiveSettings


log = logging.getLogger(__name__)
_T = TypeVar("_T")
_STOP_S = 3.0
_FIRST_RETRY_S, _LAST_RETRY_S = 2.0, 300.0
_STEADY_S = 60.0  # one that lived this long is started again at once


class MeasureParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of the method ``measure``: CLOCK_MONOTONIC, µs."""

    since_us: float


class PinParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of the method ``pin``."""

    knob: str
    value: Value


class UnpinParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of the method ``unpin``."""

    knob: str


class TunerProcess:
    """Starts the tuner, and again when it ends, after growing pauses. ``tick`` costs one system call."""

    def __init__(self, socket: Path, state_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._command = [sys.executable, "-P", "-m", "gpsched.tuner"]
        self._command += ["--socket", str(socket), "--state-dir", str(state_dir)]
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started = self._not_before = 0.0
        self._retry_s = _FIRST_RETRY_S
        self._ending: float | None = None

    @property
    def pid(self) -> int | None:
        """Its process; None while there is none."""
        return self._process.pid if self._process else None

    def tick(self, enabled: bool) -> None:
        """Make it run, or not."""
        if self._process is not None and (code := self._process.poll()) is not None:
            self._ended(code)
        if enabled and self._process is None and self._clock() >= self._not_before:
            self._start()
        elif not enabled and self._process is not None:
            self._end(self._process)

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._fresh()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Without waiting: it may be waiting for our answer to a call."""
        if self._ending is None:
            process.terminate()
            self._ending = self._clock()
        elif self._clock() - self._ending >= _STOP_S:
            process.kill()

    def _fresh(self) -> None:
        self._not_before, self._retry_s, self._ending = 0.0, _FIRST_RETRY_S, None

    def _start(self) -> None:
        # One thread: its matrices are small, and threads that spin would take a core from the programs.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._started = self._clock()
        try:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, env=environment)
        except OSError as error:
            log.warning("cannot start the tuner: %s", error)
            self._pause()

    def _ended(self, code: int) -> None:
        self._process = None
        if self._ending is not None:
            self._fresh()
            return
        if self._clock() - self._started >= _STEADY_S:
            self._retry_s = _FIRST_RETRY_S
        log.warning("the tuner ended with code %d; started again in %.0f s", code, self._retry_s)
        self._pause()

    def _pause(self) -> None:
        self._not_before = self._clock() + self._retry_s
        self._retry_s = min(2 * self._retry_s, _LAST_RETRY_S)


class Tuning:
    """Calls and upkeep, on the daemon's loop."""

    def __init__(self, settings: LiveSettings, node: Node, gpus: Callable[[], list[GpuView]], process: TunerProcess):
        self._settings, self._node, self._gpus, self._process = settings, node, gpus, process

    def reads(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Methods that change nothing."""
        return {"settings": lambda _params: self._view(), "measure": self._measure}

    def changes(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Methods for root."""
        return {"tune": self._tune, "pin": self._pin, "unpin": self._unpin, "reset": self._reset}

    def tick(self) -> None:
        """Twice a second: look after the process, and take back what it no longer holds."""
        enabled = self._settings.config.tuner.enabled
        ran = self._process.pid
        self._process.tick(enabled)
        gone = ran if self._process.pid != ran else None
        if self._settings.expire() or (gone is not None and self._settings.release(gone)):
            self._node.apply()

    def reload(self, config: Config) -> None:
        """The configuration was read again."""
        self._settings.reload(config)
        self._node.reconfigure(config)

    def admin_set(self, changes: dict[str, dict[str, Any]]) -> None:
        """An administrator changes keys until the next reload."""
        self._settings.admin_set(changes)
        self._node.reconfigure(self._settings.config)

    def close(self) -> None:
        """End the process."""
        self._process.stop()

    def _view(self) -> SettingsView:
        return self._node.measure(time.monotonic_ns() / 1000).settings

    def _measure(self, params: dict[str, Any]) -> Measurement:
        measured = self._node.measure(_convert(params, MeasureParams).since_us)
        models = {view.gpu: view.name or "embedded GPU" for view in self._gpus()}
        return msgspec.structs.replace(measured, models=models)

    def _tune(self, params: dict[str, Any]) -> SettingsView:
        self._settings.tune(_convert(params, TuneParams))
        self._node.apply()
        return self._view()

    def _pin(self, params: dict[str, Any]) -> None:
        call = _convert(params, PinParams)
        self._settings.pin(call.knob, call.value)
        self._node.apply()

    def _unpin(self, params: dict[str, Any]) -> bool:
        opened = self._settings.unpin(_convert(params, UnpinParams).knob)
        self._node.apply()
        return opened

    def _reset(self, _params: dict[str, Any]) -> None:
        self._settings.reset()
        self._node.apply()


def _convert(params: dict[str, Any], type_: type[_T]) -> _T:
    try:
        return msgspec.convert(params, type_)
    except msgspec.ValidationError as error:
        raise UsageError(f"wrong parameters: {error}") from error
