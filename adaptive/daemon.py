"""The node's daemon: one event loop for the ring buffer, the control socket, signals and the clock."""

import contextlib
import logging
import os
import resource
import selectors
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import msgspec

from gpsched.adaptive.api import ApiServer
from gpsched.adaptive.calibration.store import load_costs
from gpsched.adaptive.config import Config, Priority, Weight
from gpsched.adaptive.doctor.host import Host
from gpsched.adaptive.driver.module_level import ModuleLevel
from gpsched.adaptive.errors import UnsupportedHostError, UsageError
from gpsched.adaptive.freezer import Freezer
from gpsched.adaptive.gpus import with_engine
from gpsched.adaptive.model import DaemonView, Snapshot
from gpsched.adaptive.node import Node
from gpsched.adaptive.probes.probes import Probes
from gpsched.adaptive.service import Service
from gpsched.adaptive.settings import LiveSettings
from gpsched.adaptive.slices import restore_pending
from gpsched.adaptive.survivor import Survivor
from gpsched.adaptive.trace import Tracing
from gpsched.adaptive.tuning import TunerProcess, Tuning
from gpsched.adaptive.undo import ENDING_S, UndoLog
from gpsched.adaptive.verify import verify
from gpsched.adaptive.version import own_version


log = logging.getLogger(__name__)
_T = TypeVar("_T")
_TICK_S = 0.5
_FOLLOW_S = 0.02  # between looks at what events that were read have changed
_ROUNDS = 4  # of reading that empty a full ring buffer
_DESCRIPTORS = 1 << 16
_IDLE_START_S = 60.0  # an embedded daemon that nobody uses ends by itself


class AttachParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of the method ``attach``."""

    pid: int
    class_: str = msgspec.field(name="class")
    slo_us: float | None = None
    tenant: str | None = None
    starting: bool = False
    priority: Priority = 0
    weight: Weight = 1.0


class PidParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of the methods ``detach`` and ``hints``."""

    pid: int


class TraceParams(msgspec.Struct, kw_only=True):
    """Parameters of the method ``trace``; no ``file`` ends what is being written."""

    file: str | None = None
    about: str = ""
    scale: float = 1.0


def allow_descriptors() -> None:
    """Raise this process' soft limit of descriptors as far as it may be, to 65,536 at most.

    Each managed process has some, and where the kernel or bcc has no multi-links, each probed place has two.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Daemon:
    """Owns all that must be undone: the probes, the changed settings, the socket. ``serve`` undoes it in every case."""

    def __init__(
        self, config: Config, socket_path: Path, state_dir: Path, reader: Callable[[], Config] | None = None
    ) -> None:
        """``reader`` reads the configuration again, when SIGHUP asks for it."""
        if os.geteuid() != 0:
            raise UnsupportedHostError("the daemon needs root to load BPF programs", "start it with sudo")
        self._reader = reader
        self._config, self._socket_path, self._state_dir = config, socket_path, state_dir
        self._started = time.monotonic()
        self._stopping = False
        self._has_read = False  # events since ``follow``
        self._used = False

    def serve(self, *, exit_when_idle: bool = False, ready_fd: int | None = None) -> None:
        """Run until a signal ends it; every changed setting is restored before it returns.

        ``ready_fd`` gets the word READY once requests are answered. Raises what keeps the daemon from starting.
        """
        allow_descriptors()
        with contextlib.ExitStack() as stack:
            self._undo = undo = UndoLog(self._state_dir, wait_s=ENDING_S)
            stack.callback(undo.close)
            if (count := restore_pending(undo)) > 0:
                log.info("restored %d settings that an earlier daemon had left", count)
            freezer = Freezer(undo, survivor=Survivor(self._state_dir))
            stack.callback(freezer.close)
            selector = selectors.DefaultSelector()
            stack.callback(selector.close)
            self._service = Service(self._config, Host(state_dir=self._state_dir), self._reader)
            stack.callback(self._service.close)
            self._watch_signals(selector, stack)
            self._probes = Probes()
            stack.callback(self._probes.close)
            self._probes.tap = self._tracing = Tracing()
            stack.callback(self._tracing.stop)
            module = ModuleLevel()
            stack.callback(module.close)
            costs = load_costs(self._state_dir)
            settings = LiveSettings(self._config, self._state_dir)
            self._node = Node(
                self._config, self._probes, undo, costs=costs, freezer=freezer, module=module, settings=settings
            )
            self._node.steering.rests.must_observe = lambda: self._tracing.active
            stack.callback(self._node.restore_all)
            tuner = TunerProcess(self._socket_path, self._state_dir)
            self._tuning = Tuning(settings, self._node, self._service.gpus.views, tuner)
            stack.callback(self._tuning.close)
            self._probes.load(self._node.handle)
            self._probes.attach_host_libraries()
            self._probes.forget(os.getpid())  # a scan opens a client of its own for a moment
            selector.register(self._probes.fileno(), selectors.EVENT_READ, self._on_events)
            selector.register(self._node.keeper.fileno(), selectors.EVENT_READ, self._node.reap)
            execution = self._node.steering.execution
            selector.register(execution.fileno(), selectors.EVENT_READ, execution.check)
            api = ApiServer(self._socket_path, selector, self._reads(), self._changes())
            stack.callback(api.close)
            self._node.adopt_running()
            self._service.ready()
            log.info("ready: %s", self._socket_path)
            if ready_fd is not None:
                os.write(ready_fd, b"READY")
                os.close(ready_fd)
            self._loop(selector, exit_when_idle)
            self._service.stopping()

    def _loop(self, selector: selectors.BaseSelector, exit_when_idle: bool) -> None:
        next_tick, next_follow = time.monotonic() + _TICK_S, 0.0
        steering = self._node.steering
        while not self._stopping:
            follows = self._has_read or steering.urgent
            wait = min(next_tick, next_follow if follows else next_tick) - time.monotonic()
            for key, _ in selector.select(max(0.0, min(wait, steering.freezing.wait_s()))):
                key.data()
            steering.freezing.update()
            if time.monotonic() >= next_follow and (self._has_read or steering.urgent):
                self._node.follow(self._read())
                self._has_read, next_follow = False, time.monotonic() + _FOLLOW_S
            if time.monotonic() >= next_tick:
                self._node.tick(self._read())
                self._service.tick(self._snapshot, self._tuning.reload)
                self._tuning.tick()
                self._stopping |= exit_when_idle and self._idle()
                next_tick = time.monotonic() + _TICK_S

    def _on_events(self) -> None:
        self._read()
        self._has_read = True

    def _read(self) -> float:
        """Hand on the kernel's events; return up to when none is missing (µs). More come while these are handled."""
        began_us = time.monotonic_ns() / 1000
        for _ in range(_ROUNDS):
            if self._probes.consume():
                break
        return began_us

    def _fresh(self, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What is asked for counts what has happened until now."""

        def answered(params: Any) -> Any:
            self._node.follow(self._read())
            return answer(params)

        return answered

    def _idle(self) -> bool:
        self._used |= len(self._node.registry) > 0
        waited = time.monotonic() - self._started > _IDLE_START_S
        return len(self._node.registry) == 0 and (self._used or waited)

    def _watch_signals(self, selector: selectors.BaseSelector, stack: contextlib.ExitStack) -> None:
        """Signals wake the loop through a descriptor, so that none is missed between two waits."""
        receiver, sender = socket.socketpair()
        sender.setblocking(False)
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        for end in (sender, receiver):
            stack.callback(end.close)
        stack.callback(signal.set_wakeup_fd, before)
        selector.register(receiver, selectors.EVENT_READ, lambda: receiver.recv(64))
        handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop, signal.SIGHUP: self._hang_up}
        for number, handler in handlers.items():
            stack.callback(signal.signal, number, signal.signal(number, handler))

    def _hang_up(self, _number: int, _frame: FrameType | None) -> None:
        self._service.request_reload()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _reads(self) -> dict[str, Any]:
        return {
            "snapshot": self._fresh(lambda _params: self._snapshot()),
            "hints": self._fresh(lambda params: self._node.hints(_convert(params, PidParams).pid)),
            "verify": lambda _params: verify(self._node.registry, self._node.keeper),
            "config": lambda _params: self._node.config,
            **{name: self._fresh(read) for name, read in self._tuning.reads().items()},
        }

    def _changes(self) -> dict[str, Any]:
        return {
            "attach": self._attach,
            "detach": self._detach,
            "set": self._set,
            "restore": lambda _params: self._restore(),
            "trace": self._trace,
            **self._tuning.changes(),
        }

    def _attach(self, params: dict[str, Any]) -> None:
        call = _convert(params, AttachParams)
        self._used = True
        self._node.attach(
            call.pid,
            call.class_,
            call.slo_us,
            call.tenant,
            starting=call.starting,
            priority=call.priority,
            weight=call.weight,
        )

    def _set(self, params: dict[str, Any]) -> None:
        """Settings for now: the next start or reload takes those of the configuration files again."""
        self._tuning.admin_set(params)
        log.info("settings changed: %s", params)

    def _trace(self, params: dict[str, Any]) -> None:
        """Write the events down, or no longer."""
        call = _convert(params, TraceParams)
        if call.file is None:
            self._tracing.stop(self._node.steering.agents())
        else:
            self._tracing.start(Path(call.file), call.about, call.scale)

    def _restore(self) -> int:
        """Also what an earlier attempt could not put back."""
        return self._node.restore_all() + restore_pending(self._undo)

    def _detach(self, params: dict[str, Any]) -> None:
        self._node.detach(_convert(params, PidParams).pid)

    def _snapshot(self) -> Snapshot:
        keeper = self._node.keeper
        daemon = DaemonView(
            pid=os.getpid(),
            version=own_version(),
            uptime_s=time.monotonic() - self._started,
            libraries=self._probes.libraries(),
            lost_events=self._probes.lost(),
            failed_controls=keeper.failures,
            last_failure=keeper.last_failure,
            health=self._service.report.health,
            findings=self._service.findings(),
            config_error=self._service.config_error,
            order=self._node.config.policy.order,
        )
        processes = self._node.steering.filled(self._node.views())
        gpus = with_engine(self._service.gpus.views(), processes, self._node.steering.in_burst())
        return Snapshot(time_s=time.time(), daemon=daemon, processes=processes, gpus=gpus)


def _convert(params: dict[str, Any], type_: type[_T]) -> _T:
    try:
        return msgspec.convert(params, type_)
    except msgspec.ValidationError as error:
        raise UsageError(f"wrong parameters: {error}") from error
