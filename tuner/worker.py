"""The tuner's process: measures a window, lets each GPU's tuner decide, hands the settings to the daemon, remembers.

Killed at any step it leaves nothing behind: the daemon takes its settings back, and the history is whole. It starts
again from the history.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpsched.adaptive.calibration.store import load_costs
from gpsched.adaptive.client import Client, RemoteError
from gpsched.adaptive.config import Config
from gpsched.adaptive.errors import DaemonUnreachableError
from gpsched.adaptive.knobs import Proposal, SettingsView, TuneParams
from gpsched.adaptive.measure import Measurement
from gpsched.tuner.forecast import Forecast
from gpsched.tuner.gpu import GpuTuner
from gpsched.tuner.history import History
from gpsched.tuner.history_file import path_in
from gpsched.tuner.meter import Meter
from gpsched.tuner.model import Change
from gpsched.tuner.step import Observed, Step


log = logging.getLogger(__name__)
SETTLE_S = 0.2  # from new settings to the window that is measured: the daemon has applied them, queued work is done
_LEASE_WINDOWS = 4
_RETRY_S = 2.0
_HORIZON_S = 60.0
_SAVE_EVERY = 10  # windows between two savings of what was learned, when nothing changes
_IDLE_EVERY = 30  # windows in which nothing happened, of which one is remembered


class Worker:
    """``wait(seconds)`` returns True when it is time to end."""

    def __init__(self, client: Client, history: History, state_dir: Path, wait: Callable[[float], bool]) -> None:
        self._client, self._history, self._wait = client, history, wait
        self._costs = load_costs(state_dir)
        self._meter = Meter(history, self._costs)
        self._tuners: dict[int, GpuTuner] = {}
        self._forecasts: dict[int, Forecast] = {}
        self._notes: dict[int, str] = {}
        self._proposals: dict[int, Proposal] = {}
        self._pending: dict[int, tuple[Change, int]] = {}  # GPU -> its last change and its number in the history
        self._phases: dict[int, str] = {}
        self._epoch: int | None = None
        self._count = 0

    def run(self) -> None:
        """Tune until told to end, or until the daemon goes: raises ``DaemonUnreachableError``."""
        while True:
            config = self._client.config()
            lease_s = _LEASE_WINDOWS * config.tuner.window_s + SETTLE_S
            view = self._tell(lease_s)
            if self._epoch is not None and view.epoch != self._epoch:
                self._forget()
            self._epoch = view.epoch
            if self._wait(SETTLE_S):
                return
            before = self._client.measure(time.monotonic_ns() / 1000)
            if self._wait(config.tuner.window_s):
                return
            self.window(before, self._client.measure(before.now_us), config)

    def window(self, before: Measurement, now: Measurement, config: Config) -> None:
        """Decide by what happened between the two measurements."""
        self._count += 1
        seen = self._meter.windows(before, now, config, time.time())
        steady = {each.gpu: each.values for each in before.settings.gpus}
        for observed in seen:
            gpu = observed.window.gpu
            if now.lost_events > before.lost_events or steady.get(gpu) != observed.window.settings:
                observed = _unlearnable(observed)
            self._step(gpu, observed, config)
        for gone in self._tuners.keys() - {observed.window.gpu for observed in seen}:
            self._drop(gone)

    def _step(self, gpu: int, observed: Observed, config: Config) -> None:
        tuner = self._tuners.setdefault(gpu, GpuTuner(self._history.points, self._costs, seed=gpu))
        forecast = self._forecasts.setdefault(gpu, Forecast(round(_HORIZON_S / config.tuner.window_s)))
        forecast.add(observed.window.load)
        step = tuner.step(observed, forecast.predict())
        self._phases[gpu] = f"{step.phase} ({step.note})" if step.note else step.phase
        if step.settings:
            values = {name: value for name, value in step.settings.items() if value != observed.work.defaults[name]}
            values = {name: value for name, value in values.items() if name not in observed.work.closed}
            self._proposals[gpu] = Proposal(gpu=gpu, values=values, note=self._notes.get(gpu))
        else:
            self._proposals.pop(gpu, None)
        self._remember(gpu, tuner, step)

    def _remember(self, gpu: int, tuner: GpuTuner, step: Step) -> None:
        told = step.window.learned or step.window.verdict != "unknown" or step.phase != "watch"
        if step.changes or told or self._count % _IDLE_EVERY == 0:
            self._history.put_window(step.window)
        for change in step.seen:
            last, number = self._pending.pop(gpu, (change, 0))
            self._history.seen(last, number, change.seen or last.expected)
        for change in step.changes:
            log.info("GPU %d: %s: %s (%s)", gpu, change.kind, change.words, change.why)
            self._pending[gpu] = (change, self._history.put_change(change))
            at = time.strftime("%H:%M:%S", time.localtime(change.time_s))
            self._notes[gpu] = f"{at} {change.kind}: {change.words}"
            if gpu in self._proposals:
                self._proposals[gpu] = msgspec.structs.replace(self._proposals[gpu], note=self._notes[gpu])
        if tuner.key is not None and (step.changes or self._count % _SAVE_EVERY == 0):
            self._history.put_points(tuner.key, tuner.points())

    def _tell(self, lease_s: float) -> SettingsView:
        phase = ", ".join(f"GPU {gpu}: {phase}" for gpu, phase in sorted(self._phases.items())) or "watch"
        proposals = list(self._proposals.values())
        return self._client.tune(TuneParams(pid=os.getpid(), lease_s=lease_s, phase=phase, proposals=proposals))

    def _forget(self) -> None:
        """An administrator asked for it."""
        log.info("reset: what was learned of the present work is forgotten")
        for gpu, tuner in self._tuners.items():
            if tuner.key is not None:
                self._history.put_points(tuner.key, [])
                reset = Change(time_s=time.time(), gpu=gpu, key=tuner.key, kind="reset", what={}, why="asked for")
                self._history.put_change(reset)
        for gpu in list(self._tuners):
            self._drop(gpu)

    def _drop(self, gpu: int) -> None:
        del self._tuners[gpu]
        self._forecasts.pop(gpu, None)
        self._notes.pop(gpu, None)
        self._proposals.pop(gpu, None)
        self._pending.pop(gpu, None)
        self._phases.pop(gpu, None)


def serve(socket: Path, state_dir: Path) -> int:
    """Run until a signal ends it, or the daemon that started it goes; return the exit code."""
    ending = threading.Event()
    parent = os.getppid()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    with contextlib.suppress(OSError):
        os.nice(10)
    with History(path_in(state_dir)) as history:
        while not ending.is_set() and os.getppid() == parent:
            try:
                with Client(socket, timeout_s=10.0) as client:
                    Worker(client, history, state_dir, ending.wait).run()
            except DaemonUnreachableError as error:
                log.info("%s", error)
            except RemoteError as error:
                log.warning("the daemon refused: %s", error)
            ending.wait(_RETRY_S)
    return 0


def _unlearnable(observed: Observed) -> Observed:
    """Something else happened in this window: it is remembered, but nothing is concluded from it."""
    window = msgspec.structs.replace(observed.window, margin=None, progress=None, verdict="unknown")
    return Observed(window, observed.work, observed.demand)
