"""Runs scenarios: opens the GPU, starts the daemons that the arms need, measures every point of the sweep."""

import math
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec

from gpsched.adaptive.calibration.model import Calibration
from gpsched.adaptive.client import Client
from gpsched.adaptive.errors import GpschedError, UnsupportedHostError, UsageError
from gpsched.adaptive.scratch import Scratch
from gpsched.bench import scenario as scenarios
from gpsched.bench.arms import ARMS, Arm, fits, unknown_setting
from gpsched.bench.calibration import assumed, calibrate
from gpsched.bench.daemon import running_daemon
from gpsched.bench.device import SIMULATED_SCALE, Device, Kind, open_device
from gpsched.bench.fleet import Switchboard
from gpsched.bench.kit import Kit
from gpsched.bench.models import Models
from gpsched.bench.outcome import BenchResult, Point, ScenarioResult, Skipped
from gpsched.bench.peers import Peer
from gpsched.bench.point import Pace, PointRun, Traced
from gpsched.bench.result import Host
from gpsched.bench.scenario import Scenario


_SIMULATED_SECONDS = 6.0  # of GPU time an arm, where the scenario asks for more
_PROGRAMS_AT_ONCE = 4  # that two cores run at SIMULATED_SCALE, beside the GPU and the daemon

Told = Callable[[str, float], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run. ``seconds`` of GPU time an arm and point, ``warm_up`` seconds of load before a managed block.

    ``torch``: whether models may run in PyTorch where it is. ``calibrate``: measure what controls and switches cost
    first. ``trace``: a file to which the events of each scenario's first block of the arm gpsched are appended, for
    replay; ``log``: one to which the daemons' messages are. None stands for the scenario's own seconds (at most 6 on
    the embedded GPU), and for the time scale that the number of programs asks for.
    """

    device: Kind = "auto"
    seconds: float | None = None
    rounds: int = 3
    warm_up: float = 3.0
    arms: tuple[str, ...] = tuple(ARMS)
    peers: dict[str, Peer] = {}
    models: Path | None = None
    python: str = sys.executable
    torch: bool = True
    calibrate: bool = True
    scale: float | None = None
    trace: Path | None = None
    log: Path | None = None

    def chosen(self) -> list[Arm]:
        """The arms, peers last; raises ``UsageError`` for an unknown one."""
        unknown = [name for name in self.arms if name not in ARMS]
        if unknown:
            raise UsageError(f"no arm {unknown[0]!r}; known: {', '.join(ARMS)}")
        own = [arm for name, arm in ARMS.items() if name in self.arms]
        return own + [Arm(name=name, title=peer.title, peer=name) for name, peer in self.peers.items()]


@dataclass(frozen=True)
class Plan:
    """What ``prepare`` found good: scenarios by their names, arms, models."""

    options: Options
    scenarios: dict[str, Scenario]
    arms: list[Arm]
    models: Models


def prepare(names: list[str], options: Options) -> Plan:
    """Read everything that is to be run; raises ``UsageError`` and ``ConfigError`` for what is wrong with it."""
    plan = Plan(
        options=options,
        scenarios={scenarios.find(name)[0]: scenarios.load(name) for name in names},
        arms=options.chosen(),
        models=Models(options.models),
    )
    for scenario in plan.scenarios.values():
        for entry in scenario.entries():
            if entry.model is not None:
                plan.models.get(entry.model)
    return plan


def run(
    plan: Plan,
    *,
    told: Told = lambda _what, _share: None,
    finished: Callable[[BenchResult], None] = lambda _so_far: None,
) -> BenchResult:
    """Run the scenarios. ``told`` hears what happens and the share done, ``finished`` gets each result so far.

    A scenario that fails is noted, and the next one starts. Raises ``UnsupportedHostError`` when nothing can run here.
    """
    options, loaded = plan.options, plan.scenarios
    results: list[ScenarioResult] = []
    with _Node(options) as node:
        for index, (name, chosen) in enumerate(loaded.items()):

            def tell(what: str, share: float, name: str = name, index: int = index) -> None:
                told(f"{name}: {what}", (index + share) / len(loaded))

            node.open(_scale(chosen), tell)
            one = _Run(name, chosen, node, options, plan.models)
            results.append(one.run(plan.arms, tell))
            if results[-1].error is not None:
                node.close()  # the next scenario finds a new daemon, and a new embedded GPU
            result = BenchResult(
                host=node.host,
                command=sys.argv,
                rounds=options.rounds,
                scenarios=list(results),
                calibration=node.calibration,
            )
            finished(result)
            if one.interrupted:
                raise KeyboardInterrupt
    return result


def _scale(scenario: Scenario) -> float:
    """Stretch the embedded GPU's time further when there are many programs: the host's cores are few."""
    programs = max(sum(entry.count for entry in point.entries()) for _, point in scenario.points())
    return SIMULATED_SCALE * max(1, math.ceil(programs / _PROGRAMS_AT_ONCE))


class _Node:
    """The GPU and the daemons on it; scenarios share them while they need the same time scale."""

    def __init__(self, options: Options) -> None:
        self._options, self._stack = options, ExitStack()
        self._gpu: Device | None = None
        self._daemons: dict[str, Client] = {}
        self.calibration: Calibration | None = None
        self.notes: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def gpu(self) -> Device:
        """The GPU that is open."""
        assert self._gpu is not None
        return self._gpu

    def open(self, scale: float, told: Told) -> None:
        """Open a GPU whose time runs at this scale, unless it is open already."""
        scale = self._options.scale or scale
        if self._gpu is not None and (not self._gpu.simulated or self._gpu.scale == scale):
            return
        self.close()
        told("starting the GPU", 0.0)
        self._gpu = self._stack.enter_context(open_device(self._options.device, scale))
        self.host = Host(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            kernel=platform.release(),
            gpu=self._gpu.name,
            driver=self._gpu.driver,
            simulated=self._gpu.simulated,
            scale=self._gpu.scale,
        )

    def daemon(self, config: str) -> Client:
        """A client of the daemon with this configuration, started when it is first asked for."""
        if not self._daemons:
            self._calibrate()
        if config not in self._daemons:
            started = running_daemon(config, self.calibration, self._options.log)
            self._daemons[config] = self._stack.enter_context(started)
        return self._daemons[config]

    def _calibrate(self) -> None:
        self.notes.clear()
        self.calibration = assumed(self.gpu)
        if not self._options.calibrate:
            return
        try:
            self.calibration = calibrate(self.gpu)
        except GpschedError as error:
            self.notes.append(f"not calibrated, the daemons reckon with the costs of an H200: {error}")

    def close(self) -> None:
        """End the daemons, which restore every setting, and the embedded GPU."""
        self._daemons.clear()
        self._gpu = None
        self._stack.close()


class _Run:
    """One scenario on one GPU."""

    def __init__(self, name: str, scenario: Scenario, node: _Node, options: Options, models: Models) -> None:
        self._name, self._scenario, self._node, self._options, self._models = name, scenario, node, options, models
        self._gpu = node.gpu
        longest = _SIMULATED_SECONDS if self._gpu.simulated else scenario.seconds
        self._seconds = options.seconds or min(scenario.seconds, longest)
        self._points: list[Point] = []
        self._commands: dict[str, list[str]] = {}
        self._notes: list[str] = []

    def run(self, arms: list[Arm], told: Told) -> ScenarioResult:
        """Measure all points; an error ends them."""
        error = None
        self.interrupted = False
        try:
            with Scratch("gpsched-bench-") as folder:
                skipped = dict(self._unsuited(arms, folder))
                fitting = [arm for arm in arms if arm.name not in skipped]
                told("calibrating, starting the daemons", 0.0)
                daemons = {arm.daemon: self._node.daemon(arm.daemon) for arm in fitting if arm.daemon is not None}
                self._notes += self._node.notes if daemons else []
                self._measure(fitting, skipped, daemons, folder, told)
        except UnsupportedHostError:
            raise
        except GpschedError as failure:
            error = str(failure)
        except KeyboardInterrupt:
            error, self.interrupted = "interrupted", True
        return ScenarioResult(
            name=self._name,
            scenario=self._scenario,
            scale=self._gpu.scale,
            seconds=self._seconds,
            commands=self._commands,
            notes=self._notes,
            points=self._points,
            error=error,
        )

    def _unsuited(self, arms: list[Arm], folder: Path) -> Iterator[tuple[str, str]]:
        services, jobs = len(self._scenario.lc), len(self._scenario.be)
        for arm in arms:
            reason = fits(arm, services, jobs) or (unknown_setting(arm, folder) if arm.daemon is not None else None)
            if reason is not None:
                yield arm.name, reason

    def _measure(
        self, arms: list[Arm], skipped: dict[str, str], daemons: dict[str, Client], folder: Path, told: Told
    ) -> None:
        points = list(self._scenario.points())
        for index, (value, point) in enumerate(points):

            def tell(what: str, share: float, index: int = index) -> None:
                told(what, (index + share) / len(points))

            board = Switchboard(folder / "switchboard")
            kit = Kit(
                simulated=self._gpu.simulated,
                environment=self._gpu.environment,
                models=self._models,
                folder=folder,
                board=board.path,
                python=self._options.python if self._options.torch else None,
                notes=self._notes,
            )
            traced = Traced(self._options.trace, self._name) if self._options.trace and not self._points else None
            one = PointRun(point, kit, board, daemons, self._options.peers, traced)
            try:
                one.run(value, arms, Pace(self._seconds, self._options.rounds, self._options.warm_up, tell))
            finally:  # what was measured before a program died, or the time was up, counts
                measured = one.so_far(value, arms)
                out = [Skipped(arm=arm, reason=reason) for arm, reason in skipped.items()]
                if measured.arms:
                    self._points.append(msgspec.structs.replace(measured, skipped=out + measured.skipped))
                self._commands = self._commands or one.commands
