"""Runs scenarios: opens the GPU, starts the daemons that the arms need, measures every point of the sweep."""

import math
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gpsched.adaptive.client import Client
from gpsched.adaptive.errors import GpschedError, UnsupportedHostError, UsageError
from gpsched.bench import scenario as scenarios
from gpsched.bench.arms import ARMS, Arm, fits, unknown_setting
from gpsched.bench.daemon import running_daemon
from gpsched.bench.device import SIMULATED_SCALE, Device, Kind, open_device
from gpsched.bench.fleet import Switchboard
from gpsched.bench.kit import Kit
from gpsched.bench.models import Models
from gpsched.bench.outcome import BenchResult, Point, ScenarioResult, Skipped
from gpsched.bench.peers import Peer
from gpsched.bench.point import Pace, PointRun
from gpsched.bench.result import Host
from gpsched.bench.scenario import Scenario


_SIMULATED_SECONDS = 6.0  # of GPU time an arm, where the scenario asks for more
_PROGRAMS_AT_ONCE = 4  # that two cores run at SIMULATED_SCALE, beside the GPU and the daemon

Told = Callable[[str, float], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run. ``seconds`` of GPU time an arm and point, ``warm_up`` seconds of load before each block.

    None: the scenario's own (at most 6 s on the embedded GPU); the scale that the number of programs asks for.
    """

    device: Kind = "auto"
    seconds: float | None = None
    rounds: int = 3
    warm_up: float = 1.0
    arms: tuple[str, ...] = tuple(ARMS)
    peers: dict[str, Peer] = {}
    models: Path | None = None
    python: str = sys.executable
    scale: float | None = None

    def chosen(self) -> list[Arm]:
        """The arms, peers last; raises ``UsageError`` for an unknown one."""
        unknown = [name for name in self.arms if name not in ARMS]
        if unknown:
            raise UsageError(f"no arm {unknown[0]!r}; known: {', '.join(ARMS)}")
        own = [arm for name, arm in ARMS.items() if name in self.arms]
        return own + [Arm(name=name, title=peer.title, peer=name) for name, peer in self.peers.items()]


def run(
    names: list[str],
    options: Options,
    *,
    told: Told = lambda _what, _share: None,
    finished: Callable[[BenchResult], None] = lambda _so_far: None,
) -> BenchResult:
    """Run the scenarios. ``told`` hears what happens and the share done, ``finished`` gets each result so far.

    A scenario that fails is noted, and the next one starts. Raises ``UsageError`` and ``ConfigError`` before anything
    is measured, and ``UnsupportedHostError`` when nothing can run here.
    """
    models, arms = Models(options.models), options.chosen()
    loaded = {scenarios.find(name)[0]: scenarios.load(name) for name in names}
    for chosen in loaded.values():
        for entry in chosen.entries():
            if entry.model is not None:
                models.get(entry.model)
    results: list[ScenarioResult] = []
    for index, (name, chosen) in enumerate(loaded.items()):

        def tell(what: str, share: float, name: str = name, index: int = index) -> None:
            told(f"{name}: {what}", (index + share) / len(loaded))

        with open_device(options.device, options.scale or _scale(chosen)) as gpu:
            results.append(_Run(name, chosen, gpu, options, models).run(arms, tell))
            result = BenchResult(host=_host(gpu), command=sys.argv, rounds=options.rounds, scenarios=list(results))
        finished(result)
    return result


def _scale(scenario: Scenario) -> float:
    """Stretch the embedded GPU's time further when there are many programs: the host's cores are few."""
    programs = max(sum(entry.count for entry in point.entries()) for _, point in scenario.points())
    return SIMULATED_SCALE * max(1, math.ceil(programs / _PROGRAMS_AT_ONCE))


class _Run:
    """One scenario on one GPU."""

    def __init__(self, name: str, scenario: Scenario, gpu: Device, options: Options, models: Models) -> None:
        self._name, self._scenario, self._gpu, self._options, self._models = name, scenario, gpu, options, models
        longest = _SIMULATED_SECONDS if gpu.simulated else scenario.seconds
        self._seconds = options.seconds or min(scenario.seconds, longest)
        self._points: list[Point] = []
        self._commands: dict[str, list[str]] = {}
        self._notes: list[str] = []

    def run(self, arms: list[Arm], told: Told) -> ScenarioResult:
        """Measure all points; an error ends them."""
        error = None
        try:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpsched-bench-")))
                skipped = dict(self._unsuited(arms, folder))
                fitting = [arm for arm in arms if arm.name not in skipped]
                told("starting the daemons", 0.0)
                daemons = {
                    config: stack.enter_context(running_daemon(config))
                    for config in dict.fromkeys(arm.daemon for arm in fitting if arm.daemon is not None)
                }
                self._measure(fitting, skipped, daemons, folder, told)
        except UnsupportedHostError:
            raise
        except GpschedError as failure:
            error = str(failure)
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
                python=self._options.python,
                notes=self._notes,
            )
            one = PointRun(point, kit, board, daemons, self._options.peers)
            measured = one.run(value, arms, Pace(self._seconds, self._options.rounds, self._options.warm_up, tell))
            out = [Skipped(arm=arm, reason=reason) for arm, reason in skipped.items()]
            self._points.append(msgspec.structs.replace(measured, skipped=out + measured.skipped))
            self._commands = self._commands or one.commands


def _host(gpu: Device) -> Host:
    return Host(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        kernel=platform.release(),
        gpu=gpu.name,
        driver=gpu.driver,
        simulated=gpu.simulated,
        scale=gpu.scale,
    )
