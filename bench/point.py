"""Measures one point of a scenario: all arms in turn, block by block, on programs that stay the same."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpsched.adaptive.client import Client, RemoteError
from gpsched.adaptive.hints.model import HintsReport
from gpsched.adaptive.model import HintsView
from gpsched.bench import figures, hints, usage
from gpsched.bench.arms import AUTOMATIC, Arm, Stage, entered
from gpsched.bench.errors import ArmUnavailableError
from gpsched.bench.fleet import Fleet, Switchboard
from gpsched.bench.kit import Kit, Wrap
from gpsched.bench.messages import End, Progress, Run
from gpsched.bench.outcome import ArmResult, BeRun, Block, Hints, LcRun, Point, Reserved, Skipped
from gpsched.bench.peers import Peer, serving
from gpsched.bench.scenario import Scenario


_PLAIN_WARM_UP_S = 0.5
_SETTLE_REAL_S = 0.3  # from entering an arm to its load
Told = Callable[[str, float], None]


@dataclass(frozen=True)
class Pace:
    """``seconds`` of GPU time an arm, in ``rounds`` blocks.

    Each begins with load that is not measured: ``warm_up`` seconds in the first of an arm with a daemon, which has to
    learn what announces the services' bursts; a third of it in its later ones, a moment in the other arms.
    """

    seconds: float
    rounds: int
    warm_up: float
    told: Told

    def warm_up_of(self, arm: Arm, *, first: bool) -> float:
        """Seconds of load before a block of this arm."""
        if arm.daemon is None:
            return min(self.warm_up, _PLAIN_WARM_UP_S)
        return self.warm_up if first else self.warm_up / 3


@dataclass(frozen=True)
class Traced:
    """Where the events of one block go, and what they are called there."""

    path: Path
    about: str


class PointRun:
    """One point. ``daemons``: a client of each daemon by its configuration; ``peers`` by the name of their arm."""

    def __init__(
        self,
        scenario: Scenario,
        kit: Kit,
        board: Switchboard,
        daemons: Mapping[str, Client],
        peers: Mapping[str, Peer],
        traced: Traced | None = None,
    ) -> None:
        self._traced = traced
        self._scenario, self._kit, self._board, self._daemons, self._peers = scenario, kit, board, daemons, peers
        self._scale = float(kit.environment.get("GPSCHED_TIME_SCALE", "1"))
        self._stages: dict[str | None, Stage] = {}
        self._blocks: dict[str, list[Block]] = {}
        self._levels: dict[str, dict[str, str]] = {}
        self._reserved: dict[str, dict[int, Reserved]] = {}
        self._learned: dict[str, dict[int, tuple[HintsReport, HintsView]]] = {}
        self._skipped: list[Skipped] = []
        self._checks: dict[str, End] = {}
        self.commands: dict[str, list[str]] = {}

    def run(self, value: float | None, arms: list[Arm], pace: Pace) -> Point:
        """Measure ``arms``; the one without jobs before they start and after they have ended."""
        absent = [arm for arm in arms if arm.jobs == "absent"]
        others = [arm for arm in arms if arm.jobs != "absent"]
        self._pace, self._done, self._total = pace, 0, pace.rounds * len(arms)
        first = (pace.rounds + 1) // 2
        with ExitStack() as stack:
            pace.told("starting the programs", 0.0)
            self._start(None, stack)
            self._turns(absent, range(first))
            self._start_jobs([arm.peer for arm in others if arm.peer], stack)
            self._turns(others, range(pace.rounds))
            self._finish_jobs()
            self._turns(absent, range(first, pace.rounds))
            self._finish_services()
        return self.so_far(value, arms)

    def so_far(self, value: float | None, arms: list[Arm]) -> Point:
        """Return what was measured; states of programs that were not ended in order are not among the checks."""
        stage = self._stages.get(None)
        return Point(
            value=value,
            rates=stage.fleet.rates() if stage else [],
            arms=[self._result(arm) for arm in arms if self._blocks.get(arm.name)],
            skipped=self._skipped,
            checks=self._checks,
        )

    def _turns(self, arms: list[Arm], turns: range) -> None:
        """Each arm in turn, so that clocks, heat and other load fall on all of them alike."""
        for turn in turns:
            for arm in arms:
                self._pace.told(f"measuring: {arm.name}", self._done / self._total)
                self._done += 1
                if all(skipped.arm != arm.name for skipped in self._skipped):
                    self._measure(arm, seed=turn + 1)

    def _start_jobs(self, peers: list[str], stack: ExitStack) -> None:
        for peer in peers:
            self._start(peer, stack)
        for stage in self._stages.values():
            stage.fleet.start_jobs()
        self._note_commands()

    def _finish_jobs(self) -> None:
        self._pace.told("checking the state on the GPU", self._done / self._total)
        for name, stage in self._stages.items():
            self._check(name, "BE", stage.fleet.finish_jobs())

    def _finish_services(self) -> None:
        for name, stage in self._stages.items():
            self._check(name, "LC", stage.fleet.finish_services())

    def _start(self, peer: str | None, stack: ExitStack) -> None:
        """Start the services of the own fleet, or of a peer's, once."""
        if peer in self._stages:
            return
        lc, be = Wrap(), Wrap()
        if peer is not None:
            lc, be = self._peers[peer].lc, self._peers[peer].be
            stack.enter_context(serving(self._peers[peer]))
        fleet = stack.enter_context(Fleet(self._scenario, self._kit, lc, be))
        self._stages[peer] = Stage(fleet, self._board, scale=self._scale)

    def _note_commands(self) -> None:
        fleet = self._stages[None].fleet
        for name, service in zip(fleet.lc_names, fleet.services, strict=True):
            self.commands[f"LC {name}"] = service.command
        for name, job in zip(fleet.be_names, fleet.jobs, strict=True):
            self.commands[f"BE {name}"] = job.command

    def _check(self, peer: str | None, side: str, ends: list[End]) -> None:
        fleet = self._stages[peer].fleet
        names = fleet.lc_names if side == "LC" else fleet.be_names
        beside = f" under {peer}" if peer else ""
        for name, end in zip(names, ends, strict=True):
            self._checks[f"{side} {name}{beside}"] = end

    def _measure(self, arm: Arm, seed: int) -> None:
        """One block; an arm whose mechanism does not work here is left out from then on."""
        stage, seconds = self._stages[arm.peer], self._pace.seconds / self._pace.rounds
        stage.client = self._daemons[arm.daemon] if arm.daemon is not None else None
        try:
            with entered(arm, stage), self._tracing(arm, stage):
                time.sleep(_SETTLE_REAL_S)
                if arm.load:
                    stage.fleet.serve(self._pace.warm_up_of(arm, first=arm.name not in self._blocks), seed)
                if arm.level is not None:
                    stage.check_level(arm)
                with self._counting(arm, stage):
                    alone = arm.jobs == "one at a time"
                    block = self._one_at_a_time(stage, seconds) if alone else self._block(stage, seconds, seed)
                self._blocks.setdefault(arm.name, []).append(block)
        except (ArmUnavailableError, RemoteError) as error:
            self._skipped.append(Skipped(arm=arm.name, reason=str(error)))
            self._blocks.pop(arm.name, None)
        self._levels[arm.name] = dict(stage.levels)

    @contextmanager
    def _tracing(self, arm: Arm, stage: Stage) -> Iterator[None]:
        """Have the events of the first block written down."""
        traced, client = self._traced, stage.client
        if traced is None or client is None or arm.daemon != AUTOMATIC:
            yield
            return
        self._traced = None
        client.trace(traced.path, traced.about, self._scale)
        try:
            yield
        finally:
            client.trace(None)

    def _block(self, stage: Stage, seconds: float, seed: int) -> Block:
        before, cpu, switches = _progress(stage), _cpu(stage), usage.switches(self._kit.environment)
        started = time.monotonic()
        runs = stage.fleet.serve(seconds, seed)
        real_s = time.monotonic() - started
        after, now = _progress(stage), usage.switches(self._kit.environment)
        return Block(
            lc=[_lc_run(run) for run in runs],
            be=[_be_run(*pair) for pair in zip(before, after, strict=True)],
            real_s=real_s,
            daemon_cpu=None if cpu is None else ((_cpu(stage) or 0.0) - cpu) / real_s,
            switches=None if now is None or switches is None else now - switches,
        )

    def _one_at_a_time(self, stage: Stage, seconds: float) -> Block:
        """Each job alone for its part of the block."""
        runs = []
        started = time.monotonic()
        for job in stage.fleet.jobs:
            job.resume()
            before = job.progress()
            stage.measuring_time(seconds / len(stage.fleet.jobs))
            runs.append(_be_run(before, job.progress()))
            job.pause()
        return Block(lc=[], be=runs, real_s=time.monotonic() - started)

    @contextmanager
    def _counting(self, arm: Arm, stage: Stage) -> Iterator[None]:
        """Add up what the daemon's reservations did meanwhile, and note what it has learned."""
        before = hints.counted(stage)
        yield
        known, learned = self._reserved.setdefault(arm.name, {}), self._learned.setdefault(arm.name, {})
        for index, now in hints.counted(stage).items():
            known[index] = hints.added(known.get(index), before.get(index), now, self._scale)
            if stage.client is not None:
                learned[index] = stage.client.hints(stage.fleet.services[index].pid), now

    def _hints(self, arm: Arm, index: int) -> Hints | None:
        """How well a service's bursts were foreseen; None where nobody tried."""
        learned = self._learned.get(arm.name, {}).get(index)
        if learned is None:
            return None
        return hints.quality(*learned, self._reserved[arm.name][index], self._blocks[arm.name], self._scale)

    def _result(self, arm: Arm) -> ArmResult:
        fleet, blocks = self._stages[arm.peer].fleet, self._blocks[arm.name]
        alone, native, be_alone = figures.references(self._blocks, arm.name)
        reserved, rates = self._reserved.get(arm.name, {}), fleet.rates()
        lc_names = fleet.lc_names if arm.load else []
        be_names = fleet.be_names if arm.jobs in ("running", "one at a time") else []
        lc = [
            msgspec.structs.replace(
                figures.lc_figures(index, name, fleet.lcs[index], rates[index], blocks, alone, reserved.get(index)),
                hints=self._hints(arm, index),
            )
            for index, name in enumerate(lc_names)
        ]
        be = [
            figures.be_figures(index, name, blocks, native, be_alone, fleet.bes[index].share)
            for index, name in enumerate(be_names)
        ]
        daemon = self._daemons[arm.daemon].snapshot().daemon if arm.daemon is not None else None
        return ArmResult(
            arm=arm.name,
            title=arm.title,
            lc=lc,
            be=be,
            blocks=blocks,
            daemon_cpu=figures.share_of_core(blocks),
            switches_per_s=figures.switches_per_s(blocks, self._scale),
            levels=self._levels[arm.name] if arm.daemon is not None else {},
            lost_events=daemon.lost_events if daemon else 0,
            failed_controls=daemon.failed_controls if daemon else 0,
        )


def _progress(stage: Stage) -> list[Progress]:
    return [job.progress() for job in stage.fleet.jobs]


def _cpu(stage: Stage) -> float | None:
    return None if stage.client is None else usage.cpu_seconds(stage.client.snapshot().daemon.pid)


def _lc_run(run: Run) -> LcRun:
    return LcRun(latency_us=run.latency_us, scheduled_us=run.scheduled_us)


def _be_run(before: Progress, after: Progress) -> BeRun:
    return BeRun(
        units=after.kernels - before.kernels,
        time_us=after.time_us - before.time_us,
        largest_gap_us=after.largest_gap_us,
    )
