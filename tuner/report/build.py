"""Makes a report of windows and changes: sums, comparisons with the default, thinned series."""

import itertools
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gpsched.adaptive.config import Config
from gpsched.tuner.model import KNOBS, BeWindow, Change, LcWindow, Point, Settings, Window
from gpsched.tuner.report.model import (
    Gain,
    Gap,
    GpuReport,
    JobReport,
    Losses,
    Report,
    Series,
    ServiceReport,
    TradeOff,
)
from gpsched.tuner.report.suggest import suggestions


_T = TypeVar("_T", LcWindow, BeWindow)

MOST_POINTS = 300  # of all GPUs' series together, so that a page stays small
_LEAST_POINTS = 40  # of one
_GAP_WINDOWS = 5.0  # so many lengths of a window without one are a gap
_LEAST_GAP_S = 30.0
_LIKE_LOAD = 0.25  # relative difference of load up to which two windows are compared
_LEAST_DEFAULT = 2  # windows
_LEVEL = "reservations.level"
_WHOLE = 1.02  # shares of the GPU that add up to more come of rates alone that were only estimated


def build(
    windows: Sequence[Window],
    changes: Sequence[Change],
    points: Callable[[str], Sequence[Point]],
    *,
    source: str,
    from_s: float,
    to_s: float,
    notes: Iterable[str] = (),
) -> Report:
    """Return the report of what happened from ``from_s`` to ``to_s``; ``points`` tells what is known of a work."""
    numbers = sorted({window.gpu for window in windows} | {change.gpu for change in changes})
    return Report(
        source=source,
        made_s=time.time(),
        from_s=from_s,
        to_s=to_s,
        notes=list(notes),
        gpus=[
            _gpu(
                number,
                [window for window in windows if window.gpu == number],
                [change for change in changes if change.gpu == number],
                points,
                max(_LEAST_POINTS, MOST_POINTS // len(numbers)),
            )
            for number in numbers
        ],
    )


def is_default(settings: Settings) -> bool:
    """Whether these are the settings that gpsched has without a tuner."""
    defaults = Config()
    return all(
        settings.get(knob.name, value) == value
        for knob in KNOBS.values()
        if (value := getattr(getattr(defaults, knob.section), knob.key, None)) is not None
    )


def _gpu(
    number: int,
    windows: list[Window],
    changes: list[Change],
    points: Callable[[str], Sequence[Point]],
    most_points: int,
) -> GpuReport:
    phases: Counter[str] = Counter()
    for window in windows:
        phases[window.phase] += window.length_s  # type: ignore[assignment]
    services = _services(windows)
    trade_off = _trade_off(windows, points)
    return GpuReport(
        gpu=number,
        model=windows[-1].gpu_model if windows else "",
        windows=len(windows),
        seconds=sum(window.length_s for window in windows),
        kept=sum(window.verdict == "kept" for window in windows),
        missed=sum(window.verdict == "missed" for window in windows),
        phases=dict(phases),
        unlearned=dict(Counter(window.why_not for window in windows if not window.learned and window.why_not)),
        services=services,
        jobs=_jobs(windows),
        losses=_losses(windows),
        gain=_gain(windows),
        changes=changes,
        gaps=_gaps(windows),
        suggestions=suggestions(number, windows, services, trade_off),
        series=_series(windows, most_points),
        trade_off=trade_off,
    )


def _by_program(parts: Iterable[_T]) -> list[list[_T]]:
    """A program that was restarted stays one program."""
    found: dict[tuple[str, str, str], list[_T]] = defaultdict(list)
    for part in parts:
        found[part.name, part.program, part.tenant].append(part)
    return list(found.values())


def _services(windows: list[Window]) -> list[ServiceReport]:
    return [_service(parts) for parts in _by_program(lc for window in windows for lc in window.lc)]


def _service(parts: list[LcWindow]) -> ServiceReport:
    last, active = parts[-1], [part for part in parts if part.bursts] or parts
    values = [part.value_us for part in active]
    return ServiceReport(
        name=last.name,
        program=last.program,
        tenant=last.tenant,
        objective=last.objective,
        windows=len(parts),
        kept=sum(part.verdict == "kept" for part in parts),
        missed=sum(part.verdict == "missed" for part in parts),
        bursts=sum(part.bursts for part in parts),
        over=sum(part.over for part in parts),
        rate_hz=statistics.fmean(part.rate_hz for part in parts),
        p50_us=statistics.median(part.p50_us for part in active),
        value_us=statistics.median(values),
        worst_us=max(values),
        alone_us=next((part.alone_us for part in reversed(parts) if part.alone_us is not None), None),
        levels=_shares(part.level for part in parts),
        triggers=_shares(part.trigger for part in parts if part.trigger is not None),
        reservations=sum(part.reservations for part in parts),
        hidden_us=sum(part.hidden_us for part in parts),
        wasted_us=sum(part.wasted_us for part in parts),
    )


def _shares(values: Iterable[str]) -> dict[str, float]:
    counts = Counter(values)
    return {value: count / counts.total() for value, count in counts.most_common()}


def _jobs(windows: list[Window]) -> list[JobReport]:
    return [_job(parts) for parts in _by_program(be for window in windows for be in window.be)]


def _job(parts: list[BeWindow]) -> JobReport:
    known = [part.progress for part in parts if part.progress is not None]
    return JobReport(
        name=parts[-1].name,
        program=parts[-1].program,
        tenant=parts[-1].tenant,
        weight=parts[-1].weight,
        windows=len(parts),
        rate_hz=statistics.fmean(part.rate_hz for part in parts),
        solo_hz=next((part.solo_hz for part in reversed(parts) if part.solo_hz is not None), None),
        progress=statistics.fmean(known) if known else None,
    )


def _losses(windows: list[Window]) -> Losses | None:
    """Of the windows in which the progress of every best-effort process is known; None where rates alone are not."""
    known = [window for window in windows if window.be and all(be.progress is not None for be in window.be)]
    total = sum(window.length_s for window in known)
    if not total:
        return None

    def share(of: Callable[[Window], float]) -> float:
        return sum(of(window) * window.length_s for window in known) / total

    best_effort = share(lambda window: sum(be.progress or 0.0 for be in window.be))
    services = share(lambda window: sum(lc.busy_share for lc in window.lc))
    idle = share(lambda window: sum(lc.wasted_us for lc in window.lc) / (window.length_s * 1e6))
    closed = share(lambda window: 1.0 - float(window.settings.get("reservations.be_share", 1.0)))
    rest = max(0.0, 1.0 - best_effort - services - idle - closed)
    if best_effort + services + idle > _WHOLE:
        return None
    return Losses(best_effort=best_effort, services=services, idle_reserved=idle, closed=closed, rest=rest)


def _gain(windows: list[Window]) -> Gain | None:
    """Compare windows of the same work at like load; None where the defaults were not seen."""
    tuned: list[Window] = []
    default: list[Window] = []
    for key in dict.fromkeys(window.key for window in windows):
        every = [window for window in windows if window.key == key]
        as_default = _default_like([window for window in every if is_default(window.settings)])
        own = [window for window in every if window.progress is not None]
        by_default = [window for window in own if as_default(window)]
        if len(by_default) < _LEAST_DEFAULT:
            continue
        load = statistics.median(window.load for window in by_default)
        alike = [w for w in own if abs(w.load - load) <= _LIKE_LOAD * max(load, 1e-9)]
        ours = [w for w in alike if not w.trial and not as_default(w)]
        if ours:
            tuned += ours
            default += [window for window in alike if as_default(window)]
    if not tuned:
        return None
    return Gain(
        tuned=_progress(tuned),
        default=_progress(default),
        tuned_windows=len(tuned),
        default_windows=len(default),
        tuned_missed=_missed(tuned),
        default_missed=_missed(default),
    )


def _default_like(seen: list[Window]) -> Callable[[Window], bool]:
    """Whether a window had the defaults, or named the level that the defaults come to."""
    levels = {lc.level for window in seen for lc in window.lc}
    automatic = Config().reservations.level

    def like(window: Window) -> bool:
        same = {lc.level for lc in window.lc} <= levels
        return is_default(window.settings) or (same and is_default({**window.settings, _LEVEL: automatic}))

    return like


def _progress(windows: list[Window]) -> float:
    return statistics.fmean(window.progress or 0.0 for window in windows)


def _missed(windows: list[Window]) -> float:
    return sum(window.verdict == "missed" for window in windows) / len(windows)


def _gaps(windows: list[Window]) -> list[Gap]:
    found = []
    for before, after in itertools.pairwise(windows):
        start, end = before.time_s, after.time_s - after.length_s
        if end - start > max(_LEAST_GAP_S, _GAP_WINDOWS * after.length_s):
            found.append(Gap(start_s=start, end_s=end))
    return found


def _series(windows: list[Window], most_points: int) -> Series:
    """Equal numbers of windows a point, so that a busy hour is not one point beside empty days."""
    size = -(-len(windows) // most_points) or 1
    buckets = [windows[start : start + size] for start in range(0, len(windows), size)]
    names = list(dict.fromkeys(lc.name for window in windows for lc in window.lc))
    return Series(
        time_s=[bucket[-1].time_s for bucket in buckets],
        latency={name: [_over_limit(bucket, name) for bucket in buckets] for name in names},
        progress=[_mean_or_none([w.progress for w in bucket if w.progress is not None]) for bucket in buckets],
        settings=[bucket[-1].settings for bucket in buckets],
    )


def _over_limit(bucket: list[Window], name: str) -> tuple[float, float] | None:
    ratios = [
        round(lc.value_us / lc.objective.limit_us, 4)
        for window in bucket
        for lc in window.lc
        if lc.name == name and lc.bursts and lc.objective.limit_us
    ]
    return (statistics.median(ratios), max(ratios)) if ratios else None


def _mean_or_none(values: list[float]) -> float | None:
    return round(statistics.fmean(values), 4) if values else None


def _trade_off(windows: list[Window], points: Callable[[str], Sequence[Point]]) -> TradeOff | None:
    if not windows:
        return None
    key = Counter(window.key for window in windows).most_common(1)[0][0]
    last = next((window for window in reversed(windows) if window.key == key and not window.trial), None)
    known, load = list(points(key)), last.load if last else 0.0
    alike = [point for point in known if abs(point.load - load) <= _LIKE_LOAD * max(load, 1e-9)]
    return TradeOff(key=key, points=alike or known, chosen=last.settings if last else None)
