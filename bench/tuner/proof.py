"""Runs the proof: each mix through all arms, before and after its change, on the same requests."""

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


#: In the order in which they are shown.
ARMS = ("driver", "gpreempt", "gpsched", "random", "tpe", "tuner")
_WARM_SEED = 1000  # a warm run meets other requests than those that were learned from
Told = Callable[[str, float], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """``windows`` before the change and after it; ``seeds`` of the tuner's runs (rivals get one); ``coarse`` grid.

    ``how``, ``host``: what the windows run on; ``earlier``: mixes of which all
    but the tuner's runs may be taken from an earlier result.
    """

    arms: tuple[str, ...] = ARMS
    how: str = "the embedded GPU's engine in virtual time; programs are scripts, settings executed as the actuator does"
    windows: tuple[int, int] = (60, 40)
    warm_windows: int = 15
    seeds: int = 2
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
    finished: Callable[[TunerResult], None] = lambda _so_far: None,
) -> TunerResult:
    """Run the mixes in virtual time. ``finished`` gets the result so far after each."""
    results: list[MixResult] = []
    for number, (name, mix) in enumerate(mixes.items()):

        def tell(what: str, share: float, name: str = name, number: int = number) -> None:
            told(f"{name}: {what}", (number + share) / len(mixes))

        results.append(_mix(name, mix, options, beds, tell))
        result = TunerResult(
            host=options.host or host(_VIRTUAL),
            command=sys.argv,
            how=options.how,
            mixes=list(results),
        )
        finished(result)
    return result


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


def _mix(name: str, mix: Mix, options: Options, beds: Beds, told: Told) -> MixResult:
    earlier = options.earlier.get(mix.identity)
    before, after = (earlier.before, earlier.after) if earlier else _oracles(mix, options, beds, told)
    runs: list[Run] = []
    for seed in range(1, options.seeds + 1):
        told(f"arms, seed {seed}", 0.4 + 0.6 * (seed - 1) / options.seeds)
        for arm in ("oracle", *options.arms):
            known = earlier.run_of(arm, seed, sum(options.windows)) if earlier and arm != "tuner" else None
            if known:
                runs.append(known)
            elif arm == "oracle":
                runs.append(_oracle_run(beds, mix, before, after, options, seed))
            elif arm == "tuner":
                runs += _tuner_runs(beds, mix, before, options, seed)
            elif seed == 1:
                runs.append(_rival_run(beds, arm, mix, options, seed))
    return MixResult(
        name=name,
        title=mix.title,
        change=mix.after.what,
        limits_us=mix.limits_us(),
        window_s=mix.window_s,
        change_at=options.windows[0],
        before=before,
        after=after,
        runs=runs,
        identity=mix.identity,
    )


def _oracles(mix: Mix, options: Options, beds: Beds, told: Told) -> tuple[Oracle, Oracle]:
    before = oracle.find(mix, False, beds, coarse=options.coarse, told=lambda share: told("grid", 0.2 * share))
    after = oracle.find(mix, True, beds, coarse=options.coarse, told=lambda share: told("grid", 0.2 + 0.2 * share))
    return _short(before), _short(after)


def _short(found: Oracle) -> Oracle:
    """The grid by its front alone: what no other setting beats in both progress and latency."""
    front: list[GridPoint] = []
    for point in sorted(found.tried, key=lambda point: -point.progress):
        if point.latency is not None and (not front or point.latency < (front[-1].latency or 0.0)):
            front.append(point)
    return Oracle(best=found.best, tried=front)


def _oracle_run(beds: Beds, mix: Mix, before: Oracle, after: Oracle, options: Options, seed: int) -> Run:
    """The best static settings, on the same requests; where none keep the objectives, gpsched's defaults."""
    first, second = (found.best.settings if found.best else defaults() for found in (before, after))
    with beds(mix, seed) as bed:
        return _play("oracle", seed, bed, [Fixed(first), Fixed(second)], options.windows)


def _rival_run(beds: Beds, arm: str, mix: Mix, options: Options, seed: int) -> Run:
    """Searches start over at the change, which they are told; the tuner is not."""
    with beds(mix, seed) as bed:
        makers: dict[str, Callable[[], Player]] = {
            "driver": lambda: players.driver(bed),
            "gpreempt": lambda: players.gpreempt(bed),
            "gpsched": lambda: players.untuned(bed),
            "random": lambda: players.Random(bed, seed),
            "tpe": lambda: players.Tpe(bed, seed),
        }
        return _play(arm, seed, bed, [makers[arm](), makers[arm]()], options.windows)


def _tuner_runs(beds: Beds, mix: Mix, before: Oracle, options: Options, seed: int) -> list[Run]:
    """Cold through both phases; then warm, with what it had learned when the change came."""
    with beds(mix, seed) as bed:
        ours = Ours(bed, seed)
        first = _play("tuner", seed, bed, [ours], options.windows[:1])
        points = ours.points()
        second = _play("tuner", seed, bed, [ours], options.windows[1:], changed=True)
    cold = Run(
        arm="tuner",
        seed=seed,
        spots=first.spots + second.spots,
        settings=first.settings | {options.windows[0] + at: how for at, how in second.settings.items()},
        cpu_s=first.cpu_s + second.cpu_s,
    )
    again = seed + _WARM_SEED
    with beds(mix, again) as bed:
        warm = _play("warm", again, bed, [Ours(bed, again, lambda _key: points)], (options.warm_windows,))
    best = before.best.settings if before.best else defaults()
    with beds(mix, again) as bed:
        beside = _play("oracle", again, bed, [Fixed(best)], (options.warm_windows,))
    return [cold, beside, warm]


def _play(
    arm: str, seed: int, bed: Bed, phases: Sequence[Player], windows: Sequence[int], *, changed: bool = False
) -> Run:
    spots: list[Spot] = []
    settings: dict[int, Settings] = {}
    cpu_s, last = 0.0, None
    for number, (player, count) in enumerate(zip(phases, windows, strict=True)):
        if number or changed:
            bed.change()
        for _ in range(count):
            started = time.process_time()
            how = player.choose()
            cpu_s += time.process_time() - started
            if isinstance(how, dict) and how != last:
                settings[len(spots)] = last = how
            window = bed.window(how)
            spots.append(_spot(window))
            started = time.process_time()
            player.see(window)
            cpu_s += time.process_time() - started
    return Run(arm=arm, seed=seed, spots=spots, settings=settings, cpu_s=round(cpu_s, 3))


def _spot(taken: Taken) -> Spot:
    latency = None if taken.latency is None else round(taken.latency, 4)
    return Spot(progress=round(taken.progress, 5), latency=latency, missed=taken.missed)
