"""Turns the registry, the burst log and the counters into what the tuner measures by."""

import time
from collections.abc import Callable, Iterable

import msgspec

from gpsched.adaptive.knobs import SettingsView
from gpsched.adaptive.measure import BeMeasure, LcMeasure, Measurement
from gpsched.adaptive.model import HintsView
from gpsched.adaptive.steering import Steering
from gpsched.adaptive.views import GpuNumbers
from gpsched.adaptive.workloads.registry import Process


_LAUNCHES = ("launch", "graph_launch")


def measurement(
    processes: Iterable[Process],
    steering: Steering,
    numbers: GpuNumbers,
    counters: Callable[[int], dict[str, int]],
    since_us: float,
    settings: Callable[[set[int]], SettingsView],
) -> Measurement:
    """Return what happened since ``since_us``; ``models`` and ``lost_events`` are left to who knows them."""
    now_us = time.monotonic_ns() / 1000
    lc: list[LcMeasure] = []
    be: list[BeMeasure] = []
    used: set[int] = set()
    for process in processes:
        gpus = sorted({number for gpu in process.gpus() if (number := numbers.number(gpu)) is not None})
        if not gpus:
            continue
        used.update(gpus)
        if process.class_ == "lc":
            lc.append(_lc(process, steering, gpus, since_us))
        elif process.class_ == "be":
            be.append(_be(process, gpus, counters(process.pid)))
    return Measurement(
        since_us=since_us, now_us=now_us, lost_events=0, models={}, lc=lc, be=be, settings=settings(used)
    )


def _lc(process: Process, steering: Steering, gpus: list[int], since_us: float) -> LcMeasure:
    hints = steering.figures(process.pid).get("hints") or HintsView(state="learning")
    common = {
        "pid": process.pid,
        "name": process.info.name,
        "command": process.info.command,
        "tenant": process.tenant,
        "gpus": gpus,
        "slo_us": process.slo_us,
        "level": process.level,
        "levels": list(steering.levels(process.pid)),
        "trigger": hints.trigger,
        "reservations": hints.reservations,
        "hidden_us": hints.hidden_us,
        "wasted_us": hints.wasted_us,
    }
    return msgspec.convert(common | steering.log.fields(process.pid, since_us, process.slo_us), LcMeasure)


def _be(process: Process, gpus: list[int], calls: dict[str, int]) -> BeMeasure:
    return BeMeasure(
        pid=process.pid,
        name=process.info.name,
        command=process.info.command,
        tenant=process.tenant,
        gpus=gpus,
        launches=sum(calls.get(call, 0) for call in _LAUNCHES),
    )
