"""Runs the proof: each mix through all arms, before and after its change, on the same requests."""

import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from gpsched.adaptive.errors import UsageError
from gpsched.adaptive.knobs import Settings
from gpsched.bench.device import Device
from gpsched.bench.result import Host
from gpsched.bench.tuner import oracle, players
from gpsched.bench.tuner.bed import Bed, Beds, Taken, VirtualBed, defaults
from gpsched.bench.tuner.mix import Mix
from gpsched.bench.tuner.oracle import GridPoint, Oracle
from gpsched.bench.tuner.players import Fixed, Ours, Player
from gpsched.bench.tuner.result import MixResult, Run, Spot, TunerResult
from gpsched.tuner.model import Point


#: In the order in which they are shown.
ARMS = ("driver", "gpreempt", "gpsched", "random", "tpe", "tuner")
#: Most telling first: a run that is interrupted keeps what it has.
_RUN_ORDER = ("oracle", "tuner", "gpsched", "gpreempt", "random", "tpe", "driver")
_STATIC = ("oracle", "gpsched", "gpreempt", "driver")
_WARM_SEED = 1000  # a warm run meets other requests than those that were learned from
Told = Callable[[str, float], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """``windows`` before the change and after it (none: only before); ``coarse`` grid.

    ``seeds`` of the tuner's runs, ``rival_seeds`` of the others'; ``static_windows``: the most before and after the
    change of arms that never change their settings; ``how``, ``host``: what the windows run on; ``earlier``: mixes of
    which all but the tuner's runs may be taken from an earlier result.
    """

    arms: tuple[str, ...] = ARMS
    how: str = "the embedded GPU's engine in virtual time; programs are scripts, settings executed as the actuator does"
    windows: tuple[int, int] = (60, 40)
    warm_windows: int = 15
    static_windows: int | None = None
    seeds: int = 2
    rival_seeds: int = 20
    coarse: bool = False
    host: Host | None = None
    earlier: dict[str, MixResult] = {}

    def __post_init__(self) -> None:
        unknown = [arm for arm in self.arms if arm not in ARMS]
        if unknown:
            raise UsageError(f"no arm {unknown[0]!r}; known: {', '.join(ARMS)}")


def run(
    mixes: dict[str, Mix],
    options: Options,
    beds: Beds = VirtualBed,
    *,
    told: Told = lambda _what, _share: None,
    kept: Callable[[TunerResult], None] = lambda _so_far: None,
    fitted: Callable[[Mix], Mix] = lambda mix: mix,
) -> TunerResult:
    """Run the mixes. ``kept`` gets the result so far after each setting of the grid, and each window of an arm.

    ``fitted`` gives a mix the objectives that it shall have on this GPU.
    """
    results: list[MixResult] = []
    where = options.host or host(_VIRTUAL)

    def so_far(*unfinished: MixResult) -> TunerResult:
        return TunerResult(host=where, command=sys.argv, how=options.how, mixes=[*results, *unfinished])

    for number, (name, mix) in enumerate(mixes.items()):

        def tell(what: str, share: float, name: str = name, number: int = number) -> None:
            told(f"{name}: {what}", (number + share) / len(mixes))

        results.append(_Proof(name, fitted(mix), options, beds, tell, lambda one: kept(so_far(one))).run())
    kept(so_far())
    return so_far()


def host(gpu: Device) -> Host:
    """Where and when it is measured."""
    return Host(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        kernel=platform.release(),
        gpu=gpu.name,
        driver=gpu.driver,
        simulated=gpu.simulated,
        scale=gpu.scale,
    )


_VIRTUAL = Device(simulated=True, name="embedded GPU", driver="simulated, virtual time", scale=1.0, environment={})


class _Proof:
    """One mix. ``kept`` gets what there is of its result whenever there is more."""

    def __init__(
        self, name: str, mix: Mix, options: Options, beds: Beds, told: Told, kept: Callable[[MixResult], None]
    ) -> None:
        self._name, self._mix, self._options, self._beds = name, mix, options, beds
        self._told, self._kept = told, kept
        self._earlier = options.earlier.get(mix.identity)
        self._before = self._after = Oracle(best=None, tried=[])
        self._runs: dict[tuple[str, int], Run] = {}

    def run(self) -> MixResult:
        """The grid, then every arm with every seed."""
        if "tpe" in self._options.arms and not self._earlier:
            players.need_optuna()  # before minutes were spent
        if self._earlier:
            self._before, self._after = self._earlier.before, self._earlier.after
        else:
            self._oracles()
        seeds = self._options.seeds
        for seed in range(1, seeds + 1):
            for arm in _RUN_ORDER:
                if arm == "oracle" or arm in self._options.arms:
                    self._told(f"{arm}, seed {seed}", 0.4 + 0.6 * (seed - 1) / seeds)
                    self._arm(arm, seed)
        return self.result()

    def result(self) -> MixResult:
        """What there is so far."""
        order = [*ARMS, "oracle", "warm"]
        return MixResult(
            name=self._name,
            title=self._mix.title,
            change=self._mix.after.what,
            limits_us=self._mix.limits_us(),
            window_s=self._mix.window_s,
            change_at=self._options.windows[0],
            before=self._before,
            after=self._after,
            runs=sorted(self._runs.values(), key=lambda run: (order.index(run.arm), run.seed)),
            identity=self._mix.identity,
        )

    # ---- the oracle

    def _oracles(self) -> None:
        def before(found: Oracle, share: float) -> None:
            self._before = _short(found)
            self._seen_of_grid(0.2 * share)

        def after(found: Oracle, share: float) -> None:
            self._after = _short(found)
            self._seen_of_grid(0.2 + 0.2 * share)

        coarse = self._options.coarse
        found = oracle.find(self._mix, False, self._beds, coarse=coarse, seen=before)
        if self._options.windows[1]:
            turns_appear = self._mix.jobs(False) == 1 < self._mix.jobs(True)
            among = (oracle.promising(found.tried) or None) if coarse and not turns_appear else None
            oracle.find(self._mix, True, self._beds, coarse=coarse, among=among, seen=after)

    def _seen_of_grid(self, share: float) -> None:
        self._told("grid", share)
        self._kept(self.result())

    # ---- the arms

    def _arm(self, arm: str, seed: int) -> None:
        windows = self._windows(arm)
        known = self._earlier.run_of(arm, seed, sum(windows)) if self._earlier and arm != "tuner" else None
        if known:
            self._keep(known)
        elif arm == "tuner":
            self._tuner(seed)
        elif arm == "oracle" or seed <= self._options.rival_seeds:
            with self._beds(self._mix, seed) as bed:
                self._play(arm, seed, bed, self._players(arm, bed, seed), windows)

    def _windows(self, arm: str) -> tuple[int, int]:
        before, after = self._options.windows
        most = self._options.static_windows if arm in _STATIC else None
        return (before, after) if most is None else (min(before, most), min(after, most))

    def _players(self, arm: str, bed: Bed, seed: int) -> list[Player]:
        """Before and after the change. Searches start over there: they are told of it, the tuner is not."""
        if arm == "oracle":
            return [Fixed(_settings(self._before)), Fixed(_settings(self._after))]
        makers: dict[str, Callable[[], Player]] = {
            "driver": lambda: players.driver(bed),
            "gpreempt": lambda: players.gpreempt(bed),
            "gpsched": lambda: players.untuned(bed),
            "random": lambda: players.Random(bed, seed),
            "tpe": lambda: players.Tpe(bed, seed),
        }
        return [makers[arm](), makers[arm]()]

    def _tuner(self, seed: int) -> None:
        """Cold through both phases; then warm, on other requests, with what it had learned when the change came."""
        learned: list[Point] = []
        with self._beds(self._mix, seed) as bed:
            ours = Ours(bed, seed)
            self._play(
                "tuner",
                seed,
                bed,
                [ours, ours],
                self._options.windows,
                first_done=lambda: learned.extend(ours.points()),
            )
        again, windows = seed + _WARM_SEED, (self._options.warm_windows, 0)
        with self._beds(self._mix, again) as bed:
            self._play("oracle", again, bed, self._players("oracle", bed, again), windows)
        with self._beds(self._mix, again) as bed:
            warm = Ours(bed, again, lambda _key: learned)
            self._play("warm", again, bed, [warm, warm], windows)

    def _play(
        self,
        arm: str,
        seed: int,
        bed: Bed,
        phases: Sequence[Player],
        windows: tuple[int, int],
        *,
        first_done: Callable[[], None] = lambda: None,
    ) -> None:
        run = Run(arm=arm, seed=seed, spots=[], change_at=windows[0] if windows != self._options.windows else None)
        cpu_s, last = 0.0, None
        for number, (player, count) in enumerate(zip(phases, windows, strict=True)):
            if number and count:
                bed.change()
            for _ in range(count):
                started = time.process_time()
                how = player.choose()
                cpu_s += time.process_time() - started
                changed = {len(run.spots): how} if isinstance(how, dict) and how != last else {}
                last = how
                window = bed.window(how)
                started = time.process_time()
                player.see(window)
                cpu_s += time.process_time() - started
                run = msgspec.structs.replace(
                    run,
                    spots=[*run.spots, _spot(window)],
                    settings=run.settings | changed,
                    cpu_s=round(cpu_s, 3),
                )
                self._keep(run)
            if not number:
                first_done()

    def _keep(self, run: Run) -> None:
        self._runs[run.arm, run.seed] = run
        self._kept(self.result())


def _settings(found: Oracle) -> Settings:
    """The best static settings; where none keep the objectives, gpsched's defaults."""
    return found.best.settings if found.best else defaults()


def _short(found: Oracle) -> Oracle:
    """The grid by its front alone: what no other setting beats in both progress and latency."""
    front: list[GridPoint] = []
    for point in sorted(found.tried, key=lambda point: -point.progress):
        if point.latency is not None and (not front or point.latency < (front[-1].latency or 0.0)):
            front.append(point)
    return Oracle(best=found.best, tried=front)


def _spot(taken: Taken) -> Spot:
    latency = None if taken.latency is None else round(taken.latency, 4)
    margin = taken.observed.window.margin if taken.observed else None
    told = None if margin is None else round(math.exp(-margin), 4)
    return Spot(progress=round(taken.progress, 5), latency=latency, missed=taken.missed, told=told)
