"""The oracle: the best static settings of a grid, for a mix before and after its change."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec

from gpsched.adaptive.knobs import Settings
from gpsched.bench.tuner.bed import Beds, VirtualBed, defaults
from gpsched.bench.tuner.mix import Mix


_FIRST_WINDOWS = 1  # at each setting of the grid
_FINALS, _FINALS_COARSE = (6, 12), (3, 5)  # how many of the best go on, for how many windows each
_MAY_MISS = 0.03
_PROMISING, _NEARLY = 12, 1.25  # settings that may be the best after a change, too; latency over limit that may be kept

_BE_SLICES = (1, 200, 500, 1000, 1500, 2000, 2500, 3000, 4000, 6000)
_SHARES = (1.0, 0.8, 0.5)
_TURNS = (50_000, 20_000, 200_000, 500_000)
_SHIFTS = (-300, 0, 150, 400)
_QUIETS = (0, 200, 500, 1500)


class GridPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the grid: mean progress, mean of latency over limit (None: too few requests), share of misses."""

    settings: Settings
    progress: float
    latency: float | None
    missed: float
    windows: int


class Oracle(msgspec.Struct, frozen=True, kw_only=True):
    """The best settings that keep the objectives in 97 % of the windows; None when none do. ``tried``: all."""

    best: GridPoint | None
    tried: list[GridPoint]


def grid(levels: tuple[str, ...], jobs: int, *, coarse: bool = False) -> Iterator[Settings]:
    """The settings that a patient engineer would go through: knobs that do nothing at a level are left alone there."""
    few = 3 if coarse else 1
    turns = _TURNS[::few] if jobs > 1 else _TURNS[:1]
    by_level = {
        "timeslice": itertools.product(_BE_SLICES[::few], (0,), (0,)),
        "reserve": itertools.product(_BE_SLICES[::4], _SHIFTS[::few], _QUIETS[::few]),
        "hold": itertools.product(_BE_SLICES[::few], _SHIFTS[::few], (0,)),
    }
    for level in levels:
        for (be_us, shift, quiet), turn, share in itertools.product(by_level[level], turns, _SHARES[::few]):
            if (share < 1.0 or turn != turns[0]) and (shift or quiet):
                continue  # what a share or a turn is worth does not depend on these
            yield {
                **defaults(),
                "reservations.level": level,
                "timeslice.be_us": be_us,
                "reservations.offset_shift_us": shift,
                "reservations.quiet_extra_us": quiet,
                "reservations.turn_us": turn,
                "reservations.be_share": share,
            }


def find(
    mix: Mix,
    changed: bool,
    beds: Beds = VirtualBed,
    *,
    seed: int = 1,
    coarse: bool = False,
    among: Sequence[Settings] | None = None,
    seen: Callable[[Oracle, float], None] = lambda _so_far, _share: None,
) -> Oracle:
    """Try every setting (``among`` these) for a window, and the best for many.

    ``seen`` gets what there is, and the share done.
    """
    if among is None:
        with beds(mix, seed) as bed:
            among = list(grid(bed.levels, mix.jobs(changed), coarse=coarse))
    settings = list(among)
    finalists, final_windows = _FINALS_COARSE if coarse else _FINALS
    windows = len(settings) * _FIRST_WINDOWS + finalists * final_windows
    tried: list[GridPoint] = []
    for each in settings:
        tried.append(_measured(beds, mix, changed, each, seed, _FIRST_WINDOWS))
        seen(Oracle(best=None, tried=tried), len(tried) * _FIRST_WINDOWS / windows)
    good = sorted((point for point in tried if not point.missed), key=lambda point: -point.progress)
    kept: list[GridPoint] = []
    found = Oracle(best=None, tried=tried)
    for number, point in enumerate(good[: 3 * finalists]):
        if number >= finalists and kept:
            break  # of the first, where limits are near, none may keep them for long
        final = _measured(beds, mix, changed, point.settings, seed, final_windows)
        if final.missed <= _MAY_MISS:
            kept.append(final)
        found = Oracle(best=max(kept, key=lambda point: point.progress, default=None), tried=tried)
        seen(found, min((len(settings) * _FIRST_WINDOWS + (number + 1) * final_windows) / windows, 1.0))
    return found


def promising(tried: Sequence[GridPoint]) -> list[Settings]:
    """Those with the most progress of what kept the objectives, or nearly: where a change leaves no time for more."""
    near = [point for point in tried if point.latency is not None and point.latency <= _NEARLY]
    return [point.settings for point in sorted(near, key=lambda point: -point.progress)[:_PROMISING]]


def _measured(beds: Beds, mix: Mix, changed: bool, settings: Settings, seed: int, count: int) -> GridPoint:
    """On a GPU of its own, so that no setting inherits the queue of another."""
    with beds(mix, seed) as bed:
        if changed:
            bed.change()
        windows = [bed.window(settings) for _ in range(count)]
    known = [window.latency for window in windows if window.latency is not None]
    return GridPoint(
        settings=settings,
        progress=round(sum(window.progress for window in windows) / count, 5),
        latency=round(sum(known) / len(known), 4) if known else None,
        missed=sum(window.latency is None or window.missed for window in windows) / count,
        windows=count,
    )
