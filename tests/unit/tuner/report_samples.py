"""Histories to report on: a service beside a job, for as many windows as wanted."""

import math
import random
from collections.abc import Iterator

from gpsched.tuner.model import BeWindow, Change, Expectation, LcWindow, Objective, Point, Settings, Window


START_S = 1_790_000_000.0
LENGTH_S = 2.0
DEFAULTS: Settings = {
    "reservations.level": "auto",
    "timeslice.lc_us": 1_000_000,
    "timeslice.be_us": 1,
    "reservations.turn_us": 50_000,
    "reservations.offset_shift_us": 0,
    "reservations.quiet_extra_us": 0,
    "reservations.be_share": 1.0,
}
TUNED: Settings = {**DEFAULTS, "timeslice.be_us": 2000}
KEY = "serve+train@GPU"


def window(
    number: int = 0,
    *,
    settings: Settings = TUNED,
    p99_us: float = 4000.0,
    limit_us: float | None = 5000.0,
    progress: float | None = 0.9,
    names: tuple[str, ...] = ("serve",),
    gpu: int = 0,
    busy: float = 0.05,
    trial: bool = False,
) -> Window:
    verdict = "unknown" if limit_us is None else "kept" if p99_us <= limit_us else "missed"
    lc = [
        LcWindow(
            pid=100 + place,
            name=name,
            program=f"/srv/{name}",
            tenant="web",
            objective=Objective(kind="slo", statistic="p99", limit_us=limit_us),
            bursts=200,
            rate_hz=100.0,
            mean_us=p99_us / 2,
            p50_us=p99_us / 2,
            p90_us=p99_us * 0.9,
            p99_us=p99_us,
            max_us=p99_us * 1.2,
            over=1,
            triggered=1.0,
            alone_us=1500.0,
            busy_share=busy,
            level="hold",
            reservations=200,
            hidden_us=200 * 170.0,
            wasted_us=2000.0,
            trigger="read of descriptor 7",
            verdict=verdict,
        )
        for place, name in enumerate(names)
    ]
    be = BeWindow(
        pid=900,
        name="train",
        program="/srv/train",
        tenant="lab",
        rate_hz=2400.0 * (progress or 0.0),
        solo_hz=2400.0,
        progress=progress,
    )
    return Window(
        time_s=START_S + (number + 1) * LENGTH_S,
        length_s=LENGTH_S,
        gpu=gpu,
        gpu_model="embedded GPU",
        key=KEY,
        settings=settings,
        lc=lc,
        be=[be],
        verdict=verdict,
        margin=None if limit_us is None else math.log(limit_us / p99_us),
        progress=progress,
        load=1.0,
        learned=True,
        phase="hold",
        trial=trial,
    )


def change(number: int = 0, kind: str = "try", gpu: int = 0) -> Change:
    return Change(
        id=number + 1,
        time_s=START_S + (number + 0.5) * LENGTH_S,
        gpu=gpu,
        key=KEY,
        kind=kind,  # type: ignore[arg-type]
        what={"timeslice.be_us": (1, 2000)},
        why="longer slices cost the job fewer switches",
        expected=Expectation(progress=0.93, margin=0.2),
        seen=Expectation(progress=0.92, margin=0.22),
    )


def point(progress: float, margin: float, **settings: float | str) -> Point:
    chosen = {name.replace("__", "."): value for name, value in settings.items()}
    return Point(settings={**TUNED, **chosen}, margin=margin, progress=progress, load=1.0, windows=2, time_s=START_S)


def busy_history(count: int) -> Iterator[Window]:
    """Windows that wander through the settings, with four services."""
    rng = random.Random(1)
    for number in range(count):
        settings: Settings = {
            "reservations.level": rng.choice(("timeslice", "reserve", "hold", "auto")),
            "timeslice.lc_us": rng.randint(500, 1_000_000),
            "timeslice.be_us": rng.randint(1, 10_000),
            "reservations.turn_us": rng.randint(5_000, 500_000),
            "reservations.offset_shift_us": rng.randint(-1000, 2000),
            "reservations.quiet_extra_us": rng.randint(0, 5000),
            "reservations.be_share": rng.uniform(0.05, 1.0),
        }
        names = ("serve", "rank", "embed", "decode")
        yield window(number, settings=settings, p99_us=rng.uniform(1000, 7000), progress=rng.random(), names=names)
